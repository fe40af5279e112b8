package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/analysis/timeline"
	"github.com/gresize/gresize/estimator/answer"
	"github.com/gresize/gresize/estimator/fit"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// These tests run the whole of `gresize estimate` on real PyTorch wheels. `make
// test` prepares the virtual GPU in build/lib and the environments in GRESIZE_CACHE.

type printed struct {
	reading
	code int
}

func (a printed) has(reason string) bool {
	return a.HasReason(reason)
}

// estimated runs `gresize estimate --json ARGS` in dir.
func estimated(t *testing.T, dir string, args ...string) printed {
	t.Helper()
	lib, err := filepath.Abs("../../build/lib")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GRESIZE_LIBDIR", lib)
	t.Chdir(dir)
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), append([]string{"estimate", "--json"}, args...), &stdout, &stderr)
	a := printed{code: code}
	if err := json.Unmarshal(stdout.Bytes(), &a); err != nil {
		t.Fatalf("exit %d: %v\n%s%s", code, err, stdout.String(), stderr.String())
	}
	if err := loadSchema(t).check(stdout.Bytes()); err != nil {
		t.Errorf("docs/estimate.schema.json: %v", err)
	}
	t.Logf("exit %d, %s", code, stdout.String())
	return a
}

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "train.py")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const resnet = `
import os, sys, torch, torchvision
model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loss_function = torch.nn.CrossEntropyLoss()
for step in range(1000):
    images = torch.randn(64, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (64,), device="cuda")
    optimizer.zero_grad()
    loss_function(model(images), labels).backward()
    optimizer.step()
    torch.save(model.state_dict(), "model.pt")
`

func TestEstimateResnet50(t *testing.T) {
	for _, torch := range []string{"2.6.0", "2.11.0"} {
		t.Run(torch, func(t *testing.T) {
			dir := t.TempDir()
			bundle := filepath.Join(dir, "bundle.zip")
			checkpoint := filepath.Join(dir, "model.pt")
			if err := os.WriteFile(checkpoint, []byte("the only one"), 0o600); err != nil {
				t.Fatal(err)
			}
			a := estimated(t, dir, "--bundle", bundle, "--", torchtest.Python(t, torch), script(t, resnet))
			if a.code != exitOK || a.Status != answer.Fits || len(a.Ranks) != 1 || a.Steps < 4 {
				t.Fatalf("%+v", a)
			}
			if r := a.Ranks[0]; r.PeakReservedBytes < 5<<30 || r.PeakReservedBytes > 8<<30 || r.OutsideBytes < 100<<20 {
				t.Errorf("resnet50 with a batch of 64 takes 5.5 to 7 GiB, not %+v", r)
			}
			if !strings.HasPrefix(a.Versions.Torch, torch) || a.HostPeakBytes > 2<<30 || a.HostPeakBytes < 200<<20 {
				t.Errorf("%+v, %d bytes of host memory", a.Versions, a.HostPeakBytes)
			}
			b, err := trace.ReadFile(bundle)
			if err != nil || b.Manifest.Outcome != trace.Stopped || len(b.Ranks) != 1 {
				t.Errorf("%v %+v", err, b)
			}
			var sum int64
			for _, bytes := range a.PeakByPurpose {
				sum += bytes
			}
			if sum != a.Ranks[0].PeakAllocatedBytes || len(a.Owners) != answer.MostOwners || a.Owners[0].Purpose != "activations" {
				t.Errorf("%d bytes are whose of %d: %+v", sum, a.Ranks[0].PeakAllocatedBytes, a.Owners)
			}
			checkBundleEvents(t, bundle, a.Ranks[0])
			if data, err := os.ReadFile(checkpoint); err != nil || string(data) != "the only one" {
				t.Errorf("the checkpoint was overwritten: %v", err)
			}
		})
	}
}

