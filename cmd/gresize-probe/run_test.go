package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/probejob"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/probe/inputs"
	"github.com/gresize/gresize/estimator/probe/sandbox"
	"github.com/gresize/gresize/estimator/trace"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}

// stoppedEngine says that every run was stopped after four steps.
type stoppedEngine struct{}

func (stoppedEngine) Name() string { return "vgpu" }

func (stoppedEngine) Environment(o probe.EngineOptions, _ []string) ([]string, error) {
	return []string{"REPORTS=" + o.ReportDir}, nil
}

func (stoppedEngine) Read(string) (probe.Reports, error) {
	return probe.Reports{TorchSeen: true, Stopped: true, Steps: 4, Ranks: []trace.Rank{{Report: json.RawMessage(`{}`)}}}, nil
}

func (stoppedEngine) Estimate(_ *trace.Bundle, p *gpu.Profile) estimator.Estimate {
	return estimator.NewUnknown("vgpu", p.ID)
}

const key = "one-time-key"

// daemon is the other end, with a fault for each of the first requests.
type daemon struct {
	job    any
	faults int

	mu       sync.Mutex
	requests []string
	bundle   []byte
	failure  []byte
	// inputs and unchanged are what arrived there.
	inputs, unchanged []byte
}

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, r.Method+" "+r.URL.Path)
	body, err := io.ReadAll(r.Body)
	switch {
	case r.Header.Get("Authorization") != "Bearer "+key:
		http.Error(w, "no", http.StatusForbidden)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case d.faults > 0:
		d.faults--
		http.Error(w, "not now", http.StatusServiceUnavailable)
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(d.job)
	case strings.HasSuffix(r.URL.Path, "/inputs"):
		d.inputs = body
		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(r.URL.Path, "/unchanged"):
		d.unchanged = body
		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(r.URL.Path, "/result"):
		d.bundle = body
		w.WriteHeader(http.StatusNoContent)
	default:
		d.failure = body
		w.WriteHeader(http.StatusNoContent)
	}
}

func (d *daemon) run(t *testing.T) (code int, stderr string) {
	t.Helper()
	server := httptest.NewServer(d)
	defer server.Close()
	p := &program{engine: stoppedEngine{}, libDir: "/nowhere", stdout: io.Discard}
	var out bytes.Buffer
	begin := time.Now()
	p.env = []string{"PATH=" + os.Getenv("PATH"), "GRESIZE_PROBE_URL=" + server.URL + "/v1/probes/p1", "GRESIZE_PROBE_KEY=" + key,
		"http_proxy=http://192.0.2.1:1", "HTTP_PROXY=http://192.0.2.1:1", "SLURM_JOB_ID=77", "SLURM_NTASKS=8", "SLURM_STEP_ID=0"}
	code = p.execute(t.Context(), []string{"run"}, &out)
	if time.Since(begin) > 30*time.Second {
		t.Errorf("took %v", time.Since(begin))
	}
	return code, out.String()
}

func job(dir string) probejob.Job {
	return probejob.Job{Schema: probejob.Schema, Script: []byte("#!/bin/sh\necho \"$@\"; pwd; env; exit 4\n"), Argv: [][]byte{[]byte("a b"), []byte("c")},
		WorkDir: dir, GPU: "t4", Steps: 4, BudgetSeconds: 60, Devices: 2, Array: &probejob.ArrayTask{JobID: 70, Task: 7, Count: 16, Max: 15, Step: 1},
		Recording: probejob.Recording{Mode: "profile", Parts: []string{"published"}}}
}

