package policy

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
)

const gib = int64(1) << 30

func table() Rules {
	return Rules{
		ActOn: []estimator.Confidence{estimator.Exact, estimator.High}, MarginPercent: 10, MarginMinBytes: gib / 2,
		Rows: []Row{
			{FitsBytes: 12 * gib, Target: request.Target{Constraint: "gpu12g"}, Profile: "rtx3060"},
			{FitsBytes: 40 * gib, Target: request.Target{Gres: "gpu:a100:1", Constraint: "gpu40g"}, Profile: "a100-40"},
			{FitsBytes: 80 * gib, Target: request.Target{Constraint: "gpu80g"}, Profile: "a100-80"},
		},
		Own: map[string]bool{"gpu12g": true, "gpu40g": true, "gpu80g": true}, Cards: map[string]Card{"h200": {"h200", 141 * gib}, "k40": {"k40", 12 * gib}, "gpu12g": {"rtx3060", 12 * gib}, "gpu80g": {"a100-80", 80 * gib}, "a100": {"a100-80", 80 * gib}},
	}
}

func estimate(bytes int64, level estimator.Confidence) estimator.Estimate {
	return estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: "A100-80", Confidence: level, Fits: true, Steps: 4,
		Ranks: []estimator.Rank{{PeakReservedBytes: bytes, ComfortableBytes: bytes, ComfortableHighBytes: bytes}}, Reasons: []estimator.Reason{}}
}

// TestAfterDeath: what died on the card that was asked for goes to the next larger one to be tried, where the site allows it, and is counted as too small where not.
func TestAfterDeath(t *testing.T) {
	died := func(profile string, also ...estimator.Reason) estimator.Estimate {
		e := estimate(11*gib, estimator.Unknown)
		e.GPU, e.Fits, e.Reasons = profile, false, append(also, estimator.Reason{Code: estimator.CodeOutOfMemory, Detail: "the job needs more than the modelled card"})
		return e
	}
	small := request.Request{TresPerNode: "gres/gpu:1", Features: "gpu12g"}
	fits := died("rtx3060")
	fits.Fits = true
	low := died("rtx3060")
	low.Confidence = estimator.Low
	for _, c := range []struct {
		name     string
		asked    request.Request
		estimate estimator.Estimate
		upsizing bool
		verdict  decision.Verdict
		code     string
		profile  string
	}{
		{"to the next larger card", small, died("rtx3060"), true, decision.Rewrite, decision.CodeUpsized, "a100-40"},
		{"and from there", small, died("a100-40"), true, decision.Rewrite, decision.CodeUpsized, "a100-80"},
		{"until there is none", small, died("a100-80"), true, decision.LeaveAlone, decision.CodeFitsNothing, ""},
		{"not unless the site allows it", small, died("rtx3060"), false, decision.LeaveAlone, decision.CodeNeedsMore, ""},
		{"a death on a smaller card than was asked for says nothing", request.Request{TresPerNode: "gres/gpu:1", Features: "gpu80g"}, died("rtx3060"), true, decision.LeaveAlone, decision.CodeConfidence, ""},
		{"nor one on a card that is not in the table", small, died("k40"), true, decision.LeaveAlone, decision.CodeConfidence, ""},
		{"nor where any card would do", request.Request{TresPerNode: "gres/gpu:1"}, died("a100-80"), true, decision.LeaveAlone, decision.CodeConfidence, ""},
		{"unknown for another cause", small, fits, true, decision.LeaveAlone, decision.CodeConfidence, ""},
		{"a low estimate", small, low, true, decision.LeaveAlone, decision.CodeConfidence, ""},
		{"a card that was asked for by its name", request.Request{TresPerNode: "gres/gpu:1", Features: "k40&gpu12g"}, died("rtx3060"), true, decision.LeaveAlone, decision.CodeFitsNothing, ""},
	} {
		rules := table()
		rules.Upsizing = c.upsizing
		d := rules.Decide(Input{Asked: c.asked, Estimate: c.estimate, Version: release.Version{Major: 24, Minor: 11, Micro: 5}})
		if d.Verdict != c.verdict || d.Code != c.code || d.Profile != c.profile {
			t.Errorf("%s: %s %s to %q: %s", c.name, d.Verdict, d.Code, d.Profile, d.Reason)
		}
		if d.Verdict == decision.Rewrite && (d.Profile == c.estimate.GPU || len(d.Change.Set) == 0) {
			t.Errorf("%s: would be given without a trial: %+v", c.name, d)
		}
	}
}

