package vgpu

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

const mib = int64(1) << 20

type outcome struct {
	output  string
	failed  bool
	reports Reports
	ranks   []rankReport
}

// train runs one case of testdata/train.py on the virtual H100.
func train(t *testing.T, release, name string, more ...string) outcome {
	t.Helper()
	return runPython(t, release, 1, []string{"testdata/train.py", name}, more...)
}

// runPython runs a script on virtual H100s, and notes it for the table of releases.
func runPython(t *testing.T, release string, devices int, args []string, more ...string) outcome {
	t.Helper()
	begin := time.Now()
	o := runInterpreter(t, torchtest.Python(t, release), devices, args, more...)
	matrix.note(t, release, args[len(args)-1], &o, time.Since(begin))
	return o
}

// runInterpreter is runPython for any program that is called as an interpreter is.
func runInterpreter(t *testing.T, interpreter string, devices int, args []string, more ...string) outcome {
	t.Helper()
	dir := t.TempDir()
	profile, err := gpu.Load("h100")
	if err != nil {
		t.Fatal(err)
	}
	profilePath := filepath.Join(dir, "profile")
	f, err := os.Create(profilePath)
	if err != nil {
		t.Fatal(err)
	}
	if err := profile.WriteNative(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	reports := filepath.Join(dir, "reports")
	if err := os.Mkdir(reports, 0o755); err != nil {
		t.Fatal(err)
	}
	env, err := Environment(Options{LibDir: libDir(t), ProfilePath: profilePath, ReportDir: reports, Devices: devices, Seconds: 240}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	limit := 5 * time.Minute // what is tested is not how fast a busy machine is
	if strings.Contains(interpreter, "-triton/") {
		limit = 10 * time.Minute // compilers take their time where all processors are in use
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, args...)
	cmd.Env = append(append(os.Environ(), append(env, "GRESIZE_PROBE_QUICK=1")...), more...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what a script has forked ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	o := outcome{output: string(out), failed: err != nil}
	if o.reports, err = ReadReports(reports); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, r := range o.reports.Ranks {
		if len(r.Parts) > 0 && !slices.ContainsFunc(more, func(kv string) bool { return strings.HasPrefix(kv, "GRESIZE_PROBE_PARTS=") }) {
			t.Error("an optional part was recorded unasked")
		}
		rank, err := parseRank(r.Report)
		if err != nil {
			t.Fatal(err)
		}
		o.ranks = append(o.ranks, rank)
	}
	return o
}

func (o *outcome) estimate(t *testing.T, as trace.Outcome) estimator.Estimate {
	t.Helper()
	profile, err := gpu.Load("h100")
	if err != nil {
		t.Fatal(err)
	}
	e := Estimate(&trace.Bundle{Manifest: trace.Manifest{Outcome: as, Steps: o.reports.Steps, Reasons: o.reports.Reasons}, Ranks: o.reports.Ranks}, profile)
	if err := e.Validate(); err != nil {
		t.Error(err)
	}
	return e
}

// twoWorkspaces are cuBLAS's on Hopper: 32 MiB for the thread of the forward pass and as much for that of the backward pass.
const twoWorkspaces = 2 * 32 * mib

// trainingState is what the parameters of a model take under AdamW: themselves, their gradients and two moments.
func trainingState(parameters int64) int64 { return 4 * 4 * parameters }

func TestTraining(t *testing.T) {
	const (
		mlpParameters         = 1024*4096 + 4096 + 4096*10 + 10
		layerParameters       = 3*512*512 + 3*512 + 512*512 + 512 + 2*512*2048 + 2048 + 512 + 4*512
		transformerParameters = 4*layerParameters + 512*1000 + 1000
		lstmParameters        = 4 * 256 * (128 + 256 + 2 + 256 + 256 + 2)
		cnnActivations        = 64 * 64 * 64 * 64 * 2 // one output of a convolution in fp16
	)
	for _, c := range []struct {
		name string
		// least is known by arithmetic. exact is the allocated and the reserved peak of each release; they come from
		// PyTorch's own allocator, so they change only when a stub answers otherwise than before.
		least      int64
		workspaces int64 // cuBLAS's, on top
		slack      int64
		exact      map[string][2]int64
		confidence estimator.Confidence
		libraries  []string
	}{
		// The foreach form of AdamW holds the square roots of one moment of all parameters: one copy more. The batch and,
		// in 2.11, cuBLASLt's own workspace of 1 MiB come on top.
		{name: "mlp", least: trainingState(mlpParameters) + 4*mlpParameters, workspaces: twoWorkspaces, slack: 20 * mib,
			exact: map[string][2]int64{"2.1.2": {152949760, 159383552}, "2.6.0": {152949760, 159383552}, "2.11.0": {153998336, 159383552}, "2.15.0": {106615808, 142606336}}, confidence: estimator.High, libraries: []string{"cublas", "cublaslt"}},
		{name: "transformer", least: trainingState(transformerParameters), workspaces: twoWorkspaces, slack: 160 * mib,
			exact: map[string][2]int64{"2.6.0": {365448704, 390070272}, "2.11.0": {366501376, 390070272}}, libraries: []string{"cublas"}},
		{name: "lstm", least: trainingState(lstmParameters), slack: 120 * mib, confidence: estimator.High, libraries: []string{"cudnn"}},
		// Outputs of convolution, normalisation, ReLU and the second convolution are alive at the end of the forward pass.
		{name: "cnn", least: 4*cnnActivations + 32*mib, slack: 400 * mib, confidence: estimator.High, libraries: []string{"cublas", "cudnn"}},
	} {
		for _, release := range releases(t) {
			t.Run(c.name+"-"+release, func(t *testing.T) {
				t.Parallel()
				o := train(t, release, c.name)
				if o.failed || !o.reports.Stopped || len(o.ranks) != 1 || len(o.reports.UnansweredSymbols) != 0 {
					t.Fatalf("failed %v, stopped %v, %d ranks, unanswered %v\n%s", o.failed, o.reports.Stopped, len(o.ranks), o.reports.UnansweredSymbols, o.output)
				}
				r := o.ranks[0]
				if r.Steps < 4 || !r.Flat || !r.Coverage.KnownRelease {
					t.Errorf("%d steps, flat %v, known release %v", r.Steps, r.Flat, r.Coverage.KnownRelease)
				}
				least, most := c.least, c.least+c.workspaces+c.slack
				if holdsWorkspaces(release) {
					least += c.workspaces
				}
				if r.PeakAllocatedBytes < least || r.PeakAllocatedBytes > most {
					t.Errorf("allocated %d, by arithmetic %d to %d", r.PeakAllocatedBytes, least, most)
				}
				if want, ok := c.exact[release]; ok && (r.PeakAllocatedBytes != want[0] || r.PeakReservedBytes != want[1]) {
					t.Errorf("allocated %d, reserved %d; before %d, %d", r.PeakAllocatedBytes, r.PeakReservedBytes, want[0], want[1])
				}
				if r.PeakDeviceBytes != r.PeakReservedBytes {
					t.Errorf("the card gave %d, the allocator says %d", r.PeakDeviceBytes, r.PeakReservedBytes)
				}
				for _, l := range c.libraries {
					if !slices.Contains(o.reports.Libraries, l) {
						t.Errorf("libraries %v lack %s", o.reports.Libraries, l)
					}
				}
				if !strings.HasPrefix(o.reports.Versions.Torch, release) || o.reports.Versions.CUDA == "" {
					t.Errorf("versions %+v", o.reports.Versions)
				}
				e := o.estimate(t, trace.Stopped)
				if c.confidence != "" && e.Confidence != c.confidence {
					t.Errorf("confidence %s, want %s: %v", e.Confidence, c.confidence, e.Reasons)
				}
				if !e.Fits || e.Ranks[0].ComfortableBytes <= r.PeakReservedBytes+300*mib {
					t.Errorf("fits %v, comfortable %d: the context must be in it", e.Fits, e.Ranks[0].ComfortableBytes)
				}
			})
		}
	}
}

func TestEndsOfRuns(t *testing.T) {
	for _, release := range releases(t) {
		t.Run("by-hand-"+release, func(t *testing.T) {
			t.Parallel()
			o := train(t, release, "by_hand")
			if !o.reports.Stopped || o.reports.Steps < 4 || o.ranks[0].BackwardCalls != backwardFactor*o.reports.Steps {
				t.Errorf("stopped %v after %d steps\n%s", o.reports.Stopped, o.reports.Steps, o.output)
			}
		})
		t.Run("decides-"+release, func(t *testing.T) {
			t.Parallel()
			o := train(t, release, "decides")
			e := o.estimate(t, trace.Stopped)
			if e.Confidence != estimator.Low || !e.HasReason("values_compared") {
				t.Errorf("confidence %s: %v", e.Confidence, e.Reasons)
			}
		})
		t.Run("killed-early-"+release, func(t *testing.T) {
			t.Parallel()
			o := train(t, release, "killed_early")
			e := o.estimate(t, trace.Completed)
			if e.Confidence != estimator.Unknown || !e.HasReason("run_cut_short") || len(e.Ranks) != 1 || e.Ranks[0].ComfortableBytes < 4<<30 {
				t.Errorf("%+v\n%s", e, o.output)
			}
		})
		t.Run("masked-"+release, func(t *testing.T) {
			t.Parallel()
			o := train(t, release, "masked")
			if e := o.estimate(t, trace.Stopped); e.Confidence != estimator.Low || !e.HasReason("values_bounded") {
				t.Errorf("confidence %s: %v\n%s", e.Confidence, e.Reasons, o.output)
			}
		})
		t.Run("swallowed-"+release, func(t *testing.T) {
			t.Parallel()
			o := train(t, release, "swallowed")
			if e := o.estimate(t, trace.Completed); e.Confidence != estimator.Low || !e.HasReason("phase_not_reached") || !e.HasReason("memory_fraction") {
				t.Errorf("confidence %s: %v\n%s", e.Confidence, e.Reasons, o.output)
			}
		})
		t.Run("uncached-"+release, func(t *testing.T) {
			t.Parallel()
			o := train(t, release, "mlp", "PYTORCH_NO_CUDA_MEMORY_CACHING=1")
			e := o.estimate(t, trace.Stopped)
			if o.failed || e.Confidence != estimator.Low || !e.HasReason("memory_uncounted") || e.HasReason("peak_still_rising") || e.Ranks[0].OutsideBytes < 128*mib {
				t.Errorf("failed %v: %+v\n%s", o.failed, e, o.output)
			}
		})
		t.Run("guards-"+release, func(t *testing.T) {
			t.Parallel()
			o := train(t, release, "guards")
			e := o.estimate(t, trace.Stopped)
			if e.Confidence != estimator.High || e.HasReason("values_compared") || e.HasReason("values_read_back") || !e.HasReason("run_cut_short") {
				t.Errorf("confidence %s: %v", e.Confidence, e.Reasons)
			}
		})
		t.Run("too-large-"+release, func(t *testing.T) {
			t.Parallel()
			o := train(t, release, "too_large")
			if !o.failed || !o.reports.OutOfMemory || o.reports.Stopped || !strings.Contains(o.output, "Tried to allocate 100.00 GiB") {
				t.Errorf("out of memory %v\n%s", o.reports.OutOfMemory, o.output)
			}
			if e := o.estimate(t, trace.OutOfMemory); e.Fits || e.Confidence != estimator.Unknown {
				t.Errorf("fits %v, confidence %s", e.Fits, e.Confidence)
			}
		})
		t.Run("retry-"+release, func(t *testing.T) {
			t.Parallel()
			o := train(t, release, "retry")
			if o.failed || len(o.ranks) != 1 || o.ranks[0].Retries == 0 {
				t.Fatalf("retries of the allocator: %+v\n%s", o.ranks, o.output)
			}
			if e := o.estimate(t, trace.Stopped); e.Fits || e.Confidence != estimator.Low {
				t.Errorf("fits %v, confidence %s", e.Fits, e.Confidence)
			}
		})
		t.Run("graphs-"+release, func(t *testing.T) {
			t.Parallel()
			for _, conf := range []string{"", "expandable_segments:True"} {
				o := train(t, release, "graphs", "PYTORCH_CUDA_ALLOC_CONF="+conf)
				if o.failed || len(o.reports.UnansweredSymbols) != 0 || len(o.ranks) != 1 || o.ranks[0].PeakDeviceBytes < o.ranks[0].PeakReservedBytes {
					t.Errorf("%q: unanswered %v\n%s", conf, o.reports.UnansweredSymbols, o.output)
				}
			}
		})
	}
}
