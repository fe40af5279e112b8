package offload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/analysis/planning/swap"
	"github.com/gresize/gresize/estimator/analysis/utilization"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/trace"
)

// recordedOn is the card on which a program is recorded that its own card is too small for.
const recordedOn = int64(1) << 40

// A plan is made for all that the allocator may take, then for a step less, until PyTorch's allocator is foreseen to hold it: its segments take more than the
// blocks in them.
const (
	planStep    = 0.98
	mostPlanned = 40
	// mostFound is how many plans are compared.
	mostFound = 6
	// mostTried bounds the runs with a plan: what was foreseen is found wrong there where the program does not do the same again.
	mostTried = 6
	// mostFast is how many of them are the fastest, whatever serves their blocks.
	mostFast = 3
)

// Fitted is how a program fits a target.
type Fitted struct {
	// Before is the run as it is, After the one on a card of the target's size; its estimate is zero where none was needed or found.
	Before, After estimator.Estimate
	TargetBytes   int64
	// Plan is nil where the program fits as it is.
	Plan *Plan
	// Carried is what the second run did.
	Carried Carried
	// SmallestBytes is about the smallest target that a plan is foreseen to fit; 0 where that was not looked for.
	SmallestBytes int64
	// Stays is what of an optimizer's state is not moved, and why; empty where nothing is known to stay.
	Stays string
	// StepSeconds is the time of a training step by the roofline of its operators; zero where it is not known.
	StepSeconds utilization.Interval
	// Planning is how long it took to plan, without the runs.
	Planning time.Duration
	// Tried is how many runs were made with a plan.
	Tried int
}

// FailedError says that the program did not come to an answer without a plan.
type FailedError struct{ Result probe.Result }

func (e *FailedError) Error() string {
	reason := "it is not known why"
	if r := e.Result.Estimate.Reasons; len(r) > 0 {
		reason = r[0].Detail
	}
	return "the program could not be recorded: " + reason
}

// Request is what is asked of Fit.
type Request struct {
	// Run names the command, the card that is modelled and the limits of a run on the virtual GPU.
	Run probe.Options
	// TargetBytes is the memory of the card that the program may take. Where it is 0, it is Share of what the program needs as it is.
	TargetBytes int64
	Share       float64
	// Slowdown, where it is not 0, asks for the smallest target instead that makes an iteration at most so many times longer; 1: no longer.
	Slowdown float64
	Link     swap.Link
	// Expandable lets the job's allocator use expandable segments; where they suffice, nothing is moved.
	Expandable bool
	// Tell is told what is being done.
	Tell func(string)
}

// Fit records a program on the virtual GPU, plans what goes to host memory, and runs it once more, with the plan, on a card of the target's size.
func Fit(ctx context.Context, q Request) (*Fitted, error) {
	q.Run.Quick = true
	recording := q.Run
	recording.CapacityBytes = max(q.Run.GPU.Total.Bytes, recordedOn)
	recording.Recording.Parts = []trace.Part{trace.PartOperators, trace.PartSaved}
	q.Tell("recording a run")
	result, err := probe.Run(ctx, recording)
	if err != nil {
		return nil, err
	}
	f := &Fitted{Before: result.Estimate}
	largest, ok := result.Estimate.Largest()
	if !ok || result.Estimate.Confidence == estimator.Unknown || !ran(result) {
		return f, &FailedError{result}
	}
	if q.TargetBytes == 0 {
		q.TargetBytes = int64(q.Share * float64(largest.ComfortableBytes))
	}
	f.TargetBytes = q.TargetBytes
	allocatorBytes := q.TargetBytes - largest.OutsideBytes
	switch {
	case q.Slowdown > 0:
	case largest.ComfortableHighBytes <= q.TargetBytes:
		return f, nil
	case allocatorBytes <= 0:
		return f, &NeedError{NeedBytes: largest.OutsideBytes, AllocatorBytes: q.TargetBytes, Outside: true}
	}
	r, err := read(result.Bundle, q.Run.GPU)
	if err != nil {
		return f, err
	}
	f.StepSeconds, f.Stays = r.times.step, r.stays()
	q.Tell("planning")
	begin := time.Now()
	var plans []*Plan
	if q.Slowdown > 0 {
		plans, err = r.least(ctx, q, largest.OutsideBytes)
	} else {
		plans, err = r.plans(ctx, q, allocatorBytes)
		if need := (*NeedError)(nil); errors.As(err, &need) && !need.Outside {
			q.Tell("looking for the smallest target")
			if smallest, none := r.smallest(ctx, q, largest.OutsideBytes); none == nil {
				f.SmallestBytes = smallest
			}
		}
	}
	f.Planning = time.Since(begin)
	for i, plan := range plans[:min(len(plans), mostTried)] {
		f.TargetBytes = plan.TargetBytes
		q.Tell(fmt.Sprintf("running with a plan, %d", i+1))
		f.Tried++
		var fits bool
		if fits, err = f.try(ctx, q, plan); fits || err != nil {
			break
		}
		err = fmt.Errorf("with a plan for %d bytes of live blocks it does not run on a card of %d bytes, though its recorded run would have", plan.AllocatorBytes, plan.TargetBytes)
	}
	return f, err
}

