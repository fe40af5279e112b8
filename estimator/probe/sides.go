package probe

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/probe/private"
	"github.com/gresize/gresize/estimator/probe/sandbox"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu"
)

// withOtherSide runs the command once more where it went by values that nobody
// computed, with the opposite answers, so that the estimate has both ends. What
// a person runs without a sandbox is run once: it may leave traces.
func (r *run) withOtherSide(ctx context.Context, first Result, begin time.Time) (Result, error) {
	left := r.options.Budget - time.Since(begin)
	if r.options.NoSandbox || r.options.Recording.RunMode() != trace.ModeVGPU || ctx.Err() != nil || left < r.ranFor || !vgpu.DependsOnValues(first.Bundle) {
		return first, nil
	}
	dir, err := private.Make("", privatePrefix)
	if err != nil {
		return Result{}, fmt.Errorf("probe: private directory: %w", err)
	}
	defer dir.Remove()
	second := &run{options: r.options, private: dir.Path, values: vgpu.PolicyHigh}
	second.options.Budget = left
	if err := second.execute(ctx); err != nil {
		return first, nil // the one side that is known stands, with its reason
	}
	if r.seen != nil && second.seen != nil {
		r.seen = &sandbox.Seen{Read: append(r.seen.Read, second.seen.Read...), Asked: append(r.seen.Asked, second.seen.Asked...), Listed: append(r.seen.Listed, second.seen.Listed...)}
	} else {
		r.seen = nil // what one side read is not known
	}
	other, err := second.conclude()
	if err != nil {
		return first, nil
	}
	base, beside := first, other
	if !ended(first) && ended(other) {
		base, beside = other, first // the answers of one side made the program fail, which a real GPU's may not
	}
	if err := vgpu.AddOtherSide(base.Bundle, beside.Bundle); err != nil {
		base.Estimate.Confidence = base.Estimate.Confidence.AtMost(estimator.Low)
		return base, nil
	}
	if err := base.Bundle.Validate(); err != nil {
		return Result{}, fmt.Errorf("probe: make the bundle: %w", err)
	}
	base.Estimate = evaluate(r.options.Engine, base.Bundle, r.options.GPU)
	return base, nil
}

func ended(r Result) bool {
	return slices.Contains([]trace.Outcome{trace.Stopped, trace.Completed}, r.Bundle.Manifest.Outcome)
}
