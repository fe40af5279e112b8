package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/contract/contracttest"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/trace"
)

// ran is an earlier job in a log, as gresized writes it.
type ran struct {
	uid                 uint32
	fingerprint, script string
	gpu, estimator      string
	estimateBytes       int64
	outcome             decisionlog.Outcome
	peakBytes           int64
}

func logOf(t *testing.T, jobs []ran) *decisionlog.Log {
	t.Helper()
	ctx, at := t.Context(), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	log, err := decisionlog.Open(ctx, filepath.Join(t.TempDir(), "decisions.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	for i, r := range jobs {
		at := at.Add(time.Duration(i) * time.Minute)
		ids, err := log.AddJobs(ctx, decisionlog.NewJob{Job: decisionlog.Job{Token: fmt.Sprintf("token-%d", i), Mode: "enforce", UID: r.uid, WorkDir: "/home", Profile: r.gpu, Fingerprint: r.fingerprint, ScriptSHA256: r.script, SubmittedAt: at}, First: decisionlog.Event{At: at, State: "held"}})
		if err != nil {
			t.Fatal(err)
		}
		id := ids[0]
		e := estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: r.estimator, GPU: r.gpu, Confidence: estimator.High, Fits: true,
			Ranks: []estimator.Rank{{PeakReservedBytes: r.estimateBytes, ComfortableBytes: r.estimateBytes, ComfortableHighBytes: r.estimateBytes}}}
		for _, step := range []decisionlog.Transition{{From: "held", To: "found", SlurmJobID: uint32(100 + i)}, {From: "found", To: "estimated", Estimate: &e}, {From: "estimated", To: "verified", Finished: true}} {
			step.Job, step.At = id, at
			if err := log.Advance(ctx, step); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := log.AddActual(ctx, id, decisionlog.Actual{At: at.Add(time.Hour), Source: decisionlog.NVMLAccounting, Node: "n1", Outcome: r.outcome, PeakBytes: r.peakBytes}, nil, false); err != nil {
			t.Fatal(err)
		}
	}
	return log
}

// TestHistoryOfTheLog holds, with a real decision log and the daemon's own choice of estimators, when history is believed and when the next one is asked.
func TestHistoryOfTheLog(t *testing.T) {
	card, err := gpu.Load("a100-80")
	if err != nil {
		t.Fatal(err)
	}
	var bundle bytes.Buffer
	if err := trace.Write(&bundle, contracttest.SoundBundle(card)); err != nil {
		t.Fatal(err)
	}
	job := estimator.Job{UID: 1001, Fingerprint: "same", ScriptSHA256: "script"}
	equal := ran{1001, "same", "script", "a100-80", "vgpu", 1_550_000_000, decisionlog.Completed, 1_600_000_000}
	with := func(r ran, change func(*ran)) ran { change(&r); return r }
	times := func(n int, r ran) []ran {
		var all []ran
		for range n {
			all = append(all, r)
		}
		return all
	}
	other := with(equal, func(r *ran) { r.fingerprint, r.estimateBytes, r.peakBytes = "large", 3_000_000_000, 3_300_000_000 })
	const fell = "estimator_fell_back"
	for name, c := range map[string]struct {
		jobs      []ran
		estimator string
		code      string // a reason of the answer
		says      string
		bytes     int64 // 0: whatever the trace says
	}{
		"no earlier job":       {nil, "vgpu", fell, "history: unknown, few_actuals", 0},
		"two":                  {times(2, equal), "vgpu", fell, "few_actuals", 0},
		"three":                {times(3, equal), "history", "earlier_runs", "3 runs of this job", 1_600_000_000},
		"another owner's":      {times(9, with(equal, func(r *ran) { r.uid = 1002 })), "vgpu", fell, "few_actuals", 0},
		"another card":         {times(9, with(equal, func(r *ran) { r.gpu = "rtx3060" })), "vgpu", fell, "few_actuals", 0},
		"failed early":         {times(9, with(equal, func(r *ran) { r.outcome, r.peakBytes = decisionlog.Failed, 1000 })), "vgpu", fell, "few_actuals", 0},
		"far from the trace":   {times(3, with(equal, func(r *ran) { r.peakBytes = 60_000_000_000 })), "vgpu", fell, "actuals_disagree", 0},
		"one died":             {append(times(3, equal), with(equal, func(r *ran) { r.outcome, r.peakBytes = decisionlog.OutOfMemory, 0 })), "vgpu", fell, "actuals_disagree", 0},
		"eight of the script":  {times(8, other), "history", "earlier_runs", "8 runs of this script with other arguments", 0},
		"history's own answer": {times(8, with(other, func(r *ran) { r.estimator = "history" })), "vgpu", fell, "few_actuals", 0},
	} {
		site := &config.Config{Estimators: []config.Estimator{{Name: bundled.HistoryName}, {Name: bundled.Default}}}
		host := newEstimators(site, logOf(t, c.jobs), readerOf(t), slog.New(slog.NewTextHandler(io.Discard, nil)))
		e, err := host.Estimate(t.Context(), job, fileOf(t, bundle.Bytes()), card.ID)
		host.Close()
		if err != nil || e.Estimator != c.estimator {
			t.Errorf("%s: %v, %s answers, want %s: %+v", name, err, e.Estimator, c.estimator, e.Reasons)
			continue
		}
		found := false
		for _, r := range e.Reasons {
			found = found || r.Code == c.code && strings.Contains(r.Detail, c.says)
		}
		if !found {
			t.Errorf("%s: no reason %s with %q in %+v", name, c.code, c.says, e.Reasons)
		}
		if got, _ := e.Largest(); c.bytes != 0 && got.ComfortableHighBytes != c.bytes {
			t.Errorf("%s: %d bytes, want %d", name, got.ComfortableHighBytes, c.bytes)
		}
	}
}

// TestHistoryAloneIsUnknown holds that a site which names history alone gets an answer with its reason, and no fault of the daemon.
func TestHistoryAloneIsUnknown(t *testing.T) {
	card, err := gpu.Load("a100-80")
	if err != nil {
		t.Fatal(err)
	}
	var bundle bytes.Buffer
	if err := trace.Write(&bundle, contracttest.SoundBundle(card)); err != nil {
		t.Fatal(err)
	}
	log := logOf(t, nil)
	e, err := historyEstimator{log, readerOf(t)}.Estimate(t.Context(), estimator.Job{}, fileOf(t, bundle.Bytes()), card.ID)
	if err != nil || e.Confidence != estimator.Unknown || e.Reasons[0].Code != "few_actuals" || strings.Contains(e.Reasons[0].Detail, "GRESIZE_HISTORY") {
		t.Errorf("%v: %+v", err, e)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := (historyEstimator{log, readerOf(t)}).Estimate(t.Context(), estimator.Job{UID: 1, Fingerprint: "f", ScriptSHA256: "s"}, fileOf(t, bundle.Bytes()), card.ID); err == nil {
		t.Error("a log that cannot be read is no fault")
	}
}