func TestDecide(t *testing.T) {
	debian12 := release.Version{Major: 22, Minor: 5, Micro: 8}
	debian13 := release.Version{Major: 24, Minor: 11, Micro: 5}
	for _, c := range []struct {
		name     string
		asked    request.Request
		estimate estimator.Estimate
		version  release.Version
		change   func(*Rules)
		verdict  decision.Verdict
		code     string
		set      string
	}{
		{name: "a constraint of the table is replaced", asked: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80g"}, estimate: estimate(7*gib, estimator.Exact), version: debian12,
			verdict: decision.Rewrite, code: decision.CodeSmaller, set: "Features=gpu12g"},
		{name: "any GPU is narrowed", asked: request.Request{TresPerNode: "gres:gpu:1"}, estimate: estimate(7*gib, estimator.High), version: debian12,
			verdict: decision.Rewrite, code: decision.CodeNarrowed, set: "Features=gpu12g"},
		{name: "the owner's other wishes stay", asked: request.Request{TresPerNode: "gres:gpu:1", Features: "ib&gpu80g"}, estimate: estimate(7*gib, estimator.High), version: debian12,
			verdict: decision.Rewrite, code: decision.CodeSmaller, set: "Features=ib&gpu12g"},
		{name: "no type is given where it could not be taken back", asked: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80g"}, estimate: estimate(30*gib, estimator.High), version: debian12,
			verdict: decision.Keep, code: decision.CodeAlready},
		{name: "untyped to typed in place on 24.11", asked: request.Request{TresPerNode: "gres/gpu:1", Features: "gpu80g"}, estimate: estimate(30*gib, estimator.High), version: debian13,
			verdict: decision.Rewrite, code: decision.CodeSmaller, set: "TresPerNode=gres/gpu:a100:1 Features=gpu40g"},
		{name: "it needs what it asked for", asked: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80g"}, estimate: estimate(60*gib, estimator.Exact), version: debian12,
			verdict: decision.Keep, code: decision.CodeAlready},
		{name: "exactly at the edge", asked: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80g"}, estimate: estimate(12*gib-gib/2-gib, estimator.Exact), version: debian12,
			change: func(r *Rules) { r.MarginPercent, r.MarginMinBytes = 0, gib+gib/2 }, verdict: decision.Rewrite, code: decision.CodeSmaller, set: "Features=gpu12g"},
		{name: "one byte over the edge", asked: request.Request{TresPerNode: "gres/gpu:1", Features: "gpu80g"}, estimate: estimate(12*gib-gib/2+1, estimator.Exact), version: debian13,
			change: func(r *Rules) { r.MarginPercent, r.MarginMinBytes = 0, gib/2 }, verdict: decision.Rewrite, code: decision.CodeSmaller, set: "TresPerNode=gres/gpu:a100:1 Features=gpu40g"},
		{name: "would die, upsizing not allowed", asked: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu12g"}, estimate: estimate(30*gib, estimator.Exact), version: debian12,
			verdict: decision.LeaveAlone, code: decision.CodeNeedsMore},
		{name: "would die, upsizing allowed", asked: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu12g"}, estimate: estimate(60*gib, estimator.Exact), version: debian12,
			change: func(r *Rules) { r.Upsizing = true }, verdict: decision.Rewrite, code: decision.CodeUpsized, set: "Features=gpu80g"},
		{name: "fits nothing", asked: request.Request{TresPerNode: "gres:gpu:1"}, estimate: estimate(100*gib, estimator.Exact), version: debian12,
			change: func(r *Rules) { r.Upsizing = true }, verdict: decision.LeaveAlone, code: decision.CodeFitsNothing},
		{name: "low is not acted upon", asked: request.Request{TresPerNode: "gres:gpu:1"}, estimate: estimate(gib, estimator.Low), version: debian12,
			verdict: decision.LeaveAlone, code: decision.CodeConfidence},
		{name: "unknown is never acted upon", asked: request.Request{TresPerNode: "gres:gpu:1"}, estimate: estimator.NewUnknown("vgpu", "A100-80", estimator.Reason{Code: "script_failed"}), version: debian12,
			change: func(r *Rules) { r.ActOn = append(r.ActOn, estimator.Unknown) }, verdict: decision.LeaveAlone, code: decision.CodeConfidence},
		{name: "a type that nobody sized", asked: request.Request{TresPerNode: "gres:gpu:k80:1"}, estimate: estimate(gib, estimator.Exact), version: debian12,
			verdict: decision.LeaveAlone, code: decision.CodeUnknownGPU},
		{name: "a type that a profile sizes, kept because constraint and type may not meet", asked: request.Request{TresPerNode: "gres:gpu:h200:1"}, estimate: estimate(30*gib, estimator.Exact), version: debian12,
			change: func(r *Rules) { r.Rows = r.Rows[1:2] }, verdict: decision.LeaveAlone, code: request.CodeSlurmVersion},
		{name: "a type of another card than the row's", asked: request.Request{TresPerNode: "gres:gpu:a100:1"}, estimate: estimate(7*gib, estimator.Exact), version: debian12,
			change: func(r *Rules) { r.Rows = []Row{r.Rows[0], r.Rows[2]} }, verdict: decision.Keep, code: decision.CodeAlready},
		{name: "a feature of another card than the row's", asked: request.Request{TresPerNode: "gres:gpu:1", Features: "a100&ib"}, estimate: estimate(7*gib, estimator.Exact), version: debian12,
			change: func(r *Rules) { r.Rows = []Row{r.Rows[0], r.Rows[2]} }, verdict: decision.Keep, code: decision.CodeAlready},
		{name: "brackets are left alone", asked: request.Request{TresPerNode: "gres:gpu:1", Features: "[rack1|rack2]"}, estimate: estimate(gib, estimator.Exact), version: debian12,
			verdict: decision.LeaveAlone, code: request.CodeConstraint},
		{name: "shards where Slurm can", asked: request.Request{TresPerNode: "gres/gpu:1"}, estimate: estimate(3*gib, estimator.Exact), version: debian13,
			change: func(r *Rules) { r.ShardBytes, r.ShardMax = gib, 80 }, verdict: decision.Rewrite, code: decision.CodeNarrowed, set: "TresPerNode=gres/shard:4"},
		{name: "no shards where Slurm cannot", asked: request.Request{TresPerNode: "gres:gpu:1"}, estimate: estimate(3*gib, estimator.Exact), version: debian12,
			change: func(r *Rules) { r.ShardBytes, r.ShardMax = gib, 80 }, verdict: decision.Rewrite, code: decision.CodeNarrowed, set: "Features=gpu12g"},
		{name: "two ranks", asked: request.Request{TresPerNode: "gres:gpu:1"}, estimate: func() estimator.Estimate {
			e := estimate(gib, estimator.Exact)
			e.Ranks = append(e.Ranks, e.Ranks[0])
			return e
		}(), version: debian12, verdict: decision.LeaveAlone, code: request.CodeSeveral},
		{name: "two GPUs, each as large as the larger rank needs", asked: request.Request{TresPerNode: "gres:gpu:2"}, estimate: func() estimator.Estimate {
			e := estimate(gib, estimator.Exact)
			e.Ranks = append(e.Ranks, estimate(8*gib, estimator.Exact).Ranks...)
			e.Ranks[1].Rank = 1
			return e
		}(), version: debian12, verdict: decision.Rewrite, code: decision.CodeNarrowed, set: "Features=gpu12g"},
		{name: "several ranks get no slices of cards", asked: request.Request{TresPerNode: "gres:gpu:2"}, estimate: estimate(gib, estimator.Exact), version: debian12,
			change: func(r *Rules) {
				for i := range r.Rows {
					r.Rows[i].Slice = true
				}
			}, verdict: decision.LeaveAlone, code: decision.CodeFitsNothing},
		{name: "an estimate that does not add up", asked: request.Request{TresPerNode: "gres:gpu:1"}, estimate: estimator.Estimate{Schema: "other"}, version: debian12,
			verdict: decision.LeaveAlone, code: decision.CodeInvalidAnswer},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules := table()
			if c.change != nil {
				c.change(&rules)
			}
			d := rules.Decide(Input{Asked: c.asked, Estimate: c.estimate, Version: c.version, EnvDropped: true})
			var set []string
			for _, a := range d.Change.Set {
				set = append(set, a.Key+"="+a.Value)
			}
			if d.Verdict != c.verdict || d.Code != c.code || strings.Join(set, " ") != c.set {
				t.Errorf("got %s %s %q\nwant %s %s %q\nreason: %s", d.Verdict, d.Code, set, c.verdict, c.code, c.set, d.Reason)
			}
			if d.Reason == "" {
				t.Error("no reason")
			}
		})
	}
}

