package policy

import (
	"strings"
	"testing"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/request"
)

// swapRules are those of a site with cards of 12, 24 and 80 GiB.
func swapRules() Rules {
	r := Rules{ActOn: []estimator.Confidence{estimator.Exact, estimator.High}, MarginPercent: 5, MarginMinBytes: 256 << 20, Swap: Swap{Allow: true, Slowdown: 1.05},
		Cards: map[string]Card{}, Own: map[string]bool{}}
	for _, c := range []struct {
		word, profile string
		gib           int64
	}{{"gpu12g", "rtx3060", 12}, {"gpu24g", "rtx3090", 24}, {"gpu80g", "a100-80", 80}} {
		r.Rows = append(r.Rows, Row{FitsBytes: c.gib * gib, Profile: c.profile, Target: request.Target{Constraint: c.word}})
		r.Cards[c.word], r.Own[c.word] = Card{c.profile, c.gib * gib}, true
	}
	return r
}

func needs(confidence estimator.Confidence, of int64) estimator.Estimate {
	return estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: "a100-80", Confidence: confidence, Fits: true, Reasons: []estimator.Reason{}, HostPeakBytes: 2 * gib,
		Ranks: []estimator.Rank{{PeakReservedBytes: of - gib/2, ComfortableBytes: of - gib/2, ComfortableHighBytes: of}}}
}

// TestSmaller: the card that is one size too small for what the job needs, for one process whose need is known well, and no card that the owner's words exclude.
func TestSmaller(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(r *Rules, in *Input)
		want string
	}{
		{"it needs 14 GiB", func(*Rules, *Input) {}, "rtx3060"},
		{"it needs 30 GiB", func(_ *Rules, in *Input) { in.Estimate = needs(estimator.High, 30*gib) }, "rtx3090"},
		{"the smallest card holds it", func(_ *Rules, in *Input) { in.Estimate = needs(estimator.High, 5*gib) }, ""},
		{"the site does not allow it", func(r *Rules, _ *Input) { r.Swap.Allow = false }, ""},
		{"the confidence is low", func(r *Rules, in *Input) {
			r.ActOn = append(r.ActOn, estimator.Low)
			in.Estimate = needs(estimator.Low, 14*gib)
		}, ""},
		{"two GPUs", func(_ *Rules, in *Input) {
			in.Asked.TresPerNode = "gres/gpu:2"
			in.Estimate.Ranks = append(in.Estimate.Ranks, in.Estimate.Ranks[0])
		}, ""},
		{"it was asked for by name", func(r *Rules, in *Input) { in.Asked.Features = "gpu80g"; r.Own = map[string]bool{} }, ""},
		{"no profile", func(r *Rules, _ *Input) { r.Rows[0].Profile = "" }, ""},
	} {
		r, in := swapRules(), Input{Asked: request.Request{TresPerNode: "gres/gpu:1", Features: "gpu80g"}, Estimate: needs(estimator.High, 14*gib)}
		c.set(&r, &in)
		row, found := r.Smaller(in, r.Decide(in))
		if row.Profile != c.want || found != (c.want != "") {
			t.Errorf("%s: %q %v", c.name, row.Profile, found)
		}
	}
}

// TestWithPlan: a plan is taken only where the run with it is known well and fits with its margin, where it is no slower than the site wants, and where its pinned memory has room in --mem.
func TestWithPlan(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(in *Input, plan *Planned)
		says string
	}{
		{"", func(*Input, *Planned) {}, ""},
		{"nothing is moved", func(_ *Input, p *Planned) { p.HostBytes, p.MemMiB = 0, 0 }, ""},
		{"slow", func(_ *Input, p *Planned) { p.Slowdown = 1.06 }, "1.06 times as long, and the site allows 1.05"},
		{"too large", func(in *Input, _ *Planned) { in.Estimate = needs(estimator.High, 23*gib/2) }, "needs 12.07 GiB with its margin, and the card has 12.00 GiB"},
		{"does not fit", func(in *Input, _ *Planned) { in.Estimate.Fits = false }, "with its margin"},
		{"low", func(in *Input, _ *Planned) {
			in.Estimate.Confidence, in.Estimate.Reasons = estimator.Low, []estimator.Reason{{Code: estimator.CodeBatchesVary}}
		}, "confidence of the run with the plan is low"},
		{"unknown", func(in *Input, _ *Planned) {
			in.Estimate = estimator.NewUnknown("vgpu", "rtx3060", estimator.Reason{Code: estimator.CodeProbeLost})
		}, "valid estimate"},
		{"--mem is too little", func(_ *Input, p *Planned) { p.MemMiB = 5 << 10 }, "it asked for 5120 MiB"},
		{"no --mem", func(_ *Input, p *Planned) { p.MemMiB = 0 }, "does not say with --mem"},
	} {
		r, in, plan := swapRules(), Input{Asked: request.Request{TresPerNode: "gres/gpu:1", Features: "gpu80g"}, Estimate: needs(estimator.High, 14*gib)}, Planned{Slowdown: 1.02, HostBytes: 3 * gib, PlainHostBytes: 2 * gib, MemMiB: 8 << 10}
		plain := r.Decide(in)
		row, found := r.Smaller(in, plain)
		if target := r.TargetBytes(in, plain, row); !found || target >= 12*gib-plain.MarginBytes || target < 10*gib {
			t.Fatalf("a plan for %d bytes", target)
		}
		in.Estimate = needs(estimator.High, 11*gib)
		c.set(&in, &plan)
		d := r.WithPlan(in, plain, row, plan)
		switch {
		case c.says == "" && (d.Verdict != decision.Rewrite || d.Code != decision.CodePlanned || d.Change.Result.Features != "gpu12g" || !strings.Contains(d.Reason, "one size too small; with a plan it needs 11.55 GiB there")):
			t.Errorf("%s: %+v", c.name, d)
		case c.says != "" && (d.Verdict != decision.LeaveAlone || d.Code != decision.CodeNoPlan || !strings.Contains(d.Reason, c.says)):
			t.Errorf("%s: %s %s", c.name, d.Code, d.Reason)
		}
	}
}
