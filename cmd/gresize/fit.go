package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/events"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/printable"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/quantity"
	"github.com/gresize/gresize/estimator/snapshot"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/spf13/cobra"
)

type fitFlags struct {
	estimateFlags
	from, step, most int
	acceptLow, exact bool
	within           time.Duration
}

func newFitCommand() *cobra.Command {
	var flags fitFlags
	cmd := &cobra.Command{
		Use:   "fit [flags] -- COMMAND [ARGUMENT...]",
		Short: "Find the largest batch size that fits on a GPU, by running it",
		Long: `Runs the command on a virtual GPU with one batch size after the other and says which
is the largest that fits. Nothing is extrapolated: the answer was run and fits, and
a larger one was run and does not, or not for sure. All runs are shown.

Write {} where the batch size goes. Without it, the value of --batch-size,
--batch_size, -b, --train_batch_size, --per_device_train_batch_size and their like
is replaced, or the variable BATCH_SIZE.

The search doubles from the first size until one does not fit, then halves the rest.
It ends earlier where the sizes left differ by less than the interval of an answer can
tell, unless --exact is given, and when the time of --within is spent: the next size
has not been run then, and the answer says so. It also ends where the batch size has no
effect on what the command asks for.
Memory need not grow evenly with the batch: a larger size beyond the answer might
happen to fit again, and is not looked for.

EXIT STATUS
  0  a size was found
  1  an error
  2  wrong usage
  3  not even the smallest fits
  4  unknown: an answer could not be relied on
  5  the command failed`,
		Example: `  gresize fit --gpu A100-40 -- python train.py --batch-size {}
  gresize fit --gpu l40s --step 8 -- python train.py --batch_size 64`,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return fit(cmd, flags, args) },
	}
	flags.add(cmd)
	f := cmd.Flags()
	f.IntVar(&flags.from, "from", 0, "first batch size to try (default: the command's own, or 8)")
	f.IntVar(&flags.step, "step", 1, "batch sizes are multiples of this")
	f.IntVar(&flags.most, "most", 1<<20, "largest batch size to try")
	f.BoolVar(&flags.acceptLow, "accept-low", false, "take an answer of low confidence for one")
	f.BoolVar(&flags.exact, "exact", false, "go on to the last size, however little the sizes differ")
	f.DurationVar(&flags.within, "within", 10*time.Minute, "time for all runs together; the one that has begun ends")
	f.SetInterspersed(false)
	return cmd
}

const (
	defaultFirstBatch = 8
	schemaFit         = "gresize.fit/1"

	// usualRuns is what a search takes; of runs as short as shortRunSeconds nothing need be announced.
	usualRuns       = 8
	shortRunSeconds = 5
	// shareOfInterval: sizes that differ by less than this part of an answer's interval are not told apart.
	shareOfInterval = 0.1
)

// fitResult is what fit prints.
type fitResult struct {
	Schema   string `json:"schema"`
	GPU      string `json:"gpu"`
	Status   string `json:"status"`
	ExitCode int    `json:"exit_code"`
	// Batch is the largest that was run and fits; 0 when none does. FailsAt is a larger one that was run and does not fit.
	Batch   int `json:"batch,omitempty"`
	FailsAt int `json:"fails_at,omitempty"`
	// Proven: Batch fits and Batch + Step does not, or not for sure, both by a run.
	Proven bool     `json:"proven"`
	Step   int      `json:"step"`
	Why    string   `json:"why,omitempty"`
	Runs   []fitRun `json:"runs"`
}

type fitRun struct {
	Batch    int     `json:"batch"`
	Estimate reading `json:"estimate"`
}