// TestDecideNeverTooSmall draws sites, jobs and estimates: a rewrite always holds the need and never exceeds what was asked for.
func TestDecideNeverTooSmall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := table()
		rules.Upsizing = rapid.Bool().Draw(t, "upsizing")
		rules.MarginPercent = rapid.IntRange(0, 100).Draw(t, "percent")
		rules.MarginMinBytes = rapid.Int64Range(0, 8*gib).Draw(t, "least")
		if rapid.Bool().Draw(t, "shards") {
			rules.ShardBytes, rules.ShardMax = gib, 80
		}
		fits := map[string]int64{"": 80 * gib, "gpu12g": 12 * gib, "gpu40g": 40 * gib, "gpu80g": 80 * gib, "gpu12g|gpu40g": 40 * gib, "ib": 80 * gib}
		feature := rapid.SampledFrom([]string{"", "gpu12g", "gpu40g", "gpu80g", "gpu12g|gpu40g", "ib"}).Draw(t, "feature")
		asked := request.Request{TresPerNode: "gres:gpu:1", Features: feature}
		version := rapid.SampledFrom([]release.Version{{Major: 22, Minor: 5, Micro: 8}, {Major: 24, Minor: 11, Micro: 5}, {Major: 20, Minor: 11, Micro: 4}}).Draw(t, "version")
		e := estimate(rapid.Int64Range(1, 200*gib).Draw(t, "bytes"), rapid.SampledFrom([]estimator.Confidence{estimator.Exact, estimator.High, estimator.Low}).Draw(t, "confidence"))
		e.Fits = rapid.Bool().Draw(t, "fits")
		d := rules.Decide(Input{Asked: asked, Estimate: e, Version: version})
		if d.Verdict != decision.Rewrite {
			return
		}
		if e.Confidence == estimator.Low {
			t.Fatal("acted on a low confidence")
		}
		var given int64
		for _, row := range rules.Rows {
			if row.Target == d.Target {
				given = row.FitsBytes
			}
		}
		if d.Target.Shards > 0 {
			given = int64(d.Target.Shards) * gib
		}
		if need := e.Ranks[0].ComfortableHighBytes; given < need || given < d.NeedBytes {
			t.Fatalf("gave %d for a need of %d (%d with margin)", given, need, d.NeedBytes)
		}
		if given > fits[feature] && !rules.Upsizing {
			t.Fatalf("gave %d where %q (%d) was asked for", given, feature, fits[feature])
		}
	})
}