func TestProbeJob(t *testing.T) {
	dir := t.TempDir()
	d := &daemon{job: job(dir), faults: 1}
	if code, stderr := d.run(t); code != exitOK || stderr != "" {
		t.Fatalf("%d %s", code, stderr)
	}
	b, err := trace.Decode(d.bundle)
	if err != nil {
		t.Fatal(err)
	}
	m := b.Manifest
	if m.Outcome != trace.Stopped || m.ExitStatus != 4 || m.Steps != 4 || m.GPU.ID != "t4" || m.GPU.Devices != 2 || !m.Sandboxed || m.Mode != trace.ModeProfile {
		t.Errorf("%+v", m)
	}
	for _, want := range []string{"a b c\n" + dir + "\n", "SLURM_JOB_ID=77\n", "SLURM_NTASKS=1\n", "SLURM_GPUS_ON_NODE=2\n", "SLURM_JOB_GPUS=0,1\n", "CUDA_VISIBLE_DEVICES=0,1\n",
		"SLURM_ARRAY_TASK_ID=7\n", "SLURM_ARRAY_JOB_ID=70\n", "SLURM_ARRAY_TASK_COUNT=16\n", "SLURM_ARRAY_TASK_MIN=0\n", "SLURM_ARRAY_TASK_MAX=15\n"} {
		if !strings.Contains(m.OutputTail, want) {
			t.Errorf("no %q in\n%s", want, m.OutputTail)
		}
	}
	for _, bad := range []string{key, "GRESIZE_PROBE_URL", "SLURM_STEP_ID", "SLURM_NTASKS=8"} {
		if strings.Contains(m.OutputTail, bad) {
			t.Errorf("the script saw %q", bad)
		}
	}
	if want := "GET /v1/probes/p1,GET /v1/probes/p1,POST /v1/probes/p1/result"; strings.Join(d.requests, ",") != want {
		t.Errorf("requests %v, want %s", d.requests, want)
	}
}

// TestAJobOnASlice sees its UUID where a job on a whole card sees a number.
func TestAJobOnASlice(t *testing.T) {
	j := job(t.TempDir())
	j.GPU, j.Devices = "a100-3g.20gb", 1
	d := &daemon{job: j}
	if code, stderr := d.run(t); code != exitOK || stderr != "" {
		t.Fatalf("%d %s", code, stderr)
	}
	b, err := trace.Decode(d.bundle)
	if err != nil {
		t.Fatal(err)
	}
	if want := "CUDA_VISIBLE_DEVICES=MIG-22222222-2222-2222-2222-222222222222\n"; !strings.Contains(b.Manifest.OutputTail, want) {
		t.Errorf("no %q in\n%s", want, b.Manifest.OutputTail)
	}
}

func TestProbeJobFailures(t *testing.T) {
	dir := t.TempDir()
	cases := map[string]struct {
		change  func(*probejob.Job)
		faults  int
		code    int
		failure string // in what was reported
		stderr  string
	}{
		"unknown GPU":       {func(j *probejob.Job) { j.GPU = "abacus" }, 0, exitOK, "unknown GPU", ""},
		"unknown mode":      {func(j *probejob.Job) { j.Recording.Mode = "abacus" }, 0, exitOK, "recording.mode", ""},
		"other schema":      {func(j *probejob.Job) { j.Schema = "x/2" }, 0, exitError, "", "schema"},
		"no script":         {func(j *probejob.Job) { j.Script = nil }, 0, exitError, "", "script"},
		"no such directory": {func(j *probejob.Job) { j.WorkDir = "/no/such" }, 0, exitOK, "", ""},
		"relative path":     {func(j *probejob.Job) { j.WorkDir = "x" }, 0, exitError, "", "work_dir"},
		"daemon is down":    {func(*probejob.Job) {}, 9, exitError, "", "503"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			j := job(dir)
			c.change(&j)
			d := &daemon{job: j, faults: c.faults}
			code, stderr := d.run(t)
			if code != c.code || !strings.Contains(stderr, c.stderr) || !strings.Contains(string(d.failure), c.failure) {
				t.Errorf("%d, stderr %q, reported %q", code, stderr, d.failure)
			}
		})
	}
}

func TestAWrongKeyIsNotTriedAgain(t *testing.T) {
	d := &daemon{job: job("/")}
	server := httptest.NewServer(d)
	defer server.Close()
	_, err := newClient(server.URL, "other").job(t.Context())
	if err == nil || len(d.requests) != 1 {
		t.Errorf("%v after %v", err, d.requests)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, io.LimitReader(zeros{}, maxJobBytes+2))
	}))
	defer server.Close()
	if _, err := newClient(server.URL, key).job(t.Context()); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestByHand(t *testing.T) {
	out := filepath.Join(t.TempDir(), "b.zip")
	var stdout, stderr bytes.Buffer
	p := &program{engine: stoppedEngine{}, libDir: "/nowhere", stdout: &stdout, env: []string{"PATH=" + os.Getenv("PATH")}}
	if code := p.execute(t.Context(), []string{"run", "--out", out, "--gpu", "h100", "--", "sh", "-c", "true"}, &stderr); code != exitOK {
		t.Fatalf("%d %s", code, stderr.String())
	}
	if b, err := trace.ReadFile(out); err != nil || b.Manifest.Outcome != trace.Stopped || !strings.Contains(stdout.String(), "stopped after 4 steps") {
		t.Errorf("%v %s", err, stdout.String())
	}
	for _, args := range [][]string{{"run"}, {"run", "--out", out}, {"run", "--", "true"}, {"run", "--steps", "x"}, {"run", "--out", out, "--mode", "abacus", "--", "true"}, {"run", "--out", out, "--gpu", "abacus", "--", "true"}} {
		if code := p.execute(t.Context(), args, &stderr); code != exitUsage {
			t.Errorf("%q: exit %d, want %d", args, code, exitUsage)
		}
	}
}

