package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe/sandbox"
	"github.com/gresize/gresize/estimator/trace"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}

// scripted is an engine whose reports are written by the command itself, as JSON of Reports.
type scripted struct{}

func (scripted) Name() string { return "vgpu" }

func (scripted) Environment(o EngineOptions, env []string) ([]string, error) {
	return []string{"GRESIZE_VGPU_REPORT_DIR=" + o.ReportDir, "GRESIZE_VGPU_PROFILE=" + o.ProfilePath,
		fmt.Sprintf("GRESIZE_PROBE_STEPS=%d", o.Steps)}, nil
}

func (scripted) Read(dir string) (Reports, error) {
	var r Reports
	data, err := os.ReadFile(filepath.Join(dir, "python-1.json"))
	if os.IsNotExist(err) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err
}

func (scripted) Estimate(b *trace.Bundle, p *gpu.Profile) estimator.Estimate {
	return estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: p.ID, Confidence: estimator.Exact, Fits: true,
		Reasons: b.Manifest.Reasons,
		Ranks:   []estimator.Rank{{PeakAllocatedBytes: 1, PeakReservedBytes: 2, OutsideBytes: 3, ComfortableBytes: 5, ComfortableHighBytes: 6}}}
}

func options(t *testing.T, script string) Options {
	t.Helper()
	p, err := gpu.Load("t4")
	if err != nil {
		t.Fatal(err)
	}
	return Options{Command: []string{"/bin/sh", "-c", script}, Dir: t.TempDir(), GPU: p, LibDir: "/nowhere", Engine: scripted{}, Version: "test",
		Budget: 30 * time.Second, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=/root"}}
}

func mustRun(t *testing.T, o Options) Result {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Bundle.Validate(); err != nil {
		t.Errorf("bundle: %v", err)
	}
	if err := r.Estimate.Validate(); err != nil {
		t.Errorf("estimate: %v", err)
	}
	return r
}

const report = `echo '{"TorchSeen":true,"Stopped":%v,"Steps":%d,"OutOfMemory":%v,"CPUOnly":%v,"BudgetSpent":%v,"Ranks":[{"Report":{}}]}' > $GRESIZE_VGPU_REPORT_DIR/python-1.json; `

func TestOutcomes(t *testing.T) {
	cases := []struct {
		name, script string
		outcome      trace.Outcome
		reason       string
		confidence   estimator.Confidence
	}{
		{"stopped", fmt.Sprintf(report, true, 4, false, false, false), trace.Stopped, "", estimator.Exact},
		{"stopped, then the rest of the script fails", fmt.Sprintf(report, true, 4, false, false, false) + "cat model.pt", trace.Stopped, "script_failed", estimator.High},
		{"completed", fmt.Sprintf(report, false, 2, false, false, false), trace.Completed, "", estimator.Exact},
		{"no step", fmt.Sprintf(report, false, 0, false, false, false), trace.NoStep, "no_step_seen", ""},
		{"crashed", "echo Traceback; echo 'ValueError: no data' >&2; exit 3", trace.Crashed, "script_failed", estimator.Unknown},
		{"crashed after a step", fmt.Sprintf(report, false, 1, false, false, false) + "exit 1", trace.Crashed, "script_failed", estimator.Unknown},
		{"ended by a signal", "kill -SEGV $$", trace.Crashed, "script_failed", estimator.Unknown},
		{"out of memory", fmt.Sprintf(report, false, 1, true, false, false) + "exit 1", trace.OutOfMemory, "out_of_memory", ""},
		{"a refusal that was got over", fmt.Sprintf(report, false, 1, true, false, false), trace.Completed, "", estimator.Exact},
		{"no torch", "true", trace.NoTorch, "no_torch", estimator.Unknown},
		{"CPU-only torch", fmt.Sprintf(report, false, 0, false, true, false) + "exit 1", trace.CPUOnlyTorch, "cpu_only_torch", estimator.Unknown},
		{"budget seen by the virtual GPU", fmt.Sprintf(report, true, 1, false, false, true), trace.Timeout, "budget_spent", ""},
		{"no such command", "no-such-command", trace.Crashed, "script_failed", estimator.Unknown},
		{"wrong report", "echo '{' > $GRESIZE_VGPU_REPORT_DIR/python-1.json", trace.NoStep, "bundle_invalid", estimator.Unknown},
		{"report is a link", "ln -s /etc/passwd $GRESIZE_VGPU_REPORT_DIR/python-1.json", trace.NoTorch, "no_torch", estimator.Unknown},
		{"report is a pipe", "mkfifo $GRESIZE_VGPU_REPORT_DIR/python-1.json", trace.NoTorch, "no_torch", estimator.Unknown},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := mustRun(t, options(t, c.script))
			m := r.Bundle.Manifest
			if m.Outcome != c.outcome {
				t.Errorf("outcome %s, want %s: %+v", m.Outcome, c.outcome, m)
			}
			has := r.Estimate.HasReason(c.reason)
			if c.reason != "" && !has || c.reason == "" && len(r.Estimate.Reasons) != 0 {
				t.Errorf("reasons %+v, want %q", r.Estimate.Reasons, c.reason)
			}
			if c.confidence != "" && r.Estimate.Confidence != c.confidence {
				t.Errorf("confidence %s, want %s", r.Estimate.Confidence, c.confidence)
			}
		})
	}
}

