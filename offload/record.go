package offload

import (
	"errors"
	"fmt"

	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/analysis/planning"
	"github.com/gresize/gresize/estimator/analysis/planning/layout"
	"github.com/gresize/gresize/estimator/analysis/utilization"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
)

// record is what a run on the virtual GPU told about one process.
type record struct {
	program *replay.Program
	lives   *planning.Lifetimes
	saved   *saved
	torch   string
	gpu     string
	places  *planning.Places
	blockOf []int32 // by request: 1 more than the block that it made
	times   times
}

// read takes the parts of a bundle that a plan is made from. card is the one whose time is reckoned.
func read(b *trace.Bundle, card *gpu.Profile) (*record, error) {
	if len(b.Ranks) != 1 {
		return nil, fmt.Errorf("the program ran as %d processes with a GPU; a plan is for one", len(b.Ranks))
	}
	p, err := replay.FromBundle(b, replay.OpenOptions{}, "the recorded run")
	if err != nil {
		return nil, err
	}
	if len(p.Start) > 0 {
		return nil, errors.New("the record begins in mid-run")
	}
	lives, err := planning.OfProgram(p)
	if err != nil {
		return nil, err
	}
	data := b.Ranks[0].Parts[trace.PartSaved]
	if len(data) == 0 {
		return nil, errors.New("autograd saved no tensor on the card: there is no backward pass to plan for, or torch was there before gresize")
	}
	s, err := readSaved(data)
	if err != nil {
		return nil, err
	}
	r := newRecord(p, lives, s)
	r.torch, r.gpu = b.Manifest.Versions.Torch, card.Name
	if stream, err := utilization.Read(b.Ranks[0].Parts[trace.PartOperators]); err == nil {
		r.times = newTimes(s, stream, card)
	}
	return r, nil
}

func newRecord(p *replay.Program, lives *planning.Lifetimes, s *saved) *record {
	return &record{program: p, lives: lives, saved: s, places: planning.NewPlaces(p), blockOf: lives.MadeBy()}
}

// outside is the largest sum of live blocks before the first iteration: what no plan lowers.
func (r *record) outside() int64 {
	to, err := r.places.Request(r.saved.iterations[0].from)
	if err != nil {
		return 0
	}
	var blocks []layout.Block
	for _, b := range r.lives.Blocks {
		if b.Start <= int64(to) {
			b.End = min(b.End, int64(to)+1)
			blocks = append(blocks, b)
		}
	}
	return int64(layout.LiveBound(blocks))
}

// peak is the largest sum of live blocks.
func (r *record) peak() int64 { return int64(layout.LiveBound(r.lives.Blocks)) }

// times are the seconds of an iteration between its events, by the roofline of the operators between them. Plans are made by the card's time alone, which is the same
// for each run of a program: the host's is measured, and another one each time.
type times struct {
	// step is the time of the step that was looked at, on the card; its bounds count the host, too.
	step utilization.Interval
	// gaps are, by the name of an iteration, the seconds before each event, and one more for what comes after the last.
	gaps map[uint32][]float64
}

// newTimes lays the operators of the step that was looked at between the events of its iterations.
func newTimes(s *saved, stream *utilization.Stream, card *gpu.Profile) times {
	calls := utilization.CallSeconds(stream, card)
	if calls == nil {
		return times{}
	}
	advice := utilization.Estimate(stream, card)
	t := times{gaps: map[uint32][]float64{}}
	sums := make([]float64, len(calls)+1)
	for i, seconds := range calls {
		sums[i+1] = sums[i] + seconds
	}
	if sums[len(calls)] <= 0 {
		return t
	}
	t.step = advice.StepSeconds
	t.step.Value = sums[len(calls)]
	t.step.Low, t.step.High = min(t.step.Low, t.step.Value), max(t.step.High, t.step.Value)
	for _, it := range s.iterations {
		before, whole := max(it.callsFrom, 0), it.saves() > 0
		gaps := make([]float64, 0, len(it.events)+1)
		gap := func(to int) {
			if to < before || to >= len(sums) {
				whole = false
				return
			}
			gaps = append(gaps, sums[to]-sums[before])
			before = to
		}
		for i := range it.events {
			gap(it.events[i].calls)
		}
		end := it.callsTo
		if end < before {
			end = len(calls) // the look at the step ended with the iteration
		}
		if gap(end); whole {
			t.gaps[it.last()] = gaps
		}
	}
	return t
}
