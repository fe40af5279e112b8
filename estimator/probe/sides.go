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

const (
	// quickShare is how much sooner, at least, a program of JAX comes to its first answer than to where it is stopped.
	quickShare = 2
	// leastSideShare is what another side takes at least of the time of the first, however much of that was compiling: the compiler has many threads.
	leastSideShare = 4
)

// withOtherSides runs the command once more where it went by values that nobody
// computed, with the opposite answers, so that the estimate has both ends; and a
// third time, with answers between them, where an end made the program fail or
// the ends tell of no difference. What a person runs without a sandbox is run
// once: it may leave traces.
func (r *run) withOtherSides(ctx context.Context, first Result, begin time.Time) (Result, error) {
	if r.options.NoSandbox || r.options.Recording.RunMode() != trace.ModeVGPU || !vgpu.DependsOnValues(first.Bundle) {
		return first, nil
	}
	results := []Result{first}
	quick := vgpu.LowOnEverySide(first.Bundle)
	for _, values := range []string{vgpu.PolicyHigh, vgpu.PolicyHalf} {
		if values == vgpu.PolicyHalf && !slices.ContainsFunc(results, failed) && !vgpu.EndsAreNear(first.Bundle, results[1].Bundle) {
			break
		}
		other, err := r.side(ctx, values, first.Bundle, quick, begin)
		if err != nil {
			return Result{}, err
		}
		if other == nil {
			break // what is known stands, with its reason
		}
		results = append(results, *other)
	}
	// The answers of one side may make a program fail which a real GPU's do not.
	chosen := max(slices.IndexFunc(results, ended), 0)
	base := results[chosen]
	for i, beside := range results {
		if i == chosen {
			continue
		}
		if err := vgpu.AddOtherSide(base.Bundle, beside.Bundle); err != nil {
			base.Estimate.Confidence = base.Estimate.Confidence.AtMost(estimator.Low)
			return base, nil
		}
	}
	if len(results) == 1 {
		return base, nil
	}
	if err := base.Bundle.Validate(); err != nil {
		return Result{}, fmt.Errorf("probe: make the bundle: %w", err)
	}
	base.Estimate = evaluate(r.options.Engine, base.Bundle, r.options.GPU)
	return base, nil
}

// side is a run of the command with another answer to what only a kernel could say, quick to its first answer; nil where there is no time for it, or it
// could not be made.
func (r *run) side(ctx context.Context, values string, first *trace.Bundle, quick bool, begin time.Time) (*Result, error) {
	left := r.options.Budget - time.Since(begin)
	if ctx.Err() != nil || left < r.sideNeeds(first, quick) {
		return nil, nil
	}
	dir, err := private.Make("", privatePrefix)
	if err != nil {
		return nil, fmt.Errorf("probe: private directory: %w", err)
	}
	defer dir.Remove()
	other := &run{options: r.options, private: dir.Path, values: values, compiled: compiled(r.reportDir())}
	other.options.Budget = left
	other.options.Quick = quick || other.options.Quick
	if err := other.execute(ctx); err != nil {
		return nil, nil
	}
	if r.seen != nil && other.seen != nil {
		r.seen = &sandbox.Seen{Read: append(r.seen.Read, other.seen.Read...), Asked: append(r.seen.Asked, other.seen.Asked...), Listed: append(r.seen.Listed, other.seen.Listed...)}
	} else {
		r.seen = nil // what one side read is not known
	}
	result, err := other.conclude()
	if err != nil {
		return nil, nil
	}
	return &result, nil
}

// sideNeeds is how long another side is likely to run: as long as the first, which compiled for both.
func (r *run) sideNeeds(first *trace.Bundle, quick bool) time.Duration {
	needs := max(r.ranFor-vgpu.CompileTime(first), r.ranFor/leastSideShare)
	if quick {
		needs /= quickShare
	}
	return needs
}

func failed(r Result) bool { return r.Bundle.Manifest.Outcome == trace.Crashed }

func ended(r Result) bool {
	return slices.Contains([]trace.Outcome{trace.Stopped, trace.Completed}, r.Bundle.Manifest.Outcome)
}
