package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/answer"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/probe/sandbox"
	"github.com/gresize/gresize/estimator/trace"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}

func result(change func(*probe.Result)) probe.Result {
	r := probe.Result{
		Bundle: &trace.Bundle{Manifest: trace.Manifest{Outcome: trace.Stopped}},
		Estimate: estimator.Estimate{
			Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: "h100", Confidence: estimator.High, Fits: true, Steps: 4, WallSeconds: 3.456,
			HostPeakBytes: 700 << 20, Reasons: []estimator.Reason{{Code: "workspace_bounded", Detail: "cuDNN"}},
			Ranks: []estimator.Rank{{PeakAllocatedBytes: 5 << 30, PeakReservedBytes: 6 << 30, OutsideBytes: 1 << 29,
				ComfortableBytes: 6<<30 + 1<<29, ComfortableHighBytes: 7 << 30}},
		},
	}
	if change != nil {
		change(&r)
	}
	return r
}

// textCase is a run and the word for it.
type textCase struct {
	result probe.Result
	status string
}

func textCases() map[string]textCase {
	return map[string]textCase{
		"fits": {result(nil), answer.Fits},
		"does-not-fit": {result(func(r *probe.Result) {
			r.Estimate.Fits = false
			r.Estimate.Reasons = []estimator.Reason{{Code: "out_of_memory", Detail: "the command needs more than the modelled card has"}}
			r.Bundle.Manifest.OutputTail = "torch.OutOfMemoryError: CUDA out of memory\n"
		}), answer.DoesNotFit},
		"crashed": {result(func(r *probe.Result) {
			r.Estimate = estimator.NewUnknown("vgpu", "h100", estimator.Reason{Code: "script_failed", Detail: "exit status 1: \x1b[31mValueError"})
			r.Bundle.Manifest.Outcome, r.Bundle.Manifest.ExitStatus = trace.Crashed, 1
			r.Bundle.Manifest.OutputTail = strings.Repeat("noise\n", 100) + "\x1b[2JTraceback\n\tValueError\n"
			r.Bundle.Manifest.Calls = []trace.Call{{Name: "sbatch", Action: "refused"}, {Name: "srun", Action: "ran"}}
		}), answer.Failed},
		"perhaps-ours": {result(func(r *probe.Result) {
			r.Estimate = estimator.NewUnknown("vgpu", "h100", estimator.Reason{Code: "script_failed", Detail: "exit status 139: "},
				estimator.Reason{Code: "symbol_unanswered", Detail: "cudaSomethingNew"})
			r.Bundle.Manifest.Outcome, r.Bundle.Manifest.ExitStatus, r.Bundle.Manifest.Signal = trace.Crashed, 139, 11
		}), answer.Unknown},
		"owners": {result(func(r *probe.Result) {
			r.Bundle.Manifest.Versions.Torch = "2.6.0+cu124"
			r.Bundle.Ranks = []trace.Rank{{EventsFormat: trace.EventsJSON, Events: []byte(`{"name":0,"text":"fc"}
{"name":1,"text":"fc.weight\u001b[2J"}
{"history":1,"device":0,"allocations":3}
{"action":"alloc","addr":1,"size":3000000}
{"mark":"enter","value":0}
{"action":"alloc","addr":2,"size":1000000}
{"mark":"leave"}
{"action":"alloc","addr":3,"size":500}
{"own":"parameter","addr":1,"name":1}
`)}}
		}), answer.Fits},
		"near-capacity": {result(func(r *probe.Result) {
			r.Estimate.Fits, r.Estimate.Confidence = false, estimator.Low
			r.Estimate.Reasons = []estimator.Reason{{Code: "near_capacity"}}
		}), answer.Unknown},
		"too-close": {result(func(r *probe.Result) { r.Estimate.Ranks[0].ComfortableHighBytes = 1 << 40 }), answer.Unknown},
	}
}