// TestFilesAreLookedAtFirst: with the files of an earlier run unchanged nothing is run; with one of them changed the script is, and its own files are told.
func TestFilesAreLookedAtFirst(t *testing.T) {
	dir := t.TempDir()
	settings := filepath.Join(dir, "settings.sh")
	old := time.Now().Add(-time.Hour)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(settings, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(settings, old, old); err != nil {
			t.Fatal(err)
		}
	}
	write("x=1\n")
	j := job(dir)
	j.Script, j.RecordInputs = []byte("#!/bin/sh\n. ./settings.sh\n"), true
	d := &daemon{job: j}
	if code, stderr := d.run(t); code != exitOK || stderr != "" {
		t.Fatalf("%d %s", code, stderr)
	}
	list, err := inputs.Unpack(d.inputs)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list.Folders, func(f inputs.Folder) bool { return f.Path == dir+"/" })
	if i < 0 || !slices.Equal(list.Folders[i].Names, []string{"settings.sh"}) {
		t.Fatalf("%+v", list)
	}
	j.Inputs, j.InputsOf = d.inputs, 31
	d = &daemon{job: j}
	if code, stderr := d.run(t); code != exitOK || stderr != "" || d.bundle != nil || string(d.unchanged) != `{"job":31}` {
		t.Errorf("%d %s; a bundle of %d bytes, unchanged %s", code, stderr, len(d.bundle), d.unchanged)
	}
	write("x=2\n")
	d = &daemon{job: j}
	if code, stderr := d.run(t); code != exitOK || stderr != "" || d.bundle == nil || d.unchanged != nil || bytes.Equal(d.inputs, j.Inputs) {
		t.Errorf("%d %s; a bundle of %d bytes, unchanged %s", code, stderr, len(d.bundle), d.unchanged)
	}
}

// TestQuestionsAreLookedAtFirst: a script that does one thing or another by what is there, or by the names in a folder, is run again when that has changed.
func TestQuestionsAreLookedAtFirst(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "shards"), 0o755); err != nil {
		t.Fatal(err)
	}
	j := job(dir)
	j.Script, j.RecordInputs = []byte("#!/bin/sh\nif [ -e resume.pt ]; then echo resumes; fi\nls shards\n"), true
	d := &daemon{job: j}
	if code, stderr := d.run(t); code != exitOK || stderr != "" || d.inputs == nil {
		t.Fatalf("%d %s", code, stderr)
	}
	j.Inputs, j.InputsOf = d.inputs, 31
	for _, c := range []struct {
		name    string
		change  func() error
		ranSame bool
	}{
		{"nothing", func() error { return nil }, true},
		{"a file that nobody asks about", func() error { return os.WriteFile(filepath.Join(dir, "out.txt"), nil, 0o600) }, true},
		{"a checkpoint", func() error { return os.WriteFile(filepath.Join(dir, "resume.pt"), nil, 0o600) }, false},
		{"none again", func() error { return os.Remove(filepath.Join(dir, "resume.pt")) }, true},
		{"one more shard", func() error { return os.WriteFile(filepath.Join(dir, "shards", "1"), nil, 0o600) }, false},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		d = &daemon{job: j}
		if code, stderr := d.run(t); code != exitOK || stderr != "" || (d.unchanged != nil) != c.ranSame || (d.bundle == nil) != c.ranSame {
			t.Errorf("after %s: %d %s; a bundle of %d bytes, unchanged %s", c.name, code, stderr, len(d.bundle), d.unchanged)
		}
	}
}

func TestNumbersAreDecimal(t *testing.T) {
	cmd, _, err := (&program{}).command().Find([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gpus", "steps"} {
		value := cmd.Flags().Lookup(name).Value
		if err := value.Set("010"); err != nil || value.String() != "10" {
			t.Errorf("--%s 010 is %s: %v", name, value, err)
		}
		if err := value.Set("0x10"); err == nil {
			t.Errorf("--%s 0x10 is %s", name, value)
		}
	}
}
