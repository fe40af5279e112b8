package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/answer"
	"github.com/gresize/gresize/slurm/request"
)

// logWith is a log whose every text that a user, a script or an estimator may choose is the given one.
func logWith(t *testing.T, text string) string {
	t.Helper()
	path, l := newLog(t)
	defer l.Close()
	at := time.Now().Add(-time.Minute)
	asked := request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80g" + text}
	for _, finished := range []bool{true, false} {
		job := decisionlog.Job{Token: map[bool]string{true: "done", false: "open"}[finished], Mode: "enforce", UID: 4_000_000_000, Name: "train" + text, Account: "a" + text, Partition: "p" + text, QOS: "q" + text,
			WorkDir: "/w" + text, Asked: asked, Fingerprint: strings.Repeat("f", 64), ScriptSHA256: strings.Repeat("a", 64), Profile: "a100-80", SubmittedAt: at}
		ids, err := l.AddJobs(t.Context(), decisionlog.NewJob{Job: job, First: decisionlog.Event{At: at, State: "held", Detail: "first" + text}})
		if err != nil {
			t.Fatal(err)
		}
		id := ids[0]
		answer := estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: "a100-80", Confidence: estimator.High, Fits: true, Steps: 4,
			Reasons: []estimator.Reason{{Code: "workspace_bounded", Detail: "conv" + text}}, Ranks: []estimator.Rank{{PeakAllocatedBytes: 5 << 30, PeakReservedBytes: 6 << 30, OutsideBytes: 1 << 30, ComfortableBytes: 7 << 30, ComfortableHighBytes: 8 << 30}}}
		for _, step := range []decisionlog.Transition{
			{From: "held", To: "estimated", SlurmJobID: 42 + uint32(len(job.Token)%2), Estimate: &answer, NewProbe: &decisionlog.Probe{Name: "gresize-probe-" + job.Token}, Detail: "d" + text},
			{From: "estimated", To: "decided", Code: "smaller_row_fits", Detail: "why" + text, Decision: &decisionlog.Decision{At: at, Verdict: decision.Rewrite, Code: "smaller_row_fits", Reason: "it fits" + text, MarginBytes: 1 << 29,
				NeedBytes: 17 << 29, Change: request.Change{Result: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu12g" + text}}}},
			{From: "decided", To: "verified", Code: "running", Finished: finished, NodeList: "gpu1" + text, Detail: "on gpu1" + text},
		} {
			step.Job, step.At = id, at.Add(time.Second)
			if err := l.Advance(t.Context(), step); err != nil {
				t.Fatal(err)
			}
		}
	}
	return path
}

// TestHostileTextStaysInItsPlace has names, paths and reasons that move a terminal's cursor, that look like rows of their own, or that write backwards. Whatever lists the log prints
// as many lines as for harmless ones, and no character that a terminal obeys.
func TestHostileTextStaysInItsPlace(t *testing.T) {
	harmless := logWith(t, "xxxx")
	logs := map[string]string{}
	for name, text := range map[string]string{
		"a cleared screen": "\x1b[2J\x1b[H", "a title": "\x1b]0;x\x07", "rows": "\n99  root  forged  rewrite\r\n", "backwards": "\u202egpu\u2066", "C1": "\u009b2J", "tabs": "\t\t\v\f\b", "NUL": "\x00", "no UTF-8": "\xff\xfe\x9b2J",
	} {
		logs[name] = logWith(t, text)
	}
	for _, args := range [][]string{
		{"log"}, {"log", "--csv"}, {"log", "--json"}, {"show", "42"}, {"show", "--json", "42"}, {"explain", "42"}, {"top"}, {"report"}, {"report", "--csv"}, {"report", "--json"},
		{"export", "jobs"}, {"export", "events"}, {"log", "--no-such-flag\x1b[2J"}, {"show", "4\x1b[2J\n2"}, {"explain", "tok\x1b]0;x\x07en"},
		{"log", "--db", "no\nnew row: job 1 rewritten"}, {"simulate", "no\nsuch file"},
	} {
		var want, errs bytes.Buffer
		wantCode := run(t.Context(), append([]string{args[0], "--db", harmless}, args[1:]...), &want, &errs)
		for name, db := range logs {
			var out, errs bytes.Buffer
			code := run(t.Context(), append([]string{args[0], "--db", db}, args[1:]...), &out, &errs)
			if code != wantCode {
				t.Errorf("%q with %s: exit code %d, want %d: %s", args, name, code, wantCode, errs.Bytes())
			}
			if got, want := strings.Count(out.String(), "\n"), strings.Count(want.String(), "\n"); got != want {
				t.Errorf("%q with %s: %d lines, want %d:\n%q", args, name, got, want, out.Bytes())
			}
			for line := range strings.Lines(errs.String()) {
				if !strings.HasPrefix(line, "gresize: ") && !strings.HasPrefix(line, "See gresize ") && !strings.HasPrefix(line, "  ") {
					t.Errorf("%q with %s: a line of its own in the error: %q", args, name, line)
				}
			}
			for _, r := range out.String() + errs.String() {
				if r != '\n' && r != ' ' && !(r == '\t' && args[0] == "export") && !unicode.IsPrint(r) {
					t.Errorf("%q with %s prints %q:\n%q\n%q", args, name, r, out.Bytes(), errs.Bytes())
					break
				}
			}
		}
	}
}

// TestNoSecretInTheBundle: a program reads a key from its environment and works with it, on the virtual GPU and with all parts recorded. Neither the bundle nor the answer holds it.
func TestNoSecretInTheBundle(t *testing.T) {
	const secret = "hunter2-hunter2-hunter2"
	dir := t.TempDir()
	bundle := filepath.Join(dir, "bundle.zip")
	t.Setenv("API_TOKEN", secret)
	a := estimated(t, dir, "--bundle", bundle, "--", torchtest.Python(t, "2.6.0"), script(t, `
import os, torch
token = os.environ["API_TOKEN"]
class Client:
    def __init__(self, token): self.token = token; self.state = {"authorization": "Bearer " + token}
client = Client(token)
model = torch.nn.Linear(1000, 1000).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
assert len(client.token) == 23
for step in range(10):
    optimizer.zero_grad(); model(torch.randn(8, 1000, device="cuda")).sum().backward(); optimizer.step()
`))
	if a.Status != answer.Fits {
		t.Fatalf("%+v", a)
	}
	if text, err := json.Marshal(a); err != nil || strings.Contains(string(text), secret) {
		t.Errorf("the answer holds the secret: %s %v", text, err)
	}
	archive, err := zip.OpenReader(bundle)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		if packed, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
			if data, err = io.ReadAll(packed); err != nil {
				t.Fatal(err)
			}
		}
		if len(data) == 0 || bytes.Contains(data, []byte(secret)) {
			t.Errorf("%s holds the secret, or nothing at all", f.Name)
		}
	}
}
