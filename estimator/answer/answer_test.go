package answer

import (
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
)

// TestStatus: what might not fit is not called fitting, and what may be gresize's own fault is not called the command's.
func TestStatus(t *testing.T) {
	card := &gpu.Profile{ID: "t4", Name: "Tesla T4"}
	card.Total.Bytes = 1000
	rank := func(need, most int64) []estimator.Rank {
		return []estimator.Rank{{ComfortableBytes: need, ComfortableHighBytes: most}}
	}
	full := []estimator.Reason{{Code: estimator.CodeOutOfMemory}}
	for name, c := range map[string]struct {
		estimate estimator.Estimate
		outcome  trace.Outcome
		status   string
		code     int
		headroom int64 // 0: none is named
		cards    bool
	}{
		"it fits":                    {estimator.Estimate{Confidence: estimator.High, Fits: true, Ranks: rank(500, 600)}, trace.Stopped, Fits, 0, 400, true},
		"the upper end reaches over": {estimator.Estimate{Confidence: estimator.High, Fits: true, Ranks: rank(500, 1001)}, trace.Stopped, Unknown, 4, -1, true},
		"a low answer":               {estimator.Estimate{Confidence: estimator.Low, Fits: true, Ranks: rank(500, 600)}, trace.Stopped, Unknown, 4, 400, false},
		"full, and it crashed":       {estimator.Estimate{Confidence: estimator.Unknown, Ranks: rank(900, 900), Reasons: full}, trace.Crashed, Failed, 5, 0, false},
		"full, and it went on":       {estimator.Estimate{Confidence: estimator.Unknown, Ranks: rank(900, 900), Reasons: full}, trace.Stopped, DoesNotFit, 3, 0, false},
		"it failed by itself":        {estimator.Estimate{Confidence: estimator.Unknown, Reasons: []estimator.Reason{{Code: estimator.CodeScriptFailed}}}, trace.Crashed, Failed, 5, 0, false},
		"it failed, perhaps by us":   {estimator.Estimate{Confidence: estimator.Unknown, Reasons: []estimator.Reason{{Code: estimator.CodeScriptFailed}, {Code: estimator.CodeSymbolUnanswered}}}, trace.Crashed, Unknown, 4, 0, false},
		"nothing was seen":           {estimator.Estimate{Confidence: estimator.Unknown}, trace.Stopped, Unknown, 4, 0, false},
	} {
		a := Of(&c.estimate, &trace.Bundle{Manifest: trace.Manifest{Outcome: c.outcome}}, card)
		headroom := int64(0)
		if a.Headroom != nil {
			headroom = a.Headroom.Bytes
		}
		if a.Status != c.status || a.ExitCode != c.code || headroom != c.headroom || (len(a.WouldFit) > 0) != c.cards {
			t.Errorf("%s: %q, %d, headroom %d, would fit %v", name, a.Status, a.ExitCode, headroom, a.WouldFit)
		}
		if a.Notes == nil || a.Hints == nil || a.Owners == nil || a.Command == nil {
			t.Errorf("%s: a list that is empty is no null in JSON", name)
		}
	}
}
