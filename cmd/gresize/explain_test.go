package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/request"
)

// deadLog is a log with job 7, which was changed, died of memory and ran again.
func deadLog(t *testing.T) string {
	t.Helper()
	path, log := newLog(t)
	defer log.Close()
	at := time.Date(2026, 11, 28, 2, 0, 0, 0, time.UTC)
	ids, err := log.AddJobs(t.Context(), decisionlog.NewJob{Job: decisionlog.Job{Token: "tok", Mode: "enforce", UID: 4000000001, Name: "train\x1b[2J", Asked: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80g"}, SubmittedAt: at}, First: decisionlog.Event{At: at, State: "held"}})
	if err != nil {
		t.Fatal(err)
	}
	id := ids[0]
	answer := estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: "rtx3060", Confidence: estimator.High, Fits: true, Steps: 4, Reasons: []estimator.Reason{{Code: "workspace_bounded", Detail: "cuDNN may choose another workspace"}},
		Ranks: []estimator.Rank{{PeakReservedBytes: 7 << 30, ComfortableBytes: 7 << 30, ComfortableHighBytes: 8 << 30}}}
	for _, step := range []decisionlog.Transition{{From: "held", To: "estimated", SlurmJobID: 7, Estimate: &answer}, {From: "estimated", To: "verified", Finished: true, Decision: &decisionlog.Decision{At: at, Verdict: decision.Rewrite,
		Code: "smaller_row_fits", Reason: "because it fits", MarginBytes: 1 << 28, NeedBytes: 33 << 28, Margin: decisionlog.Margin{Kind: "calibrated", Group: "gpu=rtx3060", Actuals: 120, Died: 1, Ratio: 1.03, TargetFailureRate: 0.01},
		Change: request.Change{Result: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu12g"}}}}} {
		step.Job, step.At = id, at
		if err := log.Advance(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	one, seconds := 1, int64(7200)
	if _, err := log.AddActual(t.Context(), id, decisionlog.Actual{At: at, Source: decisionlog.EpilogOOM, Node: "gpu1", Outcome: decisionlog.OutOfMemory, ExitCode: &one, ElapsedGPUSeconds: &seconds, PeakBytes: 12 << 30, AfterRewrite: true, Detail: "CUDA out of memory"},
		&decisionlog.Event{At: at, State: "verified", Code: "out_of_memory_after_rewrite", Detail: "the job died of GPU memory on what gresize had given it: CUDA out of memory"}, true); err != nil {
		t.Fatal(err)
	}
	if err := log.MoveRescue(t.Context(), id, decisionlog.RescueRestored, decisionlog.Event{At: at, State: "verified", Code: "request_restored", Detail: "the job asks for what it asked"}); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExplainIsOnePageInPlainWords(t *testing.T) {
	db := deadLog(t)
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"explain", "--db", db, "7"}, &out, &errs); code != exitOK {
		t.Fatal(code, errs.String())
	}
	for _, want := range []string{"Requested", "--constraint=gpu80g", "run for 4 training steps on a virtual rtx3060", "at most 8.00 GiB (confidence: high)", "cuDNN may choose another workspace", "asks for --gres=gpu:1 --constraint=gpu12g instead",
		"because it fits", "from 120 jobs of gpu=rtx3060", "ran out of GPU memory, at most 12.00 GiB of one GPU on gpu1, exit code 1, 2.00 GPU-hours", "jobs like it are left alone", "the job asks for what it asked", "gresize:off"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if lines := strings.Count(out.String(), "\n"); lines > 40 || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%d lines, or control characters:\n%s", lines, out.String())
	}
	if strings.Contains(out.String(), "StartTime=now") {
		t.Errorf("a job that has ended is to be started:\n%s", out.String())
	}
	t.Log(out.String())
	out.Reset()
	if code := run(t.Context(), []string{"show", "--db", db, "7"}, &out, &errs); code != exitOK || !strings.Contains(out.String(), "ran out of GPU memory") || !strings.Contains(out.String(), "(calibrated, from 120 jobs") {
		t.Errorf("%d\n%s", code, out.String())
	}
	out.Reset()
	if code := run(t.Context(), []string{"log", "--db", db, "--verdict", "oom", "--csv"}, &out, &errs); code != exitOK || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("%d\n%s", code, out.String())
	}
	out.Reset()
	if code := run(t.Context(), []string{"report", "--db", db}, &out, &errs); code != exitOK || !strings.Contains(out.String(), "1  of them on what gresize had given them") || !strings.Contains(out.String(), "+50.0 %") {
		t.Errorf("%d\n%s", code, out.String())
	}
	if code := run(t.Context(), []string{"explain", "--db", db, "8"}, &out, &errs); code != exitError {
		t.Errorf("a job that is not there: %d", code)
	}
}