func TestTextForm(t *testing.T) {
	p, err := gpu.Load("h100")
	if err != nil {
		t.Fatal(err)
	}
	fixed := *p // the figures of the profile may change, the form not
	fixed.Total.Bytes = 80 << 30
	for name, c := range textCases() {
		t.Run(name, func(t *testing.T) {
			r := newReading(&c.result, &fixed)
			if r.Status != c.status || r.ExitCode != answer.ExitCode(c.status) {
				t.Errorf("status %q, exit code %d, want %q", r.Status, r.ExitCode, c.status)
			}
			var got bytes.Buffer
			if err := r.print(&got); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"estimate"}, exitUsage, "no command"},
		{[]string{"estimate", "--gpu", "abacus", "--", "true"}, exitUsage, "rtx3060"},
		{[]string{"estimate", "--steps", "0", "--", "true"}, exitUsage, "positive"},
		{[]string{"estimate", "--budget", "soon", "--", "true"}, exitUsage, "budget"},
		{[]string{"abacus"}, exitUsage, "abacus"},
		{[]string{"gpu", "show"}, exitUsage, "one name"},
		{[]string{"gpu", "list", "x"}, exitUsage, "x"},
		{[]string{"calibrate", "--compare", "x.jsonl"}, exitUsage, "--gpu"},
		{[]string{"calibrate", "--compare", "/nowhere/x.jsonl", "--gpu", "t4"}, exitError, "/nowhere/x.jsonl"},
		{[]string{"calibrate", "--python", "/no/such/python"}, exitError, "no such file"},
		{[]string{"gpu", "capture"}, exitUsage, "-o"},
		{[]string{"gpu", "capture", "-o", "h100.txt"}, exitUsage, ".json"},
		{[]string{"gpu", "capture", "-o", "/nowhere/x.json", "--python", "/no/such/python"}, exitError, "no such file"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), c.args, &stdout, &stderr); code != c.code || !strings.Contains(stderr.String(), c.text) || stdout.Len() != 0 {
			t.Errorf("%q: %d\n%s%s", c.args, code, stdout.String(), stderr.String())
		}
	}
}

