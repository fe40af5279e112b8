package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/request"
)

var updateReports = flag.Bool("update-reports", false, "write testdata/report.* anew")

// monthLog is a log with one job of each kind that a report tells apart: shadow changes of which one would have died, an array, a death that ran again, an answer that
// was taken over, a job without a limit and one of which nothing is known.
func monthLog(t *testing.T) string {
	t.Helper()
	path, l := newLog(t)
	defer l.Close()
	const gib = int64(1) << 30
	start := time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)
	small := request.Request{TresPerNode: "gres:gpu:1", Features: "gpu12g"}
	for i, j := range []struct {
		name, mode, state string
		verdict           decision.Verdict
		code              string
		limit, tasks      int64
		peak              int64
		outcome           decisionlog.Outcome
		rewritten, rescue bool
		fromJob           int64
	}{
		{name: "shadow-well", mode: "shadow", state: "shadowed", verdict: decision.Rewrite, code: "smaller_row_fits", limit: 600, peak: 7 * gib, outcome: decisionlog.Completed},
		{name: "shadow-dead", mode: "shadow", state: "shadowed", verdict: decision.Rewrite, code: "smaller_row_fits", limit: 60, peak: 11 * gib, outcome: decisionlog.Completed},
		{name: "array", mode: "enforce", state: "verified", verdict: decision.Rewrite, code: "smaller_row_fits", limit: 30, tasks: 100},
		{name: "dies", mode: "enforce", state: "verified", verdict: decision.Rewrite, code: "smaller_row_fits", limit: 120, peak: 12 * gib, outcome: decisionlog.OutOfMemory, rewritten: true, rescue: true},
		{name: "again", mode: "enforce", state: "verified", verdict: decision.Rewrite, code: "smaller_row_fits", limit: 600, peak: 7 * gib, outcome: decisionlog.Completed, rewritten: true, fromJob: 1},
		{name: "right", mode: "enforce", state: "released", verdict: decision.Keep, code: "already_smallest", limit: 240},
		{name: "not-known", mode: "enforce", state: "released", verdict: decision.LeaveAlone, code: "confidence_too_low", limit: decisionlog.NoTimeLimit},
		{name: "open", mode: "enforce", state: "probing"},
	} {
		at := start.AddDate(0, 0, i)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(j.name, err)
			}
		}
		finished := j.state != "probing"
		ids, err := l.AddJobs(t.Context(), decisionlog.NewJob{Job: decisionlog.Job{Token: j.name, Mode: j.mode, UID: uint32(1001 + i%3), Name: j.name, Partition: "gpu", SubmittedAt: at, TimeLimitMinutes: j.limit, Tasks: j.tasks,
			Asked: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80g"}}, First: decisionlog.Event{At: at, State: "found"}})
		must(err)
		step := decisionlog.Transition{Job: ids[0], From: "found", To: j.state, At: at, Finished: finished}
		if j.verdict != "" {
			step.Decision = &decisionlog.Decision{At: at, Verdict: j.verdict, Code: j.code, Reason: "because", NeedBytes: 9 * gib, MarginBytes: gib}
			step.Estimate = &estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: "a100-80", Confidence: estimator.High, Fits: true, Reasons: []estimator.Reason{},
				Ranks: []estimator.Rank{{ComfortableBytes: 7 * gib, ComfortableHighBytes: 8 * gib}}}
			step.FromJob = j.fromJob
		}
		if j.verdict == decision.Rewrite {
			step.Decision.Change = request.Change{Result: small}
		}
		must(l.Advance(t.Context(), step))
		if j.outcome != "" {
			_, err := l.AddActual(t.Context(), ids[0], decisionlog.Actual{At: at, Source: decisionlog.NVMLAccounting, Outcome: j.outcome, PeakBytes: j.peak, AfterRewrite: j.rewritten}, nil, j.rescue)
			must(err)
		}
		if j.rescue {
			must(l.MoveRescue(t.Context(), ids[0], decisionlog.RescueRestored, decisionlog.Event{At: at, State: j.state}))
		}
	}
	return path
}

// TestReportsAreGolden keeps the three forms of the report as people and spreadsheets know them.
func TestReportsAreGolden(t *testing.T) {
	local := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = local })
	db := monthLog(t)
	for form, args := range map[string][]string{"txt": nil, "json": {"--json"}, "csv": {"--csv"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"report", "--db", db, "--config", filepath.Join(t.TempDir(), "none.toml")}, args...), &out, &errs); code != exitOK {
			t.Fatal(form, code, errs.String())
		}
		file := filepath.Join("testdata", "report."+form)
		if *updateReports {
			if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s is not what it was (go test ./cmd/gresize -run ReportsAreGolden -update-reports):\n%s", file, diff)
		}
	}
}