func fit(cmd *cobra.Command, flags fitFlags, args []string) error {
	if len(args) == 0 {
		return usageError(errors.New("fit: no command given; write it after --"))
	}
	if flags.step < 1 || flags.from < 0 || flags.most < flags.step {
		return usageError(errors.New("fit: --step and --from must be positive, and --most at least --step"))
	}
	if flags.from > flags.most {
		return usageError(fmt.Errorf("fit: --from %d is above --most %d: nothing would be tried", flags.from, flags.most))
	}
	if flags.within <= 0 {
		return usageError(errors.New("fit: --within must be positive"))
	}
	args, err := flags.check(cmd, args)
	if err != nil {
		return err
	}
	profile, err := gpu.Load(flags.gpu)
	if err != nil {
		return usageError(err)
	}
	first := flags.from
	if first == 0 {
		if first = batchOf(args); first == 0 {
			first = defaultFirstBatch
		}
	}
	env := flags.env()
	if _, _, err := withBatch(args, env, first); err != nil {
		return usageError(fmt.Errorf("fit: %w", err))
	}
	progress := newProgressLine(cmd.ErrOrStderr(), flags.progress)
	s := fitSearch{step: flags.step, first: first, most: flags.most, capacity: profile.Total.Bytes, acceptLow: flags.acceptLow, coarse: !flags.exact}
	begin := time.Now()
	s.spent = func() bool { return time.Since(begin) >= flags.within }
	var base followed
	s.try = func(batch int) (reading, error) {
		command, newEnv, err := withBatch(args, env, batch)
		if err != nil {
			return reading{}, err
		}
		progress.begin(fmt.Sprintf("batch %d: ", batch))
		o := base.options(probe.Options{Command: command, Env: newEnv, GPU: profile})
		result, err := flags.run(cmd, o, progress)
		if err != nil {
			return reading{}, err
		}
		base.conclude(&result, o)
		r := newReading(&result, profile)
		r.asked = sizesAsked(result.Bundle)
		if err := cmd.Context().Err(); err != nil {
			return r, err
		}
		if progress == nil || !progress.terminal { // on a terminal, the progress was seen
			fmt.Fprintf(cmd.ErrOrStderr(), "gresize: batch %d: %s, %.1f s\n", batch, fitAnswerOf(&r), r.WallSeconds)
		}
		if len(s.runs) == 0 && r.WallSeconds > shortRunSeconds {
			fmt.Fprintf(cmd.ErrOrStderr(), "gresize: a search takes about %d runs, %.0f s at this pace, and ends after %s (--within)\n", usualRuns, usualRuns*r.WallSeconds, flags.within)
		}
		return r, nil
	}
	res, err := s.search()
	if errors.Is(err, context.Canceled) {
		return errors.New("fit: interrupted; nothing is known yet")
	}
	if err != nil {
		return fmt.Errorf("fit: %w", err)
	}
	res.GPU = profile.ID
	if flags.json {
		err = printJSON(cmd, res)
	} else {
		err = res.print(cmd.OutOrStdout(), profile)
	}
	if err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	if res.ExitCode != exitOK {
		return &statusError{code: res.ExitCode}
	}
	return nil
}

// fitAnswer is what one run says about its batch size.
type fitAnswer int

const (
	fitYes fitAnswer = iota
	fitClose
	fitNo
	fitUnusable
)

// fitSearch looks for the largest batch size that fits. It takes nothing for granted that was not run.
type fitSearch struct {
	step, first, most int
	capacity          int64
	acceptLow         bool
	// coarse ends a search where the interval can tell no more, and spent where its time is; both may be left out.
	coarse bool
	spent  func() bool
	try    func(batch int) (reading, error)

	runs   []fitRun
	answer map[int]fitAnswer
	// need and high are the point and the upper end by batch size, of those that did not meet the end of the card.
	need, high map[int]int64
}

// errUnusable ends a search in which a run gave no answer.
var errUnusable = errors.New("a run gave no answer")

// errNoEffect ends a search whose batch sizes change nothing.
var errNoEffect = errors.New("the batch size has no effect")

func (s *fitSearch) ask(batch int) (fitAnswer, error) {
	if a, known := s.answer[batch]; known {
		return a, nil
	}
	r, err := s.try(batch)
	if err != nil {
		return fitUnusable, err
	}
	s.runs = append(s.runs, fitRun{batch, r})
	a := s.judge(&r)
	s.answer[batch] = a
	if largest, ok := r.Largest(); ok && r.Fits {
		s.need[batch] = largest.ComfortableBytes
		if a == fitYes {
			s.high[batch] = largest.ComfortableHighBytes
		}
	}
	if a == fitUnusable {
		return a, errUnusable
	}
	return a, nil
}