// checkBundleEvents looks at what the bundle records of the allocator: it replays without a difference, adds up to the same peaks, and has names.
func checkBundleEvents(t *testing.T, bundle string, r estimator.Rank) {
	t.Helper()
	if r.MinimumBytes <= r.PeakAllocatedBytes || r.MinimumBytes > r.ComfortableBytes {
		t.Errorf("a minimum of %d for %+v", r.MinimumBytes, r)
	}
	b, err := trace.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	tl, err := timeline.Read(b, 0, bundle)
	if err != nil {
		t.Fatal(err)
	}
	if int64(tl.PeakAllocatedBytes) != r.PeakAllocatedBytes || int64(tl.PeakReservedBytes) != r.PeakReservedBytes || len(tl.Steps) < 4 {
		t.Errorf("the events give %d allocated, %d reserved, %d steps; PyTorch's counters say %+v", tl.PeakAllocatedBytes, tl.PeakReservedBytes, len(tl.Steps), r)
	}
	named := map[string]bool{}
	for _, o := range tl.OwnersAtPeak() {
		named[o.Category.String()+" "+o.Name] = true
	}
	for _, want := range []string{"activations layer1.0.bn3", "parameters layer4.2.conv3.weight", "parameters bn1.running_var"} {
		if !named[want] {
			t.Errorf("no %q among the owners at the peak", want)
		}
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"simulate", "--check", bundle}, &stdout, &stderr); code != exitOK || !strings.HasSuffix(stdout.String(), " events: 0 differences\n") {
		t.Errorf("simulate --check: exit %d: %s%s", code, stdout.String(), stderr.String())
	}
	for _, out := range []string{"p.svg", "p.html"} {
		if code := run(t.Context(), []string{"plot", bundle, "-o", out}, &stdout, &stderr); code != exitOK {
			t.Errorf("plot -o %s: exit %d: %s", out, code, stderr.String())
		}
	}
	stdout.Reset()
	if code := run(t.Context(), []string{"plot", bundle}, &stdout, &stderr); code != exitOK || !strings.Contains(stdout.String(), "layer1.0.bn3") {
		t.Errorf("plot: exit %d: %s%s", code, stdout.String(), stderr.String())
	}
}

func TestEstimateDoesNotFit(t *testing.T) {
	a := estimated(t, t.TempDir(), "--gpu", "1g.5gb", "--", torchtest.Python(t, "2.6.0"), script(t, resnet))
	if a.code != exitDoesNotFit || a.Status != answer.DoesNotFit || a.Fits || !a.has("out_of_memory") {
		t.Errorf("%+v", a)
	}
}

// TestEstimateBadScripts: each fails or is unknown, with the reason, in good time.
func TestEstimateBadScripts(t *testing.T) {
	fake := t.TempDir()
	if err := os.MkdirAll(filepath.Join(fake, "torch"), 0o755); err != nil {
		t.Fatal(err)
	}
	const cpuOnly = "__version__ = '2.6.0+cpu'\nclass version:\n    cuda = None\n    __version__ = __version__\n" +
		"class cuda:\n    is_available = staticmethod(lambda: False)\n    is_initialized = staticmethod(lambda: False)\n"
	if err := os.WriteFile(filepath.Join(fake, "torch/__init__.py"), []byte(cpuOnly), 0o600); err != nil {
		t.Fatal(err)
	}
	real := torchtest.Python(t, "2.6.0")
	cases := []struct {
		name    string
		command []string
		reason  string
		budget  string
	}{
		{"crashes", []string{real, script(t, "import torch\nx = torch.zeros(8, device='cuda')\nraise ValueError('no data')\n")}, "script_failed", "60s"},
		{"crashes before it imports torch", []string{real, "-c", "raise SystemExit(3)"}, "script_failed", "60s"},
		{"hangs", []string{real, script(t, "import torch, time\nx = torch.zeros(8, device='cuda')\ntime.sleep(600)\n")}, "budget_spent", "4s"},
		{"hangs outside Python", []string{"sh", "-c", "trap '' TERM; sleep 600"}, "budget_spent", "1s"},
		{"never steps", []string{real, script(t, "import torch\nx = torch.zeros(1 << 20, device='cuda') + 1\n")}, "no_step_seen", "60s"},
		{"has no torch", []string{"python3", "-c", "print('hello')"}, "no_torch", "60s"},
		{"cannot import torch", []string{"python3", "-c", "import gresize_no_such_module"}, "script_failed", "60s"},
		{"CPU-only torch", []string{"python3", "-c", "import sys; sys.path.insert(0, '" + fake + "'); import torch; assert torch.cuda.is_available()"}, "cpu_only_torch", "60s"},
		{"no such command", []string{"no-such-command"}, "script_failed", "60s"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			begin := time.Now()
			a := estimated(t, t.TempDir(), append([]string{"--budget", c.budget, "--"}, c.command...)...)
			status := answer.Unknown
			if c.reason == "script_failed" {
				status = answer.Failed
			}
			if a.code != answer.ExitCode(status) || a.Status != status || !a.has(c.reason) {
				t.Errorf("%+v, want %s because of %s", a, status, c.reason)
			}
			if time.Since(begin) > 40*time.Second {
				t.Errorf("took %v", time.Since(begin))
			}
		})
	}
}

