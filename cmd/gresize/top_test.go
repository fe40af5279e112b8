package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/slurm/request"
)

func TestTop(t *testing.T) {
	path, l := newLog(t)
	defer l.Close()
	now := time.Date(2026, 11, 28, 9, 30, 0, 0, time.Local)
	draw := func() string {
		t.Helper()
		var out bytes.Buffer
		if err := drawTop(t.Context(), &out, l, now); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := draw(); got != "gresize  2026-11-28 09:30:00  no open jobs\n" {
		t.Errorf("without a job: %q", got)
	}
	for _, j := range []decisionlog.Job{
		{Token: "a", Mode: "enforce", State: "probing", UID: 4_000_000_001, Name: "train\x1b[2J", Partition: "gpu", HoldUntil: now.Add(90 * time.Second)},
		{Token: "b", Mode: "enforce", State: "watching", UID: 4_000_000_002, Name: "other"},
		{Token: "c", Mode: "enforce", State: "released", UID: 4_000_000_002, Name: "done", Finished: true},
	} {
		j.Asked, j.SubmittedAt, j.UpdatedAt, j.Fingerprint = request.Request{TresPerNode: "gres:gpu:1"}, now.Add(-time.Minute), now.Add(-5*time.Second), "f"
		if _, err := l.AddJobs(t.Context(), decisionlog.NewJob{Job: j, First: decisionlog.Event{At: j.UpdatedAt, State: j.State}}); err != nil {
			t.Fatal(err)
		}
	}
	const want = `gresize  2026-11-28 09:30:00  2 open: 1 probing, 1 watching

JOB  USER        NAME       PARTITION  ASKED  STATE     FOR  HELD FOR  NEEDS  VERDICT
-    4000000002  other      -          gpu:1  watching  5s   -         -      -
-    4000000001  train?[2J  gpu        gpu:1  probing   5s   1m30s     -      -
`
	if got := draw(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := cutTo(want, 3, 10); got != "gresize  2\r\n\r\n… 3 more" {
		t.Errorf("in a small window: %q", got)
	}

	for i, code := range []string{"no_gpu", decision.CodeProbesFailing, decision.CodeProbesFailing} {
		at := now.Add(time.Duration(i-3) * time.Minute)
		if _, err := l.AddJobs(t.Context(), decisionlog.NewJob{Job: decisionlog.Job{Token: code + at.String(), Mode: "enforce", UID: 7, SubmittedAt: at, Finished: true, Fingerprint: "f"},
			First: decisionlog.Event{At: at, State: "left_alone"}, Decision: &decisionlog.Decision{At: at, Verdict: decision.LeaveAlone, Code: code, Reason: "the last: no such partition"}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := draw(); !strings.HasPrefix(got, "Probes fail: 2 jobs in the last 15m0s passed untried, the last at 09:29:00: the last: no such partition\ngresize ") {
		t.Errorf("with probes that fail:\n%s", got)
	}
	if now = now.Add(time.Hour); draw()[:8] != "gresize " {
		t.Error("an hour later it still says so")
	}

	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"top", "--db", path}, &out, &errs); code != exitOK || !strings.Contains(out.String(), "2 open") {
		t.Errorf("not on a terminal: %d %s%s", code, out.Bytes(), errs.Bytes())
	}
	if code := run(t.Context(), []string{"top", "--db", path, "--interval", "1ms"}, &out, &errs); code != exitUsage {
		t.Errorf("an interval of 1 ms: %d", code)
	}
}
