package vgpu

import (
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
)

// TestOtherSideThatRanOutOfTimeNamesTheBudget: what more time mends is said to be so, and nothing else is.
func TestOtherSideThatRanOutOfTimeNamesTheBudget(t *testing.T) {
	for outcome, budget := range map[trace.Outcome]bool{trace.Timeout: true, trace.Crashed: false} {
		var r rankReport
		r.Coverage.Values.Uses = map[string]int64{"aten::nonzero": 1}
		r.Other = &OtherSide{Policy: PolicyHigh, Outcome: string(outcome)}
		a := answer{estimator.Estimate{Confidence: estimator.Exact}}
		a.judgeValues(&r)
		if len(a.Reasons) != 1 || a.Reasons[0].Code != "values_bounded" || strings.Contains(a.Reasons[0].Detail, "--budget") != budget {
			t.Errorf("%s: %v", outcome, a.Reasons)
		}
	}
}

// TestSidesOfJAX: floats that JAX gives are plain, so they leave a doubt until another side has shown that they decide nothing; and no two runs of XLA are the
// same to the byte.
func TestSidesOfJAX(t *testing.T) {
	const needs, asked = 6 << 30, 5 << 30
	const late = needs / 100 * betweenBlocksPercent // XLA gave it back when it was asked for more already
	fell := &OtherSide{Policy: PolicyHigh, Outcome: string(trace.Crashed), PeakAllocatedBytes: needs, PeakReservedBytes: needs}
	side := func(more, askedBytes int64) *OtherSide {
		return &OtherSide{Policy: PolicyHigh, Outcome: string(trace.Completed), PeakAllocatedBytes: needs + more, PeakReservedBytes: needs + more, AskedBytes: askedBytes}
	}
	for _, c := range []struct {
		name  string
		other *OtherSide
		third *OtherSide
		want  estimator.Confidence
	}{
		{"one side", nil, nil, estimator.Low},
		{"no time for the other", &OtherSide{Policy: PolicyHigh, Outcome: string(trace.Timeout)}, nil, estimator.Low},
		{"the other fell", fell, nil, estimator.Low},
		{"the same", &OtherSide{Policy: PolicyHigh, Outcome: string(trace.Completed), PeakAllocatedBytes: needs + 512, PeakReservedBytes: needs + 512}, nil, estimator.High},
		{"more", &OtherSide{Policy: PolicyHigh, Outcome: string(trace.Completed), PeakAllocatedBytes: needs + 2*poolSameBytes, PeakReservedBytes: needs + 2*poolSameBytes}, nil, estimator.Low},
		{"the same, given back late", side(late, asked+512), nil, estimator.High},
		{"more than is late", side(2*late, asked), nil, estimator.Low},
		{"asked for more", side(late, asked+2*poolSameBytes), nil, estimator.Low},
		{"not seen what it asked for", side(late, 0), nil, estimator.Low},
		{"the other fell, and a third is the same", fell, &OtherSide{Policy: PolicyHalf, Outcome: string(trace.Completed), PeakAllocatedBytes: needs + 512, PeakReservedBytes: needs + 512}, estimator.High},
		{"the other fell, and a third is more", fell, &OtherSide{Policy: PolicyHalf, Outcome: string(trace.Completed), PeakAllocatedBytes: needs + 2*poolSameBytes, PeakReservedBytes: needs + 2*poolSameBytes}, estimator.Low},
	} {
		r := rankReport{Pool: &Pool{NeededBytes: needs, AskedBytes: asked}, PeakAllocatedBytes: needs, PeakReservedBytes: needs, Other: c.other, Third: c.third}
		r.Coverage.Values.Uses = map[string]int64{useFetched: 4}
		a := answer{estimator.Estimate{Confidence: estimator.Exact}}
		if a.judgeValues(&r); a.Confidence != c.want {
			t.Errorf("%s: %s, want %s: %v", c.name, a.Confidence, c.want, a.Reasons)
		}
	}
}

// TestSidesSeenForOtherSteps: where each step leaves a little, runs of different numbers of steps are the same but for that; what is more may be a size.
func TestSidesSeenForOtherSteps(t *testing.T) {
	const needs, left = 132 << 20, 512
	for _, c := range []struct {
		name       string
		leaves     int64
		steps      int
		more       int64
		confidence estimator.Confidence
	}{
		{"what three steps left", left, 9, 3 * left, estimator.High},
		{"a block more than they left", left, 9, 4 * left, estimator.Low},
		{"nothing is left", 0, 9, left, estimator.Low},
		{"as many steps", left, 6, left, estimator.Low},
		{"much is left", 1 << 20, 9, 3 << 20, estimator.Low},
	} {
		side := func(policy string, steps int, more int64) *OtherSide {
			return &OtherSide{Policy: policy, Outcome: string(trace.Stopped), Steps: steps, PeakAllocatedBytes: needs + more, PeakReservedBytes: needs}
		}
		r := rankReport{Steps: 6, PeakAllocatedBytes: needs, PeakReservedBytes: needs, Other: side(PolicyHigh, c.steps, c.more), Third: side(PolicyHalf, 6, 0)}
		r.Coverage.Values.Uses, r.Coverage.StepLeavesBytes = map[string]int64{useFetched: 491}, c.leaves
		a := answer{estimator.Estimate{Confidence: estimator.Exact}}
		if a.judgeValues(&r); a.Confidence != c.confidence {
			t.Errorf("%s: %s, want %s: %v", c.name, a.Confidence, c.confidence, a.Reasons)
		}
	}
}