func TestErrorsAreJSONWhereJSONIsWanted(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"estimate", "--json", "--gpu", "abacus", "--", "true"}, &stdout, &stderr)
	if err := loadSchema(t).check(stdout.Bytes()); err != nil {
		t.Error(err)
	}
	var got struct {
		Error    string `json:"error"`
		ExitCode int    `json:"exit_code"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil || got.ExitCode != code || got.Error == "" {
		t.Errorf("%v: %s", err, stdout.String())
	}
	// In a file, or for another program, the message is on standard error too; on a terminal it would be read twice.
	if stderr.Len() == 0 {
		t.Error("nothing on standard error")
	}
	stderr.Reset()
	if code := run(t.Context(), []string{"estimate", "--json", "--gpu", "abacus", "--", "true"}, terminal(t), &stderr); code != exitUsage || stderr.Len() > 0 {
		t.Errorf("said twice on a terminal: %d, %s", code, stderr.String())
	}
}

// terminal is one that nobody looks at.
func terminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return slave
}

func TestVersion(t *testing.T) {
	var verb, flag, stderr bytes.Buffer
	if code := run(t.Context(), []string{"version"}, &verb, &stderr); code != exitOK || !strings.HasPrefix(verb.String(), "gresize version ") {
		t.Errorf("%d %s%s", code, verb.String(), stderr.String())
	}
	if code := run(t.Context(), []string{"--version"}, &flag, &stderr); code != exitOK || flag.String() != verb.String() {
		t.Errorf("%d %q, the verb says %q", code, flag.String(), verb.String())
	}
}

func TestGPUVerbs(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"gpu", "list"}, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), "NVIDIA GeForce RTX 3060") {
		t.Errorf("%d %s%s", code, stdout.String(), stderr.String())
	}
	stdout.Reset()
	if code := run(t.Context(), []string{"gpu", "show", "--json", "a100-80"}, &stdout, &stderr); code != 0 {
		t.Errorf("%d %s", code, stderr.String())
	}
	path := filepath.Join(t.TempDir(), "own.json")
	if err := os.WriteFile(path, stdout.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := gpu.Load(path); err != nil || p.ID != "a100-80" {
		t.Errorf("what show prints cannot be read: %v", err)
	}
}

func TestProgress(t *testing.T) {
	var b bytes.Buffer
	if newProgressLine(&b, false) != nil {
		t.Error("progress is shown to a file that nobody asked it for")
	}
	p := newProgressLine(&b, true)
	p.begin("batch 8: ")
	p.show(probe.Progress{Elapsed: 250 * time.Millisecond, LastLine: "\x1b[31mepoch 1\a"})
	p.show(probe.Progress{Elapsed: 300 * time.Millisecond, TorchSeen: true}) // too soon
	p.show(probe.Progress{Elapsed: 2 * time.Second, TorchSeen: true, Ranks: 1, Steps: 1, PeakReservedBytes: 3 << 30, LastLine: "epoch 1"})
	p.show(probe.Progress{Elapsed: 4 * time.Second, TorchSeen: true, Ranks: 1, Steps: 1, PeakReservedBytes: 3 << 30, LastLine: "epoch 1"})
	p.end()
	want := "gresize: batch 8: 0.2 s: starting | ?[31mepoch 1?\ngresize: batch 8: 2.0 s: 1 step, 3.00 GiB reserved | epoch 1\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	b.Reset()
	p = &progressLine{w: &b, terminal: true, columns: 30}
	p.show(probe.Progress{Elapsed: 2 * time.Second, Steps: 3, LastLine: "a line that is longer than the terminal is wide"})
	p.end()
	if got := b.String(); strings.Contains(got, "\n") || !strings.HasSuffix(got, "\r\x1b[K") || len([]rune(strings.Split(got, "\x1b[K")[1])) > 31 {
		t.Errorf("%q", got)
	}
}

// TestWhatTheVirtualGPUSawIsItsOwn holds that the owners of memory, which the virtual GPU recorded, are no part of another estimator's answer.
func TestWhatTheVirtualGPUSawIsItsOwn(t *testing.T) {
	profile, err := gpu.Load("rtx3060")
	if err != nil {
		t.Fatal(err)
	}
	for name, looked := range map[string]bool{"vgpu": true, "horus": false} {
		result := probe.Result{Estimate: estimator.Estimate{Estimator: name, Confidence: estimator.High, Fits: true, Ranks: []estimator.Rank{{ComfortableBytes: 1, ComfortableHighBytes: 1}}},
			Bundle: &trace.Bundle{Manifest: trace.Manifest{Outcome: trace.Stopped}, Ranks: []trace.Rank{{EventsFormat: trace.EventsJSON, Events: []byte("{")}}}}
		r := newReading(&result, profile)
		if got := len(r.Notes) > 0; got != looked || len(r.Owners) != 0 {
			t.Errorf("%s: looked at what was recorded: %v, %q", name, got, r.Notes)
		}
	}
}

// TestProcessesOneAfterTheOther: two processes on one GPU are no two GPUs.
func TestProcessesOneAfterTheOther(t *testing.T) {
	for _, c := range []struct {
		devices, ranks int
		want, not      string
	}{{1, 2, "process 1", "GPU 1"}, {1, 1, "GPU 0", "process"}, {2, 2, "GPU 1", "process"}, {0, 2, "GPU 1", "process"}} {
		r := readingOf(1, 0)
		r.Devices = c.devices
		for i := 1; i < c.ranks; i++ {
			k := r.Ranks[0]
			k.Rank = i
			r.Ranks = append(r.Ranks, k)
		}
		var out bytes.Buffer
		if err := r.print(&out); err != nil || !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), c.not) {
			t.Errorf("%+v: %v\n%s", c, err, out.String())
		}
	}
}
