// Package fit looks for the largest batch size that fits on a GPU, by running it.
package fit

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/answer"
	"github.com/gresize/gresize/estimator/snapshot"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/trace/events"
)

// Schema is that of a Result's JSON form.
const Schema = "gresize.fit/1"

// shareOfInterval: sizes that differ by less than this part of an answer's interval are not told apart.
const shareOfInterval = 0.1

// Result is what a search has found.
type Result struct {
	Schema   string `json:"schema"`
	GPU      string `json:"gpu"`
	Status   string `json:"status"`
	ExitCode int    `json:"exit_code"`
	// Batch is the largest that was run and fits; 0 when none does. FailsAt is a larger one that was run and does not fit.
	Batch   int `json:"batch,omitempty"`
	FailsAt int `json:"fails_at,omitempty"`
	// Proven: Batch fits and Batch + Step does not, or not for sure, both by a run.
	Proven bool   `json:"proven"`
	Step   int    `json:"step"`
	Why    string `json:"why,omitempty"`
	Runs   []Run  `json:"runs"`
}

// Run is one size that was tried.
type Run struct {
	Batch    int           `json:"batch"`
	Estimate answer.Answer `json:"estimate"`
	// Asked is a digest of what the command asked the allocator for; empty where it is not known.
	Asked string `json:"-"`
}

// verdict is what one run says about its batch size.
type verdict int

const (
	yes verdict = iota
	tooClose
	no
	unusable
)

// Search looks for the largest batch size that fits. It takes nothing for granted that was not run.
type Search struct {
	// Sizes are multiples of Step; First is tried first, and none above Most.
	Step, First, Most int
	// CapacityBytes is the memory of the card.
	CapacityBytes int64
	// AcceptLow takes an answer of low confidence for one.
	AcceptLow bool
	// Coarse ends a search where the interval can tell no more, and Spent where its time is; both may be left out.
	Coarse bool
	Spent  func() bool
	// Try runs one size.
	Try func(batch int) (Run, error)

	runs     []Run
	verdicts map[int]verdict
	// need and high are the point and the upper end by batch size, of those that did not meet the end of the card.
	need, high map[int]int64
}

// errUnusable ends a search in which a run gave no answer.
var errUnusable = errors.New("a run gave no answer")

// errNoEffect ends a search whose batch sizes change nothing.
var errNoEffect = errors.New("the batch size has no effect")

func (s *Search) ask(batch int) (verdict, error) {
	if a, known := s.verdicts[batch]; known {
		return a, nil
	}
	run, err := s.Try(batch)
	if err != nil {
		return unusable, err
	}
	run.Batch = batch
	s.runs = append(s.runs, run)
	r := &run.Estimate
	a := s.judge(r)
	s.verdicts[batch] = a
	if largest, ok := r.Largest(); ok && r.Fits {
		s.need[batch] = largest.ComfortableBytes
		if a == yes {
			s.high[batch] = largest.ComfortableHighBytes
		}
	}
	if a == unusable {
		return a, errUnusable
	}
	return a, nil
}

func (s *Search) judge(r *answer.Answer) verdict {
	switch {
	case r.Status == answer.Fits:
		return yes
	case r.Status == answer.DoesNotFit:
		return no
	case isClose(r):
		return tooClose
	case s.AcceptLow && r.Confidence == estimator.Low && r.Fits && r.Headroom != nil:
		if r.Headroom.Bytes < 0 {
			return tooClose
		}
		return yes
	}
	return unusable
}

// Word is what a run says about its size, in a word.
func Word(r *answer.Answer) string {
	if isClose(r) {
		return "too close"
	}
	return r.Status
}

// isClose says that nothing but the end of the card keeps a run from an answer.
func isClose(r *answer.Answer) bool {
	return r.TooClose() || r.Status == answer.Unknown && r.HasReason(estimator.CodeNearCapacity)
}

// Run finds the answer. Its error is that of a run that could not be made.
func (s *Search) Run() (Result, error) {
	s.verdicts, s.need, s.high = map[int]verdict{}, map[int]int64{}, map[int]int64{}
	res := Result{Schema: Schema, Step: s.Step, Status: answer.Unknown}
	low, above, err := s.bracket()
	if err == nil && low > 0 && above > 0 {
		low, above, err = s.narrow(low, above)
	}
	if err == nil && above > 0 && low >= 0 {
		res.FailsAt, err = s.failure(above)
	}
	res.Batch, res.Runs = max(low, 0), s.runs
	if res.Runs == nil {
		res.Runs = []Run{}
	}
	switch {
	case errors.Is(err, errUnusable):
		last := &s.runs[len(s.runs)-1]
		res.Status = answer.Unknown
		if last.Estimate.Status == answer.Failed {
			res.Status = answer.Failed
		}
		res.Why = fmt.Sprintf("with a batch of %d: %s", last.Batch, whyOf(&last.Estimate))
	case errors.Is(err, errNoEffect):
		n := len(s.runs)
		res.Batch, res.Why = 0, fmt.Sprintf("the batch size has no effect: with %d and %d the command asked for the same memory; does it read that number?", s.runs[n-2].Batch, s.runs[n-1].Batch)
	case err != nil:
		return res, err
	case low > 0:
		res.Status, res.Proven = answer.Fits, above == low+s.Step
		if above == 0 {
			res.Why = fmt.Sprintf("larger ones than %d were not tried: --most", low)
			if s.over() {
				res.Why = fmt.Sprintf("larger ones than %d were not tried: the time of --within was spent", low)
			}
		} else if !res.Proven {
			why := "they differ by less than the interval tells: --exact"
			if s.over() {
				why = "the time of --within was spent"
			}
			res.Why = fmt.Sprintf("%d does not, or not for sure; what lies between was not tried (%s)", above, why)
		}
	case res.FailsAt == s.Step:
		res.Status, res.Proven, res.Why = answer.DoesNotFit, true, "not even the smallest fits"
	default:
		res.Why = "even the smallest is too close to the end of the card to be called"
	}
	res.ExitCode = answer.ExitCode(res.Status)
	return res, nil
}