// TestTheCPUAloneIsSaid holds that a training that used no GPU is told so, whatever else is to be said of it.
func TestTheCPUAloneIsSaid(t *testing.T) {
	without := strings.ReplaceAll(report, `"Ranks":[{"Report":{}}]`, `"Ranks":[]`)
	for name, script := range map[string]string{
		"completed": fmt.Sprintf(without, false, 20, false, false, false), "stopped": fmt.Sprintf(without, true, 4, false, false, false),
		"no step": fmt.Sprintf(without, false, 0, false, false, false),
	} {
		e := mustRun(t, options(t, script)).Estimate
		if e.Confidence != estimator.Unknown || !e.HasReason("no_gpu_used") {
			t.Errorf("%s: %s, %+v", name, e.Confidence, e.Reasons)
		}
	}
	e := mustRun(t, options(t, "echo 'ImportError: no' >&2; exit 1")).Estimate
	if e.HasReason("no_gpu_used") {
		t.Errorf("a command that failed: %+v", e.Reasons)
	}
}

func TestLastWords(t *testing.T) {
	const frames = "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\n"
	for output, want := range map[string]string{
		"":                               "",
		"one\ntwo\n\n":                   "two",
		frames + "ValueError: no data\n": "ValueError: no data",
		frames + "RuntimeError: CUDA error: device-side assert\nCUDA kernel errors might be asynchronously reported.\nCompile with `TORCH_USE_CUDA_DSA`.\n": "RuntimeError: CUDA error: device-side assert",
		frames + "RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s): \"fc.weight\".\n\tUnexpected key(s): \"x\".\n":                   "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s): \"fc.weight\".",
		frames + "KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n" + frames + "OSError: gone\nsrun: error: task 0\n": "OSError: gone",
		"log\nTraceback (most recent call last):\n  File": "File",
	} {
		if got := lastWordsOf(output); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
}

// TestSaidBefore: of a launcher that reports that a program failed, what was said before is the program's.
func TestSaidBefore(t *testing.T) {
	const launcher = "W1129 22:20:00.378000 35 torch/distributed/run.py:792] \nE1129 22:20:00.857000 35 torch/x.py:869] failed (exitcode: 2)\nTraceback (most recent call last):\n  File \"torchrun\", line 8\nChildFailedError: \n====\n"
	for output, want := range map[string]string{
		"": "", launcher: "",
		"python: can't open file 'a.py'\n[W1129 22:20:00.759950684 socket.cpp:204] no name\n" + launcher: "python: can't open file 'a.py'",
		"Traceback (most recent call last):\n  File \"a.py\", line 1\nValueError: no data\n" + launcher:  "ValueError: no data",
	} {
		if got := saidBefore(output); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
}

func TestCrashShowsTheLastWords(t *testing.T) {
	r := mustRun(t, options(t, "seq 1 100000; echo 'ValueError: no data' >&2; exit 3"))
	m := r.Bundle.Manifest
	if m.ExitStatus != 3 || !strings.HasSuffix(m.OutputTail, "ValueError: no data\n") || len(m.OutputTail) > 64<<10 {
		t.Errorf("status %d, %d bytes of output", m.ExitStatus, len(m.OutputTail))
	}
	if d := r.Estimate.Reasons[0].Detail; d != "exit status 3: ValueError: no data" {
		t.Errorf("%q", d)
	}
}

func TestHangIsKilled(t *testing.T) {
	o := options(t, "trap '' TERM INT; sleep 300 & sleep 300")
	o.Budget = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // rather than the grace of ten seconds
	defer cancel()
	begin := time.Now()
	r, err := Run(ctx, o)
	if err != nil || r.Bundle.Manifest.Outcome != trace.Timeout || r.Estimate.Confidence != estimator.Unknown || time.Since(begin) > 5*time.Second {
		t.Errorf("%v %+v after %v", err, r, time.Since(begin))
	}
}

func TestEnvironmentInside(t *testing.T) {
	o := options(t, `env | sort; cat $GRESIZE_VGPU_PROFILE; `+`srun -n 2 echo "as $SLURM_PROCID"; exit 9`)
	o.Env = append(o.Env, "GRESIZE_PROBE_KEY=secret", "CUDA_VISIBLE_DEVICES=3", "USER_OWN=kept", "WANDB_MODE=online")
	m := mustRun(t, o).Bundle.Manifest
	for _, want := range []string{"PATH=" + sandbox.ShimDir + ":", "WANDB_MODE=disabled\n", "HF_HUB_OFFLINE=1\n", "USER_OWN=kept\n", "HOME=/root\n",
		"name=Tesla T4\n", "attr.16=40\n", "GRESIZE_PROBE_STEPS=4\n"} {
		if !strings.Contains(m.OutputTail, want) {
			t.Errorf("no %q in\n%s", want, m.OutputTail)
		}
	}
	for _, bad := range []string{"secret", "CUDA_VISIBLE_DEVICES", "online"} {
		if strings.Contains(m.OutputTail, bad) {
			t.Errorf("%q is inside", bad)
		}
	}
	data, err := json.Marshal(m.Command)
	if err != nil || strings.Contains(string(data), "secret") {
		t.Errorf("the record holds the environment: %s", data)
	}
	if len(m.Calls) != 1 || m.Calls[0].Name != "srun" || m.Calls[0].Action != "ran" {
		t.Errorf("calls: %+v", m.Calls)
	}
}

func TestScriptRunsByItsOwnInterpreter(t *testing.T) {
	o := options(t, "")
	o.Command = []string{"one", "two words"}
	o.Script = []byte("#!/usr/bin/env python3\nimport sys, os\nprint(sys.argv[1:], os.getcwd())\nsys.exit(5)\n")
	m := mustRun(t, o).Bundle.Manifest
	if want := fmt.Sprintf("['one', 'two words'] %s\n", o.Dir); m.OutputTail != want || m.ExitStatus != 5 {
		t.Errorf("%d %q, want %q", m.ExitStatus, m.OutputTail, want)
	}
}

func TestWithoutSandbox(t *testing.T) {
	o := options(t, fmt.Sprintf(report, true, 4, false, false, false)+"touch made; python3 -c 'import time; b = bytearray(100 << 20); time.sleep(0.3)'")
	o.NoSandbox = true
	r := mustRun(t, o)
	if m := r.Bundle.Manifest; m.Outcome != trace.Stopped || m.Sandboxed || m.HostPeakBytes < 100<<20 {
		t.Errorf("%+v", m)
	}
	if _, err := os.Stat(filepath.Join(o.Dir, "made")); err != nil {
		t.Error("the command did not run in the real directory")
	}
}

// TestNoSandboxIsSaid goes where no user namespace can be made: into a plain chroot, as root. A user runs the other tests.
func TestNoSandboxIsSaid(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("run by root in make test")
	}
	if os.Getenv("GRESIZE_TEST_CHROOT") == "" {
		root := t.TempDir()
		if err := syscall.Mount("/", root, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Unmount(root, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}()
		if err := syscall.Mount("", root, "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "GRESIZE_TEST_CHROOT=1")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	r := mustRun(t, options(t, "true"))
	if r.Bundle.Manifest.Outcome != trace.NotRun || r.Estimate.Confidence != estimator.Unknown {
		t.Fatalf("%+v", r)
	}
	if x := r.Estimate.Reasons[0]; x.Code != "no_sandbox" || !strings.Contains(x.Detail, "plain chroot") || !strings.Contains(x.Detail, "operation not permitted") {
		t.Errorf("%+v", x)
	}
}

func TestCollectIsBounded(t *testing.T) {
	from := t.TempDir()
	for _, name := range []string{"a.json", "b.jsonl", "Upper.json", "x.sh", ".hidden.json", "native-12.json"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(filepath.Join(from, "b.jsonl"), maxReportFileBytes+1); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(from, "link.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(from, "dir.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(from, "socket.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	to := filepath.Join(t.TempDir(), "to")
	if err := collect(from, to); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(to)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if strings.Join(names, " ") != "a.json native-12.json" {
		t.Errorf("%v", names)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var x tail
	for i := range 100000 {
		fmt.Fprintf(&x, "line %d\n", i)
	}
	if text := x.text(); !strings.HasSuffix(text, "line 99999\n") || len(text) > keptOutputBytes || len(x.kept) > 3*keptOutputBytes {
		t.Errorf("%d bytes kept", len(x.kept))
	}
}