// try runs the program with a plan on a card of the target's size, and says whether it ran there.
func (f *Fitted) try(ctx context.Context, q Request, plan *Plan) (fits bool, err error) {
	o := q.Run
	o.Recording.Parts = []trace.Part{trace.PartSaved}
	o.CapacityBytes = plan.TargetBytes
	if o.Env == nil {
		o.Env = os.Environ()
	}
	o.Env = plan.Environment(o.Env)
	if o.Plan, err = json.Marshal(plan); err != nil {
		return false, err
	}
	result, err := probe.Run(ctx, o)
	if err != nil {
		return false, err
	}
	carried := carriedOut(result.Bundle)
	// What fits once PyTorch has given back its cache runs, too; the estimate's reason says so.
	met := result.Estimate.HasReason
	switch fits := ran(result) && (result.Estimate.Fits || met(estimator.CodeNearCapacity) && !met(estimator.CodeOutOfMemory)); {
	case fits && (carried.Followed > 0 || plan.Moves() == 0) && carried.RegionBytes == plan.RegionBytes():
		f.Plan, f.After, f.Carried = plan, result.Estimate, carried
		return true, nil
	case !fits && result.Estimate.Fits:
		return false, fmt.Errorf("with a plan the program ends with an error of its own: %w", &FailedError{result})
	}
	return false, nil
}

// plans are those that the recorded run is foreseen to fit with, the best first: those with which the allocator never has to give back what it kept.
func (r *record) plans(ctx context.Context, q Request, allocatorBytes int64) (found []*Plan, err error) {
	config := r.config(q)
	nothing := r.nothing(q)
	if f, err := r.foresee(nothing, config, allocatorBytes); err == nil && f.roomy {
		found = append(found, nothing)
	}
	var tight, failed []*Plan
	peaks := map[*Plan]int64{}
	bytes := float64(allocatorBytes)
	for range mostPlanned {
		plan, err := r.plan(ctx, Options{TargetBytes: q.TargetBytes, AllocatorBytes: int64(bytes), Link: q.Link})
		if need := (*NeedError)(nil); errors.As(err, &need) && len(found)+len(tight)+len(failed) > 0 {
			break // a plan for more was possible
		}
		if err != nil {
			return found, err
		}
		bytes *= planStep
		if plan.Moves() == 0 && len(found) > 0 {
			continue
		}
		plan.ExpandableSegments = q.Expandable
		f, err := r.foresee(plan, config, allocatorBytes)
		if err != nil {
			return found, err
		}
		if f.roomy {
			found, peaks[plan] = append(found, plan), f.peakBytes
			if len(found) == mostFound {
				break
			}
		} else if f.fits {
			tight = append(tight, plan)
		} else {
			failed = append(failed, plan)
		}
	}
	if found = append(inOrder(found, peaks), tight...); len(found) == 0 {
		smallest := int64(math.MaxInt64)
		for _, plan := range failed[max(len(failed)-mostTried, 0):] { // those for least
			f, err := r.foresee(plan, config, replay.Unlimited)
			if err != nil {
				return nil, err
			}
			smallest = min(smallest, f.peakBytes)
		}
		return nil, &NeedError{NeedBytes: smallest, AllocatorBytes: allocatorBytes, Segments: true}
	}
	return found, nil
}

