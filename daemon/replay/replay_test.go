package replay

import (
	"strings"
	"testing"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/policy"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
)

func estimateOn(profile string, gib int64) estimator.Estimate {
	return estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: profile, Confidence: estimator.High, Fits: true, Steps: 4,
		Ranks: []estimator.Rank{{PeakAllocatedBytes: gib << 30, PeakReservedBytes: gib << 30, ComfortableBytes: gib << 30, ComfortableHighBytes: gib << 30}}}
}

// TestDecidesAsTheDaemonDoes: first on the card that is asked for, then on the card that the job would get, and not at all where the log has nothing.
func TestDecidesAsTheDaemonDoes(t *testing.T) {
	row := func(gib int64, feature, profile string) policy.Row {
		return policy.Row{FitsBytes: gib << 30, Target: request.Target{Constraint: feature}, Profile: profile}
	}
	rules := func(rows ...policy.Row) policy.Rules {
		own := map[string]bool{}
		for _, r := range rows {
			own[r.Target.Constraint] = true
		}
		return policy.Rules{ActOn: []estimator.Confidence{estimator.High}, MarginMinBytes: 1 << 30, Rows: rows, Own: own}
	}
	large := row(80, "gpu80g", "a100-80")
	for _, c := range []struct {
		name      string
		rules     policy.Rules
		estimates []estimator.Estimate
		verdict   decision.Verdict
		code, now string
	}{
		{"a smaller row of the same card", rules(row(12, "gpu12g", ""), large), []estimator.Estimate{estimateOn("a100-80", 8)}, decision.Rewrite, decision.CodeSmaller, "gpu12g"},
		{"a row that is too small", rules(row(8, "gpu8g", ""), large), []estimator.Estimate{estimateOn("a100-80", 8)}, decision.Keep, decision.CodeAlready, ""},
		{"another card, tried", rules(row(12, "gpu12g", "rtx3060"), large), []estimator.Estimate{estimateOn("a100-80", 8), estimateOn("rtx3060", 9)}, decision.Rewrite, decision.CodeSmaller, "gpu12g"},
		{"another card, too large there", rules(row(12, "gpu12g", "rtx3060"), large), []estimator.Estimate{estimateOn("a100-80", 8), estimateOn("rtx3060", 12)}, decision.Keep, decision.CodeAlready, ""},
		{"another card, never tried", rules(row(12, "gpu12g", "rtx3060"), large), []estimator.Estimate{estimateOn("a100-80", 8)}, decision.LeaveAlone, decision.CodeNoEstimate, ""},
		{"only tried elsewhere", rules(large), []estimator.Estimate{estimateOn("h100", 8)}, decision.LeaveAlone, decision.CodeNoEstimate, ""},
		{"the later of two", rules(row(12, "gpu12g", ""), large), []estimator.Estimate{estimateOn("a100-80", 8), estimateOn("a100-80", 40)}, decision.Keep, decision.CodeAlready, ""},
		{"from card to card", rules(row(12, "gpu12g", "rtx3060"), row(24, "gpu24g", "l40s"), row(40, "gpu40g", "a100-40"), large),
			[]estimator.Estimate{estimateOn("a100-80", 8), estimateOn("rtx3060", 20), estimateOn("l40s", 30), estimateOn("a100-40", 8)}, decision.LeaveAlone, decision.CodeCardsDisagree, ""},
		{"of an account that is excluded", func() policy.Rules {
			r := rules(row(12, "gpu12g", ""), large)
			r.Scope.Accounts.Except = []string{"physics"}
			return r
		}(), []estimator.Estimate{estimateOn("a100-80", 8)}, decision.LeaveAlone, decision.CodeOutsideScope, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Player{Rules: c.rules, ProfileOf: func(request.Request) string { return "a100-80" }, Version: release.Version{Major: 22, Minor: 5}}
			job := decisionlog.Job{Account: "physics", Asked: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80g"}}
			got := p.Decide(job, c.estimates, decisionlog.Margin{})
			if got.Verdict != c.verdict || got.Code != c.code || got.Now.Features != c.now || got.Reason == "" || !got.AssumedVersion || (got.Untried != "") != (c.code == decision.CodeNoEstimate) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestReleaseOfTheLogCounts: what a release of Slurm cannot change stays, whatever is assumed of others.
func TestReleaseOfTheLogCounts(t *testing.T) {
	p := Player{ProfileOf: func(request.Request) string { return "a100-80" }, Version: release.Version{Major: 24, Minor: 11}, Rules: policy.Rules{ActOn: []estimator.Confidence{estimator.High},
		Rows: []policy.Row{{FitsBytes: 12 << 30, Target: request.Target{Gres: "gpu:small:1"}}, {FitsBytes: 80 << 30, Target: request.Target{Gres: "gpu:large:1"}}}}}
	job := decisionlog.Job{Asked: request.Request{TresPerNode: "gres:gpu:1"}, SlurmVersion: "22.05.8"}
	estimates := []estimator.Estimate{estimateOn("a100-80", 8)}
	if got := p.Decide(job, estimates, decisionlog.Margin{}); got.Verdict == decision.Rewrite || got.AssumedVersion {
		t.Errorf("on 22.05: %+v", got)
	}
	job.SlurmVersion = ""
	if got := p.Decide(job, estimates, decisionlog.Margin{}); got.Verdict != decision.Rewrite || !got.AssumedVersion || !strings.Contains(got.Now.TresPerNode, "small") {
		t.Errorf("on the release that is assumed: %+v", got)
	}
}
