package decisionlog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/request"
)

// rewritten adds a job that was changed in enforce mode and ran.
func rewritten(t *testing.T, l *Log, token string, slurmJobID uint32, high int64, reasons ...estimator.Reason) int64 {
	t.Helper()
	ids, err := l.AddJobs(t.Context(), NewJob{Job: sampleJob(token), First: Event{At: at, State: "held"}})
	if err != nil {
		t.Fatal(err)
	}
	id := ids[0]
	answer := func(gpu string, high int64) *estimator.Estimate {
		return &estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: gpu, Confidence: estimator.Exact, Fits: true,
			Ranks: []estimator.Rank{{PeakReservedBytes: high, ComfortableBytes: high, ComfortableHighBytes: high}}, Reasons: reasons}
	}
	for _, step := range []Transition{
		{From: "held", To: "found", SlurmJobID: slurmJobID}, {From: "found", To: "estimated", Estimate: answer("a100-80", 2*high)}, {From: "estimated", To: "again", Estimate: answer("rtx3060", high)},
		{From: "again", To: "verified", Finished: true, NodeList: "gpu1", Decision: &Decision{At: at, Verdict: decision.Rewrite, Code: "smaller_row_fits", Target: request.Target{Constraint: "gpu12g"},
			Margin: Margin{Kind: "calibrated", Group: "gpu=rtx3060", Actuals: 120, Ratio: 1.02, TargetFailureRate: 0.01}}},
	} {
		step.Job, step.At = id, at
		if err := l.Advance(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

func TestActuals(t *testing.T) {
	ctx := t.Context()
	l, _ := openLog(t)
	id := rewritten(t, l, "tok", 7, 100)
	one, seconds := 1, int64(90)
	died := Actual{At: at.Add(time.Hour), Source: EpilogOOM, Node: "gpu1", Outcome: OutOfMemory, ExitCode: &one, ElapsedGPUSeconds: &seconds, AfterRewrite: true, Detail: "CUDA out of memory"}
	peak := Actual{At: at.Add(time.Hour), Source: NVMLAccounting, Node: "gpu1", Outcome: Failed, ExitCode: &one, PeakBytes: 110, Ranks: []RankPeak{{GPU: "0", PeakBytes: 110}}, AfterRewrite: true}
	alarm := &Event{At: at, State: "verified", Code: "out_of_memory_after_rewrite"}
	for i, a := range []Actual{died, peak, died} {
		added, err := l.AddActual(ctx, id, a, alarm, a.Outcome == OutOfMemory)
		if err != nil || added != (i < 2) {
			t.Errorf("%d: %v %v", i, added, err)
		}
	}
	// A later run on what the owner asked for does not undo that it died.
	done := Actual{At: at.Add(2 * time.Hour), Source: Reported, Run: 1, Outcome: Completed}
	if _, err := l.AddActual(ctx, id, done, nil, false); err != nil {
		t.Fatal(err)
	}
	story, err := l.StoryOfOwner(ctx, 7, 1001)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Actual{died, peak, done}, story.Actuals); diff != "" {
		t.Error(diff)
	}
	if m := story.Decisions[0].Margin; m.Kind != "calibrated" || m.Actuals != 120 {
		t.Errorf("%+v", m)
	}
	if n := len(story.Events); n != 7 {
		t.Errorf("%d events: an actual that was told twice left two", n)
	}
	if _, err := l.StoryOfOwner(ctx, 7, 1002); !errors.Is(err, ErrNotFound) {
		t.Errorf("the job of somebody else: %v", err)
	}
	lines, err := l.List(ctx, 10, Filter{OutOfMemory: true})
	if err != nil || len(lines) != 1 {
		t.Errorf("%+v %v", lines, err)
	}
	measured, err := l.LatestMeasured(ctx, 10)
	want := Measured{Job: id, UID: 1001, At: died.At, GPU: "rtx3060", Estimator: "vgpu", Confidence: "exact", EstimateBytes: 100, Outcome: OutOfMemory, ElapsedGPUSeconds: 90}
	if err != nil || len(measured) != 2 {
		t.Fatalf("%+v %v", measured, err)
	}
	want.ID = measured[0].ID
	if diff := cmp.Diff(want, measured[0]); diff != "" {
		t.Error(diff)
	}
	if after, err := l.Measured(ctx, measured[0].ID, 10); err != nil || len(after) != 1 || after[0].PeakBytes != 110 {
		t.Errorf("%+v %v", after, err)
	}
	if latest, err := l.LatestMeasured(ctx, 1); err != nil || len(latest) != 1 || latest[0].PeakBytes != 110 {
		t.Errorf("%+v %v", latest, err)
	}
	for name, get := range map[string]func() ([]Past, error){
		"fingerprint": func() ([]Past, error) { return l.PastByFingerprint(ctx, 1001, "f", 5) },
		"script":      func() ([]Past, error) { return l.PastByScript(ctx, 1001, "s", 5) },
	} {
		past, err := get()
		if diff := cmp.Diff([]Past{{Job: id, SlurmJobID: 7, At: done.At, GPU: "rtx3060", Estimator: "vgpu", EstimateBytes: 100, Outcome: OutOfMemory, PeakBytes: 110}}, past); diff != "" || err != nil {
			t.Errorf("%s: %s %v", name, diff, err)
		}
	}
	if past, err := l.PastByFingerprint(ctx, 1002, "f", 5); err != nil || len(past) != 0 {
		t.Errorf("another user sees %+v %v", past, err)
	}
	if dead, err := l.DiedAfterRewrite(ctx, 1001, "f"); err != nil || dead != 7 {
		t.Errorf("%d %v", dead, err)
	}
	if dead, err := l.DiedAfterRewrite(ctx, 1002, "f"); err != nil || dead != 0 {
		t.Errorf("%d %v", dead, err)
	}
	var died1, known int
	if err := l.db.QueryRow("SELECT died, known FROM row_list").Scan(&died1, &known); err != nil || died1 != 1 || known != 1 {
		t.Errorf("%d of %d died, %v", died1, known, err)
	}
}

// TestSharesTeachNothing: a job whose program takes a share of the card was seen to use that share, which says nothing of its need. That it died does.
func TestSharesTeachNothing(t *testing.T) {
	ctx := t.Context()
	l, _ := openLog(t)
	id := rewritten(t, l, "tok", 7, 100, estimator.Reason{Code: "share_of_card", Detail: "75 %"})
	for _, a := range []Actual{
		{At: at, Source: NVMLAccounting, Node: "gpu1", Outcome: Completed, PeakBytes: 9000, AfterRewrite: true},
		{At: at.Add(time.Hour), Source: EpilogOOM, Node: "gpu1", Outcome: OutOfMemory, PeakBytes: 9000, AfterRewrite: true},
	} {
		if _, err := l.AddActual(ctx, id, a, nil, false); err != nil {
			t.Fatal(err)
		}
	}
	if measured, err := l.LatestMeasured(ctx, 10); err != nil || len(measured) != 1 || measured[0].Outcome != OutOfMemory || measured[0].PeakBytes != 0 {
		t.Errorf("%+v %v", measured, err)
	}
	if past, err := l.PastByFingerprint(ctx, 1001, "f", 5); err != nil || len(past) != 1 || past[0].PeakBytes != 0 {
		t.Errorf("%+v %v", past, err)
	}
}

func TestRescues(t *testing.T) {
	ctx := t.Context()
	l, _ := openLog(t)
	id := rewritten(t, l, "tok", 7, 100)
	if _, err := l.AddActual(ctx, id, Actual{At: at, Source: EpilogOOM, Outcome: OutOfMemory, AfterRewrite: true}, nil, true); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ now, next string }{{RescueAsked, RescueRequeued}, {RescueRequeued, RescueRestored}} {
		open, err := l.OpenRescues(ctx)
		if diff := cmp.Diff([]Rescue{{Job: id, At: at, State: step.now}}, open); diff != "" || err != nil {
			t.Errorf("%s %v", diff, err)
		}
		if err := l.MoveRescue(ctx, id, step.next, Event{At: at, State: "verified", Code: step.next}); err != nil {
			t.Fatal(err)
		}
	}
	if open, err := l.OpenRescues(ctx); err != nil || len(open) != 0 {
		t.Errorf("%+v %v", open, err)
	}
}

