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