func (s *fitSearch) judge(r *reading) fitAnswer {
	switch {
	case r.Status == statusFits:
		return fitYes
	case r.Status == statusDoesNotFit:
		return fitNo
	case isClose(r):
		return fitClose
	case s.acceptLow && r.Confidence == estimator.Low && r.Fits && r.Headroom != nil:
		if r.Headroom.Bytes < 0 {
			return fitClose
		}
		return fitYes
	}
	return fitUnusable
}

// fitAnswerOf is what a run says about its size, in a word.
func fitAnswerOf(r *reading) string {
	if isClose(r) {
		return "too close"
	}
	return r.Status
}

// isClose says that nothing but the end of the card keeps a run from an answer.
func isClose(r *reading) bool {
	return r.tooClose() || r.Status == statusUnknown && slices.ContainsFunc(r.Reasons, func(x estimator.Reason) bool { return x.Code == estimator.CodeNearCapacity })
}

// search finds the answer. Its error is that of a run that could not be made.
func (s *fitSearch) search() (fitResult, error) {
	s.answer, s.need, s.high = map[int]fitAnswer{}, map[int]int64{}, map[int]int64{}
	res := fitResult{Schema: schemaFit, Step: s.step, Status: statusUnknown}
	low, above, err := s.bracket()
	if err == nil && low > 0 && above > 0 {
		low, above, err = s.narrow(low, above)
	}
	if err == nil && above > 0 && low >= 0 {
		res.FailsAt, err = s.failure(above)
	}
	res.Batch, res.Runs = max(low, 0), s.runs
	if res.Runs == nil {
		res.Runs = []fitRun{}
	}
	switch {
	case errors.Is(err, errUnusable):
		last := &s.runs[len(s.runs)-1]
		res.Status = statusUnknown
		if last.Estimate.Status == statusFailed {
			res.Status = statusFailed
		}
		res.Why = fmt.Sprintf("with a batch of %d: %s", last.Batch, whyOf(&last.Estimate))
	case errors.Is(err, errNoEffect):
		n := len(s.runs)
		res.Batch, res.Why = 0, fmt.Sprintf("the batch size has no effect: with %d and %d the command asked for the same memory; does it read that number?", s.runs[n-2].Batch, s.runs[n-1].Batch)
	case err != nil:
		return res, err
	case low > 0:
		res.Status, res.Proven = statusFits, above == low+s.step
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
	case res.FailsAt == s.step:
		res.Status, res.Proven, res.Why = statusDoesNotFit, true, "not even the smallest fits"
	default:
		res.Why = "even the smallest is too close to the end of the card to be called"
	}
	res.ExitCode = exitOf[res.Status]
	return res, nil
}