func TestAwaitingAccountingGoesRound(t *testing.T) {
	ctx := t.Context()
	l, _ := openLog(t)
	for i := range 5 {
		rewritten(t, l, fmt.Sprint("tok", i), uint32(10+i), 100)
	}
	if _, err := l.AddActual(ctx, 2, Actual{At: at, Source: SacctGPUMem, Outcome: Completed}, nil, false); err != nil {
		t.Fatal(err)
	}
	var pages [][]uint32
	for after := int64(0); ; {
		ids, last, err := l.AwaitingAccounting(ctx, at, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, ids)
		if after = last; last == 0 {
			break
		}
	}
	if diff := cmp.Diff([][]uint32{{10, 12}, {13, 14}, nil}, pages); diff != "" {
		t.Error(diff)
	}
	if ids, _, err := l.AwaitingAccounting(ctx, at.Add(time.Second), 0, 9); err != nil || len(ids) != 0 {
		t.Errorf("jobs from before: %v %v", ids, err)
	}
}

func TestTruth(t *testing.T) {
	ctx := t.Context()
	l, _ := openLog(t)
	first, second := rewritten(t, l, "a", 7, 100), rewritten(t, l, "b", 8, 100)
	for _, a := range []struct {
		job int64
		Actual
	}{
		{first, Actual{Source: NVMLAccounting, Outcome: Completed, PeakBytes: 90, AfterRewrite: true}}, {first, Actual{Source: SacctGPUMem, Outcome: Completed, PeakBytes: 80, AfterRewrite: true}},
		{second, Actual{Source: NVMLAccounting, Outcome: Failed, PeakBytes: 110, AfterRewrite: true}}, {second, Actual{Source: EpilogOOM, Outcome: OutOfMemory, AfterRewrite: true}},
	} {
		a.At = at
		if _, err := l.AddActual(ctx, a.job, a.Actual, nil, a.Outcome == OutOfMemory); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.MoveRescue(ctx, second, RescueRestored, Event{At: at, State: "verified"}); err != nil {
		t.Fatal(err)
	}
	want := Truth{Known: 2, Died: 1, DiedAfterRewrite: 1, RanAgain: 1, Errors: []EstimateError{{GPU: "rtx3060", Estimator: "vgpu", Confidence: "exact", Runs: 2, Over: 1, MeanPercent: 0, WorstPercent: 10}}}
	got, err := l.Truth(ctx, Filter{})
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := l.db.Exec("UPDATE jobs SET mode = 'shadow'; UPDATE decisions SET need_bytes = 105"); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Truth(ctx, Filter{Verdict: decision.Rewrite}); err != nil || got.ShadowMeasured != 2 || got.WouldHaveDied != 1 {
		t.Errorf("%+v %v", got, err)
	}
	nobody := uint32(1)
	if got, err := l.Truth(ctx, Filter{UID: &nobody}); err != nil || got.Known != 0 || len(got.Errors) != 0 {
		t.Errorf("%+v %v", got, err)
	}
}

func TestCachedIsOnesOwn(t *testing.T) {
	ctx := t.Context()
	l, _ := openLog(t)
	first, second := rewritten(t, l, "a", 7, 100), rewritten(t, l, "b", 8, 200)
	if err := l.PutInputs(ctx, first, 1, []byte("old")); err != nil {
		t.Fatal(err)
	}
	if err := l.PutInputs(ctx, second, 2, []byte("new")); err != nil {
		t.Fatal(err)
	}
	c, found, err := l.Cached(ctx, 1001, "f", "rtx3060", 0)
	if err != nil || !found || c.Job != second || c.SlurmJobID != 8 || string(c.Inputs) != "new" || c.Estimate.GPU != "rtx3060" || c.Estimate.Ranks[0].ComfortableHighBytes != 200 {
		t.Errorf("%+v %v %v", c, found, err)
	}
	if c, found, err := l.Cached(ctx, 1001, "f", "a100-80", first); err != nil || !found || c.Job != first || c.Inputs != nil {
		t.Errorf("%+v %v %v", c, found, err)
	}
	for name, look := range map[string]func() (Cached, bool, error){
		"user":        func() (Cached, bool, error) { return l.Cached(ctx, 1002, "f", "rtx3060", 0) },
		"fingerprint": func() (Cached, bool, error) { return l.Cached(ctx, 1001, "g", "rtx3060", 0) },
		"card":        func() (Cached, bool, error) { return l.Cached(ctx, 1001, "f", "h100", 0) },
	} {
		if c, found, err := look(); err != nil || found {
			t.Errorf("another %s: %+v %v", name, c, err)
		}
	}
	// What was itself taken over is not handed on.
	if _, err := l.db.Exec("UPDATE estimates SET from_job = 1 WHERE job = ?", second); err != nil {
		t.Fatal(err)
	}
	if c, _, err := l.Cached(ctx, 1001, "f", "rtx3060", 0); err != nil || c.Job != first {
		t.Errorf("%+v %v", c, err)
	}
}