// mlp takes 4 x 16 bytes for each of some parameters, and 64 MiB for each unit of its batch.
const mlp = `
import sys, torch
batch = int(sys.argv[sys.argv.index("--batch-size") + 1])
layer = torch.nn.Linear(1024, 1024, bias=False).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for step in range(100):
    x = torch.zeros(batch, 16 << 10, 1024, device="cuda")
    layer(x).sum().backward()
    optimizer.step()
`

func TestFitAndWhatIf(t *testing.T) {
	lib, err := filepath.Abs("../../build/lib")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GRESIZE_LIBDIR", lib)
	train := script(t, mlp)
	var stdout, stderr bytes.Buffer
	// 64 MiB of input and as much of output each, of 11.76 GiB less the context: 64 fit, 96 do not.
	code := run(t.Context(), []string{"fit", "--json", "--gpu", "rtx3060", "--from", "64", "--step", "32", "--", torchtest.Python(t, "2.6.0"), train, "--batch-size", "{}"}, &stdout, &stderr)
	var f fit.Result
	if err := json.Unmarshal(stdout.Bytes(), &f); err != nil {
		t.Fatalf("%d %v %s%s", code, err, stdout.String(), stderr.String())
	}
	if err := loadSchema(t).check(stdout.Bytes()); err != nil {
		t.Error(err)
	}
	if code != exitOK || f.Batch != 64 || f.FailsAt != 96 || !f.Proven || len(f.Runs) != 3 {
		t.Errorf("%d %s", code, stdout.String())
	}
	stdout.Reset()
	code = run(t.Context(), []string{"estimate", "--json", "--gpu", "t4", "--what-if", "gpu=rtx4060,batch=8,conf=expandable_segments:True", "--", torchtest.Python(t, "2.6.0"), train, "--batch-size", "4"}, &stdout, &stderr)
	var table whatIfTable
	if err := json.Unmarshal(stdout.Bytes(), &table); err != nil {
		t.Fatalf("%d %v %s%s", code, err, stdout.String(), stderr.String())
	}
	if err := loadSchema(t).check(stdout.Bytes()); err != nil {
		t.Error(err)
	}
	if code != exitOK || len(table.Rows) != 2 || table.Rows[1].Estimate.GPU != "rtx4060" {
		t.Fatalf("%d %s", code, stdout.String())
	}
	first, second := table.Rows[0].Estimate.Ranks[0].PeakAllocatedBytes, table.Rows[1].Estimate.Ranks[0].PeakAllocatedBytes
	if first < 2*4*64<<20 || second < 2*8*64<<20 || second > 2*first {
		t.Errorf("%d and %d bytes", first, second)
	}
}

// TestTheProgramItself runs the built program, as a person does.
func TestTheProgramItself(t *testing.T) {
	program, err := filepath.Abs("../../build/bin/gresize")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "estimate", "--gpu", "rtx3060", "--", torchtest.Python(t, "2.6.0"), script(t, resnet)).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "fits: NVIDIA GeForce RTX 3060 (11.76 GiB)\n") || !strings.Contains(string(out), "  confidence ") {
		t.Errorf("%v\n%s", err, out)
	}
}
