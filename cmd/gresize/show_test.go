package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/request"
)

// newLog is an empty log and its path.
func newLog(t *testing.T) (string, *decisionlog.Log) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log.db")
	log, err := decisionlog.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return path, log
}

// sampleLog writes a log with one job that was changed and one that was left alone.
func sampleLog(t *testing.T) string {
	t.Helper()
	path, l := newLog(t)
	defer l.Close()
	at := time.Date(2026, 11, 28, 2, 0, 0, 0, time.UTC)
	asked := request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80g"}
	ids, err := l.AddJobs(t.Context(), decisionlog.NewJob{Job: decisionlog.Job{Token: "tokenone", Mode: "enforce", UID: 4_000_000_000, Name: "tr\x1b[2Jain", Asked: asked, Fingerprint: strings.Repeat("f", 64),
		ScriptSHA256: strings.Repeat("a", 64), SubmittedAt: at}, First: decisionlog.Event{At: at, State: "held", Detail: "first"}})
	if err != nil {
		t.Fatal(err)
	}
	id := ids[0]
	answer := estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: "a100-80", Confidence: estimator.High, Fits: true, Steps: 4,
		Reasons: []estimator.Reason{{Code: "workspace_bounded", Detail: "conv"}}, Ranks: []estimator.Rank{{PeakAllocatedBytes: 5 << 30, PeakReservedBytes: 6 << 30, OutsideBytes: 1 << 30, ComfortableBytes: 7 << 30, ComfortableHighBytes: 8 << 30}}}
	for _, step := range []decisionlog.Transition{
		{From: "held", To: "estimated", SlurmJobID: 42, Estimate: &answer, NewProbe: &decisionlog.Probe{Name: "gresize-probe-x"}},
		{From: "estimated", To: "decided", Code: "smaller_row_fits", Detail: "why", Decision: &decisionlog.Decision{At: at, Verdict: decision.Rewrite, Code: "smaller_row_fits", Reason: "it fits", MarginBytes: 1 << 29,
			NeedBytes: 17 << 29, Change: request.Change{Result: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu12g"}}}},
		{From: "decided", To: "verified", Code: "running", Finished: true, NodeList: "gpu1"},
	} {
		step.Job, step.At = id, at.Add(time.Second)
		if err := l.Advance(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.AddJobs(t.Context(), decisionlog.NewJob{Job: decisionlog.Job{Token: "tokentwo", Mode: "enforce", UID: 1, Finished: true, Asked: asked, SubmittedAt: at}, First: decisionlog.Event{At: at, State: "left_alone", Code: "array_job"}, Decision: &decisionlog.Decision{At: at, Verdict: decision.LeaveAlone, Code: "array_job", Reason: "it is an array"}}); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLogAndShow(t *testing.T) {
	db := sampleLog(t)
	for _, c := range []struct {
		args []string
		code int
		says []string
	}{
		{[]string{"log", "--db", db}, exitOK, []string{"42 ", "gpu:1 gpu80g", "8.50 GiB", "high", "rewrite", "gpu:1 gpu12g", "verified", "leave alone", "array_job", "tr?[2Jain"}},
		{[]string{"log", "--db", db, "-u", "1"}, exitOK, []string{"array_job"}},
		{[]string{"log", "--db", db, "-u", "nobody-of-this-name"}, exitUsage, []string{"no user"}},
		{[]string{"log", "--db", db, "-n", "0"}, exitUsage, []string{"--limit"}},
		{[]string{"log", "--db", db, "word"}, exitUsage, nil},
		{[]string{"log", "--db", "/nonexistent/db"}, exitError, []string{"has gresized run here?"}},
		{[]string{"show", "--db", db, "42"}, exitOK, []string{"uid 4000000000", "--gres=gpu:1 --constraint=gpu80g", "gresize-probe-x", "7.00 GiB, at most 8.00 GiB", "model and not the library's own answer: conv [workspace_bounded]", "it fits",
			"margin 0.50 GiB, need 8.50 GiB", "to   --gres=gpu:1 --constraint=gpu12g", "[running]", "gpu1", "tr?[2Jain"}},
		{[]string{"show", "--db", db, "tokentwo"}, exitOK, []string{"it is an array"}},
		{[]string{"show", "--db", db, "43"}, exitError, []string{"no such job"}},
		{[]string{"show", "--db", db}, exitUsage, []string{"show: name a job"}},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), c.args, &out, &errs)
		text := out.String() + errs.String()
		if code != c.code {
			t.Errorf("%q: exit code %d, want %d:\n%s", c.args, code, c.code, text)
		}
		for _, word := range c.says {
			if !strings.Contains(text, word) {
				t.Errorf("%q does not say %q:\n%s", c.args, word, text)
			}
		}
		if strings.Contains(text, "\x1b") {
			t.Errorf("%q lets a job's name move the cursor: %q", c.args, text)
		}
	}
}

func TestLogAndShowJSON(t *testing.T) {
	db := sampleLog(t)
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"log", "--json", "--db", db}, &out, &errs); code != exitOK {
		t.Fatal(code, errs.String())
	}
	var list struct {
		Schema string
		Jobs   []struct {
			Job struct {
				SlurmJobID int `json:"slurm_job_id"`
			}
			Decision struct{ Verdict, Code string }
		}
	}
	if err := json.Unmarshal(out.Bytes(), &list); err != nil || list.Schema != schemaLog || len(list.Jobs) != 2 || list.Jobs[1].Job.SlurmJobID != 42 || list.Jobs[1].Decision.Verdict != "rewrite" {
		t.Errorf("%+v %v", list, err)
	}
	out.Reset()
	if code := run(t.Context(), []string{"show", "--json", "--db", db, "42"}, &out, &errs); code != exitOK {
		t.Fatal(code, errs.String())
	}
	var story struct {
		Schema string
		Events []struct{ State string }
	}
	if err := json.Unmarshal(out.Bytes(), &story); err != nil || story.Schema != schemaShow || len(story.Events) != 4 {
		t.Errorf("%+v %v", story, err)
	}
}
