package offload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/planning/swap"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/utilization"
)

// recordedOn is the card on which a program is recorded that its own card is too small for.
const recordedOn = int64(1) << 40

// shares of what the allocator may take for which a plan is made, one after the other until the program runs within the target: PyTorch's segments take more
// than the blocks in them, and the program may hold on to a tensor that the plan sent away.
var shares = []float64{0.98, 0.94, 0.90, 0.85, 0.79, 0.72, 0.64}

// Fitted is how a program fits a target.
type Fitted struct {
	// Before is the run without a plan, After the one that carried the plan out on a card of the target's size; its estimate is zero where none was needed or found.
	Before, After estimator.Estimate
	// Plan is nil where the program fits as it is.
	Plan *Plan
	// Carried is what the second run did.
	Carried Carried
	// StepSeconds is the time of a training step by the roofline of its operators; zero where it is not known.
	StepSeconds utilization.Interval
	// Tries is how many plans were carried out.
	Tries int
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

// Fit runs a program on the virtual GPU, plans what goes to host memory, and runs it again with the plan on a card of targetBytes, until it runs there. o names the
// command, the card that is modelled and the run's limits. tell is told what is being done.
func Fit(ctx context.Context, o probe.Options, targetBytes int64, link swap.Link, tell func(string)) (*Fitted, error) {
	o.Quick = true
	recording := o
	recording.CapacityBytes = max(o.GPU.Total.Bytes, recordedOn)
	recording.Recording.Parts = []trace.Part{trace.PartOperators, trace.PartSaved}
	tell("recording a run")
	result, err := probe.Run(ctx, recording)
	if err != nil {
		return nil, err
	}
	f := &Fitted{Before: result.Estimate}
	largest, ok := result.Estimate.Largest()
	if !ok || result.Estimate.Confidence == estimator.Unknown || !ran(result) {
		return f, &FailedError{result}
	}
	if largest.ComfortableHighBytes <= targetBytes {
		return f, nil
	}
	r, err := read(result.Bundle)
	if err != nil {
		return f, err
	}
	f.StepSeconds = stepSeconds(result.Bundle, o.GPU)
	o.Recording.Parts = []trace.Part{trace.PartSaved}
	o.CapacityBytes = targetBytes
	var last error
	for i, share := range shares {
		allocator := int64(float64(targetBytes-largest.OutsideBytes) * share)
		if allocator <= 0 {
			return f, &NeedError{NeedBytes: largest.OutsideBytes, AllocatorBytes: targetBytes, Outside: true}
		}
		tell(fmt.Sprintf("planning, %d of %d", i+1, len(shares)))
		plan, err := r.plan(ctx, Options{TargetBytes: targetBytes, AllocatorBytes: allocator, Link: link, StepSeconds: f.StepSeconds.Value})
		if err != nil {
			if need := (*NeedError)(nil); errors.As(err, &need) && last != nil {
				return f, last
			}
			return f, err
		}
		if o.Plan, err = json.Marshal(plan); err != nil {
			return f, err
		}
		tell(fmt.Sprintf("running with the plan, %d of %d", i+1, len(shares)))
		result, err := probe.Run(ctx, o)
		if err != nil {
			return f, err
		}
		f.Tries++
		if carried := carriedOut(result.Bundle); ran(result) && result.Estimate.Fits && carried.Followed > 0 {
			f.Plan, f.After, f.Carried = plan, result.Estimate, carried
			return f, nil
		}
		last = fmt.Errorf("with a plan for %d bytes of live blocks it does not run on a card of %d", allocator, targetBytes)
		if !ran(result) && result.Estimate.Fits {
			last = fmt.Errorf("with a plan the program ends with an error of its own: %w", &FailedError{result})
			break
		}
	}
	return f, last
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

func stepSeconds(b *trace.Bundle, card *gpu.Profile) utilization.Interval {
	s, err := utilization.Read(b.Ranks[0].Parts[trace.PartOperators])
	if err != nil {
		return utilization.Interval{}
	}
	if a := utilization.Estimate(s, card); a.Confidence != estimator.Unknown {
		return a.StepSeconds
	}
	return utilization.Interval{}
}
