package policy

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
)

// TestSiteTable is what public sites write into a request, one row each, and what becomes of it.
func TestSiteTable(t *testing.T) {
	v22, v24 := release.Version{Major: 22, Minor: 5, Micro: 8}, release.Version{Major: 24, Minor: 11, Micro: 5}
	features := func(sizes ...string) Rules {
		r := Rules{ActOn: []estimator.Confidence{estimator.Exact}, Own: map[string]bool{}, Cards: map[string]Card{}}
		for _, s := range sizes {
			var gibs int64
			word, _, _ := strings.Cut(s, "=")
			fmt.Sscanf(s[len(word)+1:], "%d", &gibs)
			r.Rows = append(r.Rows, Row{FitsBytes: gibs * gib, Target: request.Target{Constraint: word}})
			r.Own[word] = true
		}
		return r
	}
	vram := func(max int64) Rules {
		r := features("gpu40=40", "gpu80=80")
		r.Counted = Counted{Name: "vram", UnitBytes: gib, Max: max}
		return r
	}
	host := func(r Rules) Rules {
		r.Host = Host{Lower: true, MarginPercent: 50, MarginMinBytes: 2 * gib, FloorBytes: 4 * gib}
		return r
	}
	needs := func(gibs int64) estimator.Estimate { return estimate(gibs*gib, estimator.Exact) }
	seen := func(gibs, hostGiB int64) estimator.Estimate {
		e := needs(gibs)
		e.HostPeakBytes = hostGiB * gib
		return e
	}
	partly := seen(5, 3)
	partly.Reasons = []estimator.Reason{{Code: "ranks_not_run"}}
	for _, c := range []struct {
		name     string
		rules    Rules
		asked    request.Request
		estimate estimator.Estimate
		version  release.Version
		verdict  decision.Verdict
		code     string
		set      string
	}{
		// Constraints, merged with the owner's own.
		{"Princeton: -C gpu80", features("gpu40=40", "gpu80=80"), request.Request{TresPerJob: "gres:gpu:1", Features: "gpu80"}, needs(30), v22, decision.Rewrite, decision.CodeSmaller, "Features=gpu40"},
		{"NERSC: -C gpu&hbm80g", features("hbm40g=40", "hbm80g=80"), request.Request{TresPerNode: "gres:gpu:1", Features: "gpu&hbm80g"}, needs(30), v22, decision.Rewrite, decision.CodeSmaller, "Features=gpu&hbm40g"},
		{"Unity: vram40|vram48|vram80 asks for any of them", features("vram40=40", "vram48=48", "vram80=80"), request.Request{TresPerNode: "gres:gpu:1", Features: "vram40|vram48|vram80"}, needs(42), v22, decision.Rewrite, decision.CodeSmaller, "Features=vram48"},
		{"Sherlock: GPU_MEM:80GB", features("GPU_MEM:16GB=16", "GPU_MEM:80GB=80"), request.Request{TresPerNode: "gres:gpu:1", Features: "GPU_MEM:80GB"}, needs(9), v22, decision.Rewrite, decision.CodeSmaller, "Features=GPU_MEM:16GB"},
		{"parentheses: (ib|fast)&gpu80", features("gpu40=40", "gpu80=80"), request.Request{TresPerNode: "gres:gpu:1", Features: "(ib|fast)&gpu80"}, needs(30), v22, decision.Rewrite, decision.CodeSmaller, "Features=(ib|fast)&gpu40"},
		{"an alternative that is no size: gpu80|ib allows any card", features("gpu40=40", "gpu80=80"), request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80|ib"}, needs(30), v22, decision.Rewrite, decision.CodeNarrowed, "Features=(gpu80|ib)&(gpu40)"},
		{"the smaller of two groups bounds", features("gpu12=12", "gpu40=40", "gpu80=80"), request.Request{TresPerNode: "gres:gpu:1", Features: "(gpu40|gpu80)&gpu40"}, needs(9), v22, decision.Rewrite, decision.CodeSmaller, "Features=gpu12"},
		{"brackets", features("gpu40=40", "gpu80=80"), request.Request{TresPerNode: "gres:gpu:1", Features: "[rack1|rack2]&gpu80"}, needs(30), v22, decision.LeaveAlone, request.CodeConstraint, ""},
		{"counts", features("gpu40=40", "gpu80=80"), request.Request{TresPerNode: "gres:gpu:1", Features: "[gpu40*1&gpu80*1]"}, needs(30), v22, decision.LeaveAlone, request.CodeConstraint, ""},
		{"& and | without parentheses", features("gpu40=40", "gpu80=80"), request.Request{TresPerNode: "gres:gpu:1", Features: "a&b|gpu80"}, needs(30), v22, decision.LeaveAlone, request.CodeConstraint, ""},
		{"parentheses within parentheses", features("gpu40=40", "gpu80=80"), request.Request{TresPerNode: "gres:gpu:1", Features: "((a|b))&gpu80"}, needs(30), v22, decision.LeaveAlone, request.CodeConstraint, ""},

		// Types and MIG profiles.
		{"MIG on 24.11", Rules{ActOn: []estimator.Confidence{estimator.Exact}, Rows: []Row{{FitsBytes: 20 * gib, Slice: true, Target: request.Target{Gres: "gpu:a100_3g.20gb:1"}}, {FitsBytes: 40 * gib, Target: request.Target{Gres: "gpu:a100:1"}}}},
			request.Request{TresPerNode: "gres/gpu:1"}, needs(15), v24, decision.Rewrite, decision.CodeNarrowed, "TresPerNode=gres/gpu:a100_3g.20gb:1"},
		{"Alliance: never several MIG instances for one job", Rules{ActOn: []estimator.Confidence{estimator.Exact}, Rows: []Row{{FitsBytes: 20 * gib, Slice: true, Target: request.Target{Gres: "gpu:a100_3g.20gb:1"}}, {FitsBytes: 40 * gib, Target: request.Target{Gres: "gpu:a100:1"}}}},
			request.Request{TresPerNode: "gres/gpu:2"}, needs(15), v24, decision.Rewrite, decision.CodeNarrowed, "TresPerNode=gres/gpu:a100:2"},
		{"the owner's MIG slice is kept", Rules{ActOn: []estimator.Confidence{estimator.Exact}, Rows: []Row{{FitsBytes: 20 * gib, Slice: true, Target: request.Target{Gres: "gpu:a100_3g.20gb:1"}}}},
			request.Request{TresPerNode: "gres/gpu:a100_3g.20gb:1"}, needs(15), v24, decision.Keep, decision.CodeAlready, ""},

		// Shards.
		{"Catania: one shard is one MiB", Rules{ActOn: []estimator.Confidence{estimator.Exact}, ShardBytes: 1 << 20, ShardMax: 22528}, request.Request{TresPerNode: "gres/gpu:1"}, needs(5), v24, decision.Rewrite, decision.CodeNarrowed, "TresPerNode=gres/shard:5120"},
		{"nothing in the table, nothing asked", Rules{ActOn: []estimator.Confidence{estimator.Exact}}, request.Request{TresPerNode: "gres/gpu:1"}, needs(5), v24, decision.LeaveAlone, decision.CodeUnknownGPU, ""},
		{"shards with a table", func() Rules { r := features("gpu80=80"); r.ShardBytes, r.ShardMax = gib, 22; return r }(), request.Request{TresPerNode: "gres/gpu:1"}, needs(5), v24, decision.Rewrite, decision.CodeNarrowed, "TresPerNode=gres/shard:5"},
		{"more shards than one GPU has", func() Rules { r := features("gpu80=80"); r.ShardBytes, r.ShardMax = gib, 22; return r }(), request.Request{TresPerNode: "gres/gpu:1"}, needs(23), v24, decision.Rewrite, decision.CodeNarrowed, "Features=gpu80"},
		{"fewer shards suffice", Rules{ActOn: []estimator.Confidence{estimator.Exact}, ShardBytes: gib, ShardMax: 40}, request.Request{TresPerNode: "gres/shard:20,gres/vram:4"}, needs(9), v24, decision.Rewrite, decision.CodeSmaller, "TresPerNode=gres/shard:9,gres/vram:4"},
		{"fewer shards on 22.05", Rules{ActOn: []estimator.Confidence{estimator.Exact}, ShardBytes: gib, ShardMax: 40}, request.Request{TresPerNode: "gres:shard:20"}, needs(9), v22, decision.Rewrite, decision.CodeSmaller, "TresPerNode=gres:shard:9"},
		{"the shards of a type stay of that type", Rules{ActOn: []estimator.Confidence{estimator.Exact}, ShardBytes: gib, ShardMax: 40}, request.Request{TresPerNode: "gres/shard:a100:20"}, needs(9), v24, decision.Rewrite, decision.CodeSmaller, "TresPerNode=gres/shard:a100:9"},
		{"shards that are right", Rules{ActOn: []estimator.Confidence{estimator.Exact}, ShardBytes: gib, ShardMax: 40}, request.Request{TresPerNode: "gres/shard:9"}, needs(9), v24, decision.Keep, decision.CodeAlready, ""},
		{"too few shards", Rules{ActOn: []estimator.Confidence{estimator.Exact}, ShardBytes: gib, ShardMax: 40}, request.Request{TresPerNode: "gres/shard:5"}, needs(9), v24, decision.LeaveAlone, decision.CodeNeedsMore, ""},
		{"too few shards, and the site gives more", Rules{ActOn: []estimator.Confidence{estimator.Exact}, ShardBytes: gib, ShardMax: 40, Upsizing: true}, request.Request{TresPerNode: "gres/shard:5"}, needs(9), v24, decision.Rewrite, decision.CodeUpsized, "TresPerNode=gres/shard:9"},
		{"shards are never made a whole card", func() Rules { r := features("gpu12=12"); r.ShardBytes, r.ShardMax, r.Upsizing = gib, 8, true; return r }(), request.Request{TresPerNode: "gres/shard:5"}, needs(9), v24, decision.LeaveAlone, decision.CodeFitsNothing, ""},
		{"shards of a site that does not say what one is", features("gpu12=12"), request.Request{TresPerNode: "gres/shard:20"}, needs(9), v24, decision.LeaveAlone, decision.CodeUnknownGPU, ""},
		{"MPS says nothing of memory", func() Rules { r := features("gpu12=12"); r.ShardBytes, r.ShardMax = gib, 12; return r }(), request.Request{TresPerNode: "gres/mps:50"}, needs(9), v24, decision.LeaveAlone, request.CodeSharesGPU, ""},

		// Count-only resources.
		{"Charles University: vram asked for too high", vram(80), request.Request{TresPerJob: "gres:gpu:1", TresPerNode: "gres:vram:40"}, needs(9), v22, decision.Rewrite, decision.CodeSmaller, "TresPerNode=gres:vram:9"},
		{"vram for a job that asked for any GPU", vram(80), request.Request{TresPerNode: "gres/gpu:1"}, needs(9), v24, decision.Rewrite, decision.CodeNarrowed, "TresPerNode=gres/gpu:1,gres/vram:9"},
		{"vram cannot be added on 22.05", vram(80), request.Request{TresPerNode: "gres:gpu:1"}, needs(9), v22, decision.Rewrite, decision.CodeNarrowed, "Features=gpu40"},
		{"vram counts for the node, not for a GPU", vram(80), request.Request{TresPerNode: "gres:gpu:2,gres:vram:80"}, func() estimator.Estimate {
			e := needs(9)
			e.Ranks = append(e.Ranks, e.Ranks[0])
			e.Ranks[1].Rank = 1
			return e
		}(), v22, decision.Rewrite, decision.CodeSmaller, "TresPerNode=gres:gpu:2,gres:vram:18"},
		{"vram that would be too small", vram(80), request.Request{TresPerNode: "gres:gpu:1,gres:vram:8"}, needs(9), v22, decision.LeaveAlone, decision.CodeNeedsMore, ""},
		{"vram that is right", vram(80), request.Request{TresPerNode: "gres:gpu:1,gres:vram:9"}, needs(9), v22, decision.Keep, decision.CodeAlready, ""},
		{"vram goes down with the constraint", vram(0), request.Request{TresPerNode: "gres:gpu:1,gres:vram:80", Features: "gpu80"}, needs(39), v22, decision.Rewrite, decision.CodeSmaller, "TresPerNode=gres:gpu:1,gres:vram:39 Features=gpu40"},
		{"a size by constraint gets no count", vram(80), request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80"}, needs(9), v22, decision.Rewrite, decision.CodeSmaller, "Features=gpu40"},

		// Host memory.
		{"host memory is left alone where the site does not opt in", features("gpu40=40", "gpu80=80"), request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80", MemPerNodeMiB: 64 << 10}, seen(5, 3), v22, decision.Rewrite, decision.CodeSmaller, "Features=gpu40"},
		{"host memory goes down with the card", host(features("gpu40=40", "gpu80=80")), request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80", MemPerNodeMiB: 64 << 10}, seen(5, 3), v22, decision.Rewrite, decision.CodeSmaller, "Features=gpu40 MinMemoryNode=5120"},
		{"host memory alone", host(features("gpu40=40", "gpu80=80")), request.Request{TresPerNode: "gres:gpu:1", Features: "gpu40", MemPerNodeMiB: 64 << 10}, seen(5, 10), v22, decision.Rewrite, decision.CodeHostMemory, "MinMemoryNode=15360"},
		{"host memory has a floor", host(features("gpu40=40", "gpu80=80")), request.Request{TresPerNode: "gres:gpu:1", Features: "gpu40", MemPerNodeMiB: 64 << 10}, seen(5, 1), v22, decision.Rewrite, decision.CodeHostMemory, "MinMemoryNode=4096"},
		{"host memory never goes up", host(features("gpu40=40", "gpu80=80")), request.Request{TresPerNode: "gres:gpu:1", Features: "gpu40", MemPerNodeMiB: 4 << 10}, seen(5, 10), v22, decision.Keep, decision.CodeAlready, ""},
		{"a little less host memory is no change", host(features("gpu40=40", "gpu80=80")), request.Request{TresPerNode: "gres:gpu:1", Features: "gpu40", MemPerNodeMiB: 16 << 10}, seen(5, 10), v22, decision.Keep, decision.CodeAlready, ""},
		{"host memory that was not measured", host(features("gpu40=40", "gpu80=80")), request.Request{TresPerNode: "gres:gpu:1", Features: "gpu40", MemPerNodeMiB: 64 << 10}, needs(5), v22, decision.Keep, decision.CodeAlready, ""},
		{"host memory of ranks that were not run", host(features("gpu40=40", "gpu80=80")), request.Request{TresPerNode: "gres:gpu:1", Features: "gpu40", MemPerNodeMiB: 64 << 10}, partly, v22, decision.Keep, decision.CodeAlready, ""},
		{"host memory that was asked for by the GPU", host(features("gpu40=40", "gpu80=80")), request.Request{TresPerNode: "gres:gpu:1", Features: "gpu40", MemPerTres: "gres:gpu:8192"}, seen(5, 1), v22, decision.Keep, decision.CodeAlready, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.rules.Decide(Input{Asked: c.asked, Estimate: c.estimate, Version: c.version, EnvDropped: true})
			var set []string
			for _, a := range d.Change.Set {
				set = append(set, a.Key+"="+a.Value)
			}
			if d.Verdict != c.verdict || d.Code != c.code || strings.Join(set, " ") != c.set {
				t.Errorf("got %s %s %q\nwant %s %s %q\nreason: %s", d.Verdict, d.Code, set, c.verdict, c.code, c.set, d.Reason)
			}
		})
	}
}

// TestHostMemoryIsNeverBelowWhatWasSeen draws peaks, margins and requests.
func TestHostMemoryIsNeverBelowWhatWasSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Host{Lower: true, MarginPercent: rapid.IntRange(0, 1000).Draw(t, "percent"), MarginMinBytes: rapid.Int64Range(0, 16*gib).Draw(t, "min"), FloorBytes: rapid.Int64Range(0, 16*gib).Draw(t, "floor")}
		e := estimate(gib, estimator.Exact)
		e.HostPeakBytes = rapid.Int64Range(0, 4096*gib).Draw(t, "peak")
		asked := rapid.Uint64Range(0, 8<<20).Draw(t, "asked")
		mib, reason := h.lower(Input{Asked: request.Request{TresPerNode: "gres:gpu:1", MemPerNodeMiB: asked}, Estimate: e}, 1)
		if mib == 0 {
			return
		}
		if mib >= asked || int64(mib)<<20 < e.HostPeakBytes+max(h.MarginMinBytes, estimator.DriverHostHighBytes) || int64(mib)<<20 < h.FloorBytes || reason == "" {
			t.Fatalf("%d MiB for a peak of %d where %d MiB were asked for (%s)", mib, e.HostPeakBytes, asked, reason)
		}
	})
}