// bracket doubles, or halves, until one size fits and a larger one does not. low is 0 when none fits, above is 0 when none fails.
func (s *fitSearch) bracket() (low, above int, err error) {
	most := s.most / s.step * s.step
	batch := min(max(s.first/s.step, 1)*s.step, most)
	for {
		a, err := s.ask(batch)
		if err != nil {
			return low, above, err
		}
		if a == fitYes {
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
		if low > 0 || batch == s.step {
			return low, above, nil
		}
		batch = max(batch/2/s.step, 1) * s.step
	}
}

// narrow brings the two together. Two of three sizes are where a straight line through the figures so far meets the end of
// the card; each third one, and all where the line points outside, halve what is left, so that a line that misleads costs little.
func (s *fitSearch) narrow(low, above int) (int, int, error) {
	for i := 0; above-low > s.step && !s.over() && !s.toldApart(low, above); i++ {
		batch := (low + above) / 2 / s.step * s.step
		if line := s.line(s.high); i%3 < 2 && line >= low && line < above {
			batch = max(line, low+s.step)
		}
		a, err := s.ask(batch)
		if err != nil {
			return low, above, err
		}
		if a == fitYes {
			low = batch
		} else {
			above = batch
		}
	}
	return low, above, nil
}

// over says that the time for the search is spent.
func (s *fitSearch) over() bool { return s.spent != nil && s.spent() }

// toldApart says that the two sizes differ by less than the interval of the answer for the lower one can tell.
func (s *fitSearch) toldApart(low, above int) bool {
	if !s.coarse || low == 0 {
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
func (s *fitSearch) noEffect() bool {
	n := len(s.runs)
	return n > 1 && s.runs[n-1].Estimate.asked != "" && s.runs[n-1].Estimate.asked == s.runs[n-2].Estimate.asked
}

// sizesAsked is a digest of the sizes for which the first GPU's allocator was asked, each once, since two runs need not have as many steps; empty where it was not recorded.
func sizesAsked(b *trace.Bundle) string {
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
func (s *fitSearch) line(figures map[int]int64) int {
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
	return (last + int(min(float64(s.capacity-figures[last])/slope, 1<<30))) / s.step * s.step
}

// failure finds a size from above on that was run and does not fit for sure; above itself may be too close to call. 0 when there is none.
func (s *fitSearch) failure(above int) (int, error) {
	fails := 0
	for b, a := range s.answer {
		if a == fitNo && b >= above && (fails == 0 || b < fails) {
			fails = b
		}
	}
	if s.coarse || s.over() {
		return fails, nil // it is not worth more runs
	}
	most := s.most / s.step * s.step
	for near, gap := above, s.step; fails == 0 && near < most; gap *= 2 {
		batch := min(max(near+gap, s.line(s.need)+s.step), most)
		a, err := s.ask(batch)
		if err != nil {
			return 0, err
		}
		if a == fitNo {
			fails = batch
		}
		near = batch
	}
	return fails, nil
}

func whyOf(r *reading) string {
	for _, x := range r.Reasons {
		if x.Code != estimator.CodeWorkspaceBounded && x.Code != estimator.CodeRunCutShort {
			return r.Status + ": " + x.WordsWithHint()
		}
	}
	return r.Status
}

func (f *fitResult) print(out io.Writer, p *gpu.Profile) error {
	var err error
	switch {
	case f.Batch > 0 && f.Status == statusFits:
		_, err = fmt.Fprintf(out, "%d: the largest batch that fits on %s (%s)%s\n", f.Batch, p.Name, quantity.GiB(p.Total.Bytes), f.proof())
	case f.Batch > 0:
		_, err = fmt.Fprintf(out, "%s on %s: %d fits, but %s\n", f.Status, p.Name, f.Batch, printable.Text(f.Why))
	default:
		_, err = fmt.Fprintf(out, "%s on %s (%s): %s\n", f.Status, p.Name, quantity.GiB(p.Total.Bytes), printable.Text(f.Why))
	}
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  BATCH\tANSWER\tRESERVED\tNEEDED\tAT MOST\tHEADROOM\tCONFIDENCE\tSECONDS")
	for _, run := range f.Runs {
		r := &run.Estimate
		c := r.cells()
		fmt.Fprintf(w, "  %d\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f\n", run.Batch, fitAnswerOf(r), c[0], c[1], c[2], c[3], r.Confidence, r.WallSeconds)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	shown := f.decisive()
	shared := sharedReasons{of: "batch", all: len(shown)}
	for _, run := range shown {
		shared.add(run.Batch, run.Estimate.Reasons)
	}
	return shared.print(out, "  ")
}

// decisive are the runs that the answer rests on: the size that fits and the first that does not, and where none fits the last.
func (f *fitResult) decisive() (runs []fitRun) {
	for i, run := range f.Runs {
		if f.Batch > 0 && (run.Batch == f.Batch || run.Batch == f.FailsAt || f.FailsAt != f.Batch+f.Step && run.Batch == f.Batch+f.Step) || (f.Batch == 0 || f.Status != statusFits) && i == len(f.Runs)-1 {
			runs = append(runs, run)
		}
	}
	slices.SortFunc(runs, func(a, b fitRun) int { return a.Batch - b.Batch })
	return runs
}

// proof says what is known of the sizes above the answer.
func (f *fitResult) proof() string {
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