// bracket doubles, or halves, until one size fits and a larger one does not. low is 0 when none fits, above is 0 when none fails.
func (s *Search) bracket() (low, above int, err error) {
	most := s.Most / s.Step * s.Step
	batch := min(max(s.First/s.Step, 1)*s.Step, most)
	for {
		a, err := s.ask(batch)
		if err != nil {
			return low, above, err
		}
		if a == yes {
			low = batch
			if s.noEffect() {
				return low, above, errNoEffect
			}
			if above > 0 || batch == most || s.over() {
				return low, above, nil
			}
			batch = min(2*batch, most)
			continue
		}
		above = batch
		if low > 0 || batch == s.Step {
			return low, above, nil
		}
		batch = max(batch/2/s.Step, 1) * s.Step
	}
}

// narrow brings the two together. Two of three sizes are where a straight line through the figures so far meets the end of
// the card; each third one, and all where the line points outside, halve what is left, so that a line that misleads costs little.
func (s *Search) narrow(low, above int) (int, int, error) {
	for i := 0; above-low > s.Step && !s.over() && !s.toldApart(low, above); i++ {
		batch := (low + above) / 2 / s.Step * s.Step
		if line := s.line(s.high); i%3 < 2 && line >= low && line < above {
			batch = max(line, low+s.Step)
		}
		a, err := s.ask(batch)
		if err != nil {
			return low, above, err
		}
		if a == yes {
			low = batch
		} else {
			above = batch
		}
	}
	return low, above, nil
}

// over says that the time for the search is spent.
func (s *Search) over() bool { return s.Spent != nil && s.Spent() }

// toldApart says that the two sizes differ by less than the interval of the answer for the lower one can tell.
func (s *Search) toldApart(low, above int) bool {
	if !s.Coarse || low == 0 {
		return false
	}
	before := 0
	for b := range s.need {
		if b < low && b > before {
			before = b
		}
	}
	if before == 0 || s.need[low] <= s.need[before] {
		return false
	}
	bytesPerSize := float64(s.need[low]-s.need[before]) / float64(low-before)
	return float64(above-low)*bytesPerSize < shareOfInterval*float64(s.high[low]-s.need[low])
}

// noEffect says that the last two sizes made the command ask for blocks of the very same sizes.
func (s *Search) noEffect() bool {
	n := len(s.runs)
	return n > 1 && s.runs[n-1].Asked != "" && s.runs[n-1].Asked == s.runs[n-2].Asked
}

// Asked is a digest of the sizes for which the first GPU's allocator was asked, each once, since two runs need not have as many steps; empty where it was not recorded.
func Asked(b *trace.Bundle) string {
	if len(b.Ranks) == 0 || b.Ranks[0].EventsFormat != trace.EventsJSON {
		return ""
	}
	h, err := events.Read(b.Ranks[0].Events)
	if err != nil {
		return ""
	}
	var sizes []uint64
	for _, e := range h.Entries {
		if e.Action == snapshot.ActionAlloc {
			sizes = append(sizes, e.SizeBytes)
		}
	}
	slices.Sort(sizes)
	return fmt.Sprint(slices.Compact(sizes))
}

// line is where the straight line through the two largest sizes with figures meets the end of the card; 0 where there is none.
func (s *Search) line(figures map[int]int64) int {
	last, before := 0, 0
	for b := range figures {
		if b > last {
			last, before = b, last
		} else if b > before {
			before = b
		}
	}
	if before == 0 || figures[last] <= figures[before] {
		return 0
	}
	slope := float64(figures[last]-figures[before]) / float64(last-before)
	return (last + int(min(float64(s.CapacityBytes-figures[last])/slope, 1<<30))) / s.Step * s.Step
}

// failure finds a size from above on that was run and does not fit for sure; above itself may be too close to call. 0 when there is none.
func (s *Search) failure(above int) (int, error) {
	fails := 0
	for b, a := range s.verdicts {
		if a == no && b >= above && (fails == 0 || b < fails) {
			fails = b
		}
	}
	if s.Coarse || s.over() {
		return fails, nil // it is not worth more runs
	}
	most := s.Most / s.Step * s.Step
	for near, gap := above, s.Step; fails == 0 && near < most; gap *= 2 {
		batch := min(max(near+gap, s.line(s.need)+s.Step), most)
		a, err := s.ask(batch)
		if err != nil {
			return 0, err
		}
		if a == no {
			fails = batch
		}
		near = batch
	}
	return fails, nil
}

func whyOf(r *answer.Answer) string {
	for _, x := range r.Reasons {
		if x.Code != estimator.CodeWorkspaceBounded && x.Code != estimator.CodeRunCutShort {
			return r.Status + ": " + x.WordsWithHint()
		}
	}
	return r.Status
}

// Proof says what is known of the sizes above the answer.
func (f *Result) Proof() string {
	switch {
	case !f.Proven:
		return "; " + f.Why
	case f.FailsAt == f.Batch+f.Step:
		return fmt.Sprintf("; %d does not", f.FailsAt)
	case f.FailsAt > 0:
		return fmt.Sprintf("; from %d on it is too close to call, and %d does not fit", f.Batch+f.Step, f.FailsAt)
	}
	return fmt.Sprintf("; from %d on it is too close to call", f.Batch+f.Step)
}