// BenchmarkDecide is one decision with a large table of every kind of row and an owner's constraint in parentheses; 100 us are allowed.
func BenchmarkDecide(b *testing.B) {
	r := Rules{ActOn: []estimator.Confidence{estimator.Exact}, MarginPercent: 5, MarginMinBytes: gib / 4, ShardBytes: gib, ShardMax: 1,
		Counted: Counted{Name: "vram", UnitBytes: gib}, Host: Host{Lower: true, MarginPercent: 50}, Own: map[string]bool{}, Cards: map[string]Card{}}
	for i := range int64(64) {
		word := fmt.Sprintf("gpu%dg", i+8)
		r.Rows = append(r.Rows, Row{FitsBytes: (i + 8) * gib, Profile: word, Target: request.Target{Constraint: word}})
		r.Own[word], r.Cards[word] = true, Card{word, (i + 8) * gib}
	}
	e := estimate(60*gib, estimator.Exact)
	e.HostPeakBytes = 3 * gib
	in := Input{Asked: request.Request{TresPerNode: "gres/gpu:1,gres/vram:71", Features: "(ib|fast)&ssd&gpu71g", MemPerNodeMiB: 64 << 10}, Estimate: e, Version: release.Version{Major: 24, Minor: 11}}
	for b.Loop() {
		if d := r.Decide(in); d.Verdict != decision.Rewrite {
			b.Fatal(d.Reason)
		}
	}
}