// TestDecideNamesTheCard: the card of the row that was chosen is what the job is tried on next, and what was found there does not speak for smaller rows.
func TestDecideNamesTheCard(t *testing.T) {
	rules := table()
	in := Input{Asked: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80g"}, Estimate: estimate(7*gib, estimator.Exact), Version: release.Version{Major: 24, Minor: 11, Micro: 5}}
	if d := rules.Decide(in); d.Profile != "rtx3060" || d.FitsBytes != rules.FitsOf("rtx3060") {
		t.Errorf("chose the card %q of %d bytes", d.Profile, d.FitsBytes)
	}
	in.Asked.TresPerNode, in.LeastFitsBytes = "gres/gpu:1", rules.FitsOf("a100-40")
	if d := rules.Decide(in); d.Profile != "a100-40" {
		t.Errorf("below the least: chose the card %q", d.Profile)
	}
	if rules.FitsOf("none such") != 0 {
		t.Error("a card of no row has a size")
	}
}

// TestReasonsAreSaidInWords: who reads why a job was left alone need not know the codes of an estimate.
func TestReasonsAreSaidInWords(t *testing.T) {
	e := estimate(gib, estimator.Low)
	for _, code := range []string{"memory_grows", "of_a_plugin", "no_torch", "no_step_seen"} {
		e.Reasons = append(e.Reasons, estimator.Reason{Code: code, Detail: "by 2 GiB"})
	}
	d := table().Decide(Input{Asked: request.Request{TresPerNode: "gres:gpu:1"}, Estimate: e})
	const want = "the estimate's confidence is low: the program keeps more the longer it runs: by 2 GiB [memory_grows]; of_a_plugin: by 2 GiB; neither PyTorch nor JAX was seen: by 2 GiB [no_torch]; and 1 more"
	if d.Code != decision.CodeConfidence || d.Reason != want {
		t.Errorf("%s: %q, want %q", d.Code, d.Reason, want)
	}
}