// inOrder puts the fastest plans first, for a plan for less is at times the faster one; of those that are as fast, the one that leaves most room. Behind them come those without
// regions: how blocks lie in regions changes with every request that comes otherwise than it was foreseen.
func inOrder(found []*Plan, peaks map[*Plan]int64) []*Plan {
	stall := func(p *Plan) int64 { // in fiftieths of an iteration
		return 50 * (p.TotalNanos - p.BaseNanos) / max(p.BaseNanos, 1)
	}
	ordered := slices.Clone(found)
	slices.SortStableFunc(ordered, func(a, b *Plan) int {
		return cmp.Or(cmp.Compare(stall(a), stall(b)), cmp.Compare(peaks[a], peaks[b]))
	})
	first, rest := ordered[:min(mostFast, len(ordered))], ordered[min(mostFast, len(ordered)):]
	slices.SortStableFunc(rest, func(a, b *Plan) int { return cmp.Compare(len(a.Regions), len(b.Regions)) })
	return slices.Concat(first, rest)
}

// config is the allocator's in the job.
func (r *record) config(q Request) allocator.Config {
	config := r.program.Config
	config.ExpandableSegments = config.ExpandableSegments || q.Expandable
	return config
}

// mostLevels is how many plans, each for planStep of the one before, are looked at for the smallest target: down to a fifth of what lives at once.
const mostLevels = 80

// least are the plans that make an iteration at most q.Slowdown times longer, those with which the allocator is foreseen to take least first.
func (r *record) least(ctx context.Context, q Request, outsideBytes int64) (found []*Plan, err error) {
	if r.times.step.Value <= 0 && !math.IsInf(q.Slowdown, 1) {
		return nil, errors.New("how long the kernels of a step take is not known, so that no slowdown can be told: give a target")
	}
	config := r.config(q)
	bytes := float64(r.peak())
	for range mostLevels {
		plan, err := r.plan(ctx, Options{AllocatorBytes: int64(bytes), Link: q.Link})
		if need := (*NeedError)(nil); errors.As(err, &need) {
			break
		}
		if err != nil {
			return nil, err
		}
		bytes *= planStep
		if float64(plan.TotalNanos) > q.Slowdown*float64(plan.BaseNanos) {
			continue
		}
		program, err := r.with(plan)
		if err != nil {
			return nil, err
		}
		f, err := run(program, config, replay.Unlimited)
		if err != nil {
			return nil, err
		}
		plan.ExpandableSegments, plan.TargetBytes = q.Expandable, f.peakBytes+outsideBytes
		found = append(found, plan)
	}
	byTarget := func(a, b *Plan) int { return cmp.Compare(a.TargetBytes, b.TargetBytes) }
	slices.SortStableFunc(found, byTarget)
	tried := found[:min(len(found), mostTried)]
	for _, plan := range tried {
		f, err := r.foresee(plan, config, replay.Unlimited)
		if err != nil {
			return nil, err
		}
		plan.TargetBytes = f.peakBytes + outsideBytes
	}
	slices.SortStableFunc(tried, byTarget)
	if len(found) == 0 {
		return nil, fmt.Errorf("no plan makes a step at most %g times longer", q.Slowdown)
	}
	return found, nil
}

// smallest is about the smallest target that a plan is foreseen to fit, however long an iteration takes with it.
func (r *record) smallest(ctx context.Context, q Request, outsideBytes int64) (int64, error) {
	q.Slowdown = math.Inf(1)
	found, err := r.least(ctx, q, outsideBytes)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return found[0].TargetBytes, nil
}

// ran says whether a run came to its end, or to where it was stopped.
func ran(r probe.Result) bool {
	return slices.Contains([]trace.Outcome{trace.Completed, trace.Stopped}, r.Bundle.Manifest.Outcome)
}

func carriedOut(b *trace.Bundle) (c Carried) {
	for i := range b.Ranks {
		if s, err := readSaved(b.Ranks[i].Parts[trace.PartSaved]); err == nil && s.carried != nil {
			c = *s.carried
		}
	}
	return c
}
