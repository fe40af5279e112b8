package vgpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/analysis/timeline"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// jaxReport is what a process of JAX leaves that needed 6 GiB of the 60 GiB that its allocator had of a card with 80.
func jaxReport(t *testing.T, pid int, changes map[string]any) []byte {
	t.Helper()
	report := map[string]any{
		"schema": schemaJAX, "pid": pid, "reason": "exit", "python": "3.11.2", "jax": "0.10.2", "plugin": "cuda12", "plugin_version": "0.10.2",
		"backends": []string{"cpu", "gpu"}, "failures": map[string]string{"tpu": "no libtpu.so"}, "allocator": "default", "preallocates": true, "processes": 1,
		"interface": 112, "steps": 20, "flat": true, "began_unix": 1000.0, "wall_seconds": 10.0, "host_peak_bytes": 1 << 30,
		"devices":      []map[string]any{{"index": 0, "peak_in_use_bytes": 6 << 30, "limit_bytes": 60 << 30, "peak_pool_bytes": 60 << 30, "largest_bytes": 1 << 30, "allocations": 9}},
		"computations": []map[string]any{{"name": "jit_step", "executions": 20, "argument_bytes": 1 << 30, "output_bytes": 1 << 30, "alias_bytes": 0, "temporary_bytes": 1 << 30}},
	}
	maps.Copy(report, changes)
	data, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// jaxNative is what the stubs of that process report.
func jaxNative(t *testing.T, pid int, changes map[string]any) []byte {
	t.Helper()
	all := map[string]any{"torch": "", "bounded": map[string]any{}, "unanswered": map[string]any{}, "values_read_back": 900,
		"devices": []map[string]any{{"index": 0, "total_bytes": 80 << 30, "peak_bytes": 60 << 30, "allocations": 1}}}
	maps.Copy(all, changes)
	return nativeReport(t, pid, all)
}

func TestJAXReports(t *testing.T) {
	none := []map[string]any{}
	torch := map[string]any{"devices": []map[string]any{{"index": 0, "peak_allocated_bytes": 1 << 30, "peak_reserved_bytes": 2 << 30}}}
	for _, c := range []struct {
		name       string
		jax        map[string]any
		native     map[string]any
		torch      map[string]any
		confidence estimator.Confidence
		reasons    []string
		// needed is what the allocators need together; comfortable the smallest card.
		needed, comfortable int64
	}{
		// 6 GiB are three quarters of 8 GiB: a smaller card has no such share.
		{name: "to its end", confidence: estimator.High, reasons: []string{"kernels_chosen", "share_of_card"}, needed: 6 << 30, comfortable: 8 << 30},
		{name: "not to its end", jax: map[string]any{"reason": "stopped"}, confidence: estimator.Low, reasons: []string{"phase_not_reached"}, needed: 6 << 30, comfortable: 8 << 30},
		{name: "to its end in time-lapse", jax: map[string]any{"reason": "stopped", "time_lapse": "program"}, confidence: estimator.High, reasons: []string{"run_cut_short"}, needed: 6 << 30, comfortable: 8 << 30},
		{name: "in time-lapse until nothing new came", jax: map[string]any{"reason": "stopped", "time_lapse": "nothing_new"}, confidence: estimator.Low, reasons: []string{"phase_not_reached"}, needed: 6 << 30, comfortable: 8 << 30},
		{name: "to its end in time-lapse, but for a part", jax: map[string]any{"reason": "stopped", "time_lapse": "program", "changes_ahead": []string{"train.py line 7"}}, confidence: estimator.Low, reasons: []string{"phase_not_reached"}, needed: 6 << 30, comfortable: 8 << 30},
		{name: "each step leaves something", jax: map[string]any{"reason": "stopped", "time_lapse": "program", "step_leaves_bytes": 1 << 20, "steps_in_all": 1 << 20}, confidence: estimator.Low, reasons: []string{"memory_grows"}, needed: 6 << 30, comfortable: 8 << 30},
		{name: "the first answer stands", jax: map[string]any{"reason": "stopped", "goes_on": true}, confidence: estimator.Low, reasons: []string{"phase_not_reached"}, needed: 6 << 30, comfortable: 8 << 30},
		{name: "an allocator without counters", jax: map[string]any{"allocator": "platform", "devices": []map[string]any{{"index": 0}}},
			native:     map[string]any{"devices": []map[string]any{{"index": 0, "total_bytes": 80 << 30, "peak_bytes": 7 << 30, "allocations": 9}}},
			confidence: estimator.High, reasons: []string{"kernels_chosen"}, needed: 7 << 30, comfortable: 7<<30 + 1},
		{name: "memory beside the allocator", native: map[string]any{"devices": []map[string]any{{"index": 0, "total_bytes": 80 << 30, "peak_bytes": 64 << 30, "allocations": 9}}},
			confidence: estimator.High, reasons: []string{"share_of_card"}, needed: 6 << 30, comfortable: 10<<30 + 1},
		{name: "beside PyTorch", torch: torch, native: map[string]any{"devices": []map[string]any{{"index": 0, "total_bytes": 80 << 30, "peak_bytes": 62 << 30, "allocations": 9}}},
			confidence: estimator.Low, reasons: []string{"jax_with_torch"}, needed: 8 << 30, comfortable: 8<<30 + 1},
		{name: "without a plugin, beside a card that PyTorch uses", jax: map[string]any{"plugin": nil, "backends": []string{"cpu"}, "devices": none}, torch: torch,
			native: map[string]any{"devices": []map[string]any{{"index": 0, "total_bytes": 80 << 30, "peak_bytes": 2 << 30, "allocations": 9}}}, confidence: estimator.High, reasons: []string{"run_cut_short"}, needed: 2 << 30, comfortable: 2<<30 + 1},
		{name: "branches by arrays", jax: map[string]any{"values": map[string]any{"uses": map[string]int{"bool": 3}}}, confidence: estimator.Low, reasons: []string{"values_bounded"}, needed: 6 << 30, comfortable: 8 << 30},
		{name: "fetches floats", jax: map[string]any{"values": map[string]any{"uses": map[string]int{"fetched": 3}}}, confidence: estimator.Low, reasons: []string{"values_bounded"}, needed: 6 << 30, comfortable: 8 << 30},
		{name: "a release that nobody tried", jax: map[string]any{"jax": "0.99.0"}, confidence: estimator.High, reasons: []string{"unknown_release"}, needed: 6 << 30, comfortable: 8 << 30},
		{name: "an interface that nobody knows", jax: map[string]any{"interface": -1}, confidence: estimator.Unknown, reasons: []string{"unknown_release"}, needed: 6 << 30, comfortable: 8 << 30},
		{name: "one of several processes", jax: map[string]any{"processes": 4}, confidence: estimator.Low, reasons: []string{"ranks_not_run"}, needed: 6 << 30, comfortable: 8 << 30},
		{name: "the first of several processes", jax: map[string]any{"process": 0, "processes": 4}, confidence: estimator.Low, reasons: []string{"ranks_not_run"}, needed: 6 << 30, comfortable: 8 << 30},
		{name: "no plugin", jax: map[string]any{"plugin": nil, "backends": []string{"cpu"}, "devices": none}, native: map[string]any{"devices": none}, confidence: estimator.Unknown, reasons: []string{"cpu_only_jax"}},
		{name: "a plugin that found no card", jax: map[string]any{"backends": []string{"cpu"}, "failures": map[string]string{"cuda": "no driver"}, "devices": none}, native: map[string]any{"devices": none},
			confidence: estimator.Unknown, reasons: []string{"jax_without_gpu"}},
		{name: "a TPU", jax: map[string]any{"backends": []string{"tpu"}, "devices": none}, native: map[string]any{"devices": none}, confidence: estimator.Unknown, reasons: []string{"not_covered"}},
		{name: "no ptxas", jax: map[string]any{"reason": "exception", "exception": map[string]any{"type": "XlaRuntimeError", "text": "NOT_FOUND: Couldn't find a suitable version of ptxas"}},
			confidence: estimator.Unknown, reasons: []string{"no_ptxas"}, needed: 6 << 30, comfortable: 8 << 30},
		{name: "TensorFlow", jax: map[string]any{"reason": reasonTensorFlow, "devices": none}, native: map[string]any{"devices": none}, confidence: estimator.Unknown, reasons: []string{"tensorflow"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string][]byte{"jax-7.json": jaxReport(t, 7, c.jax), "native-7.json": jaxNative(t, 7, c.native)}
			if c.torch != nil {
				files["python-7.json"] = pythonReport(t, 7, c.torch)
			}
			r, err := ReadReports(reportDir(t, files))
			if err != nil {
				t.Fatal(err)
			}
			profile, err := gpu.Load("h100")
			if err != nil {
				t.Fatal(err)
			}
			as := trace.Completed
			if r.Stopped {
				as = trace.Stopped
			}
			e := Estimate(&trace.Bundle{Manifest: trace.Manifest{Outcome: as, Steps: r.Steps, Reasons: r.Reasons}, Ranks: r.Ranks}, profile)
			if err := e.Validate(); err != nil {
				t.Fatal(err)
			}
			if e.Confidence != c.confidence {
				t.Errorf("confidence %s, want %s: %v", e.Confidence, c.confidence, e.Reasons)
			}
			for _, code := range c.reasons {
				if !e.HasReason(code) {
					t.Errorf("no %s among %v", code, e.Reasons)
				}
			}
			if c.needed == 0 {
				if len(e.Ranks) != 0 {
					t.Errorf("ranks: %v", e.Ranks)
				}
				return
			}
			if len(e.Ranks) != 1 || e.Ranks[0].PeakReservedBytes != c.needed {
				t.Fatalf("ranks: %+v, want a need of %d", e.Ranks, c.needed)
			}
			if got := e.Ranks[0].ComfortableBytes; c.comfortable&1 == 0 && got != c.comfortable || got < c.comfortable {
				t.Errorf("a card of %d, want %d", got, c.comfortable)
			}
			if e.Ranks[0].ComfortableHighBytes <= e.Ranks[0].ComfortableBytes {
				t.Error("the interval has no width")
			}
		})
	}
}

func TestJAXReportsAreChecked(t *testing.T) {
	for name, changes := range map[string]map[string]any{
		"another schema":           {"schema": "gresize.vgpu.jax/2"},
		"negative need":            {"devices": []map[string]any{{"index": 0, "peak_in_use_bytes": -1}}},
		"more than the limit":      {"devices": []map[string]any{{"index": 0, "peak_in_use_bytes": 2, "limit_bytes": 1}}},
		"a card of a large number": {"devices": []map[string]any{{"index": 1 << 20}}},
		"too many computations":    {"computations": make([]Computation, maxComputations+1)},
		"a size beyond all":        {"computations": []Computation{{TemporaryBytes: 1 << 60}}},
		"negative steps":           {"steps": -1},
		"negative time":            {"wall_seconds": -1},
		"too many processes":       {"processes": 1 << 30},
		"a negative process":       {"process": -1},
		"a negative node":          {"node": -1},
		"a negative card":          {"cards": []int{-1}},
		"too many cards":           {"cards": make([]int, maxDevicesInOne+1)},
		"negative compile time":    {"compile_seconds": -1},
		"more steps than any":      {"steps_in_all": 1 << 60},
		"negative uses":            {"values": map[string]any{"uses": map[string]int{"bool": -1}}},
	} {
		if _, err := ParseJAX(jaxReport(t, 7, changes)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := ParseJAX(jaxReport(t, 7, nil)); err != nil {
		t.Error(err)
	}
}

func FuzzParseJAX(f *testing.F) {
	f.Add([]byte(`{"schema":"gresize.vgpu.jax/1","pid":1,"reason":"exit","devices":[{"index":0,"peak_in_use_bytes":5}],"computations":[{"name":"jit_step"}]}`))
	f.Add([]byte(`{"schema":"gresize.vgpu.jax/1","failures":{"cuda":"x"},"began_unix":1e300}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if j, err := ParseJAX(data); err == nil && (len(j.Devices) > maxDevicesInOne || j.Steps < 0) {
			t.Fatalf("%s was taken", data)
		}
	})
}

// jaxPython is the interpreter of an environment with JAX; without it the test is passed over by name.
func jaxPython(t *testing.T, release string) string {
	t.Helper()
	path := filepath.Join(torchtest.Cache(), "venv-jax-"+release, "bin", "python")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%v: `tools/setup jax %s` prepares it", err, release)
	}
	return path
}

// bfcGranule is what XLA's allocator rounds every size up to.
const bfcGranule = 256

// TestJAXPerceptron trains in plain JAX on the virtual card; what lives at the peak of a step is known by arithmetic.
func TestJAXPerceptron(t *testing.T) {
	for _, release := range []string{"0.10.2", "0.4.38"} {
		t.Run(release, func(t *testing.T) {
			const width, layers, batch = 2048, 4, 1024
			o := runInterpreter(t, jaxPython(t, release), 1, []string{"testdata/jax/perceptron.py", "--width", "2048", "--layers", "4", "--batch-size", "1024", "--steps", "40"}, "GRESIZE_PROBE_QUICK=")
			if o.failed || len(o.ranks) != 1 || o.ranks[0].Pool == nil {
				t.Fatalf("%+v\n%s", o.reports, o.output)
			}
			pool := o.ranks[0].Pool
			// Parameters and moments, of which the step makes new ones beside the old ones, and the batch.
			const state = 2 * layers * (4*width*width + 4*width)
			least := int64(2*state + 4*batch*width)
			// At least the activations of each layer are kept for the backward pass in temporaries, at most all of them and the gradients.
			most := least + layers*4*width*width + 4*layers*4*batch*width + 64*mib
			if pool.NeededBytes < least || pool.NeededBytes > most || pool.NeededBytes%bfcGranule != 0 {
				t.Errorf("needed %d, want %d to %d", pool.NeededBytes, least, most)
			}
			if share := float64(pool.LimitBytes) / float64(pool.CardBytes); share < 0.749 || share > 0.751 || pool.HeldBytes != pool.LimitBytes {
				t.Errorf("of %d the allocator has %d, and may have %d", pool.CardBytes, pool.HeldBytes, pool.LimitBytes)
			}
			e := o.estimate(t, trace.Completed)
			if o.reports.Steps != 40 || e.Confidence != estimator.High || e.Versions.JAX != "" && e.Versions.JAX != release || o.reports.Versions.JAX != release {
				t.Errorf("%d steps, %s, JAX %s: %v", o.reports.Steps, e.Confidence, o.reports.Versions.JAX, e.Reasons)
			}
			if len(o.reports.UnansweredSymbols) > 0 {
				t.Errorf("unanswered: %v", o.reports.UnansweredSymbols)
			}
		})
	}
}

// TestJAXAgainstMemoryAnalysis compares what XLA says of a computation with what was seen of its execution.
func TestJAXAgainstMemoryAnalysis(t *testing.T) {
	const program = `
import jax, jax.numpy as jnp
f = jax.jit(lambda a: jnp.sin(a @ a) @ a)
x = jnp.ones((2048, 2048))
said = f.lower(x).compile().memory_analysis()
for _ in range(3):
    y = f(x); y.block_until_ready(); del y
print("said", said.argument_size_in_bytes + said.output_size_in_bytes + said.temp_size_in_bytes)
`
	o := runInterpreter(t, jaxPython(t, "0.10.2"), 1, []string{"-c", program})
	if o.failed || len(o.ranks) != 1 || o.ranks[0].Pool == nil {
		t.Fatalf("%+v\n%s", o.reports, o.output)
	}
	_, text, _ := strings.Cut(o.output, "said ")
	var said int64
	if err := json.Unmarshal([]byte(strings.Fields(text + " 0")[0]), &said); err != nil {
		t.Fatalf("%v\n%s", err, o.output)
	}
	if needed := o.ranks[0].Pool.NeededBytes; said == 0 || needed < said || needed > said+mib {
		t.Errorf("needed %d, and XLA says %d of the only computation", needed, said)
	}
}

// TestJAXGoesByWhatItReads: a program that goes by what it reads back, by whatever way, goes another way on another side. What it prints decides nothing,
// and what it has put on the card itself reads as it is.
func TestJAXGoesByWhatItReads(t *testing.T) {
	const program = `
import jax, jax.numpy as jnp, numpy as np
print("own", int(jax.device_put(np.int32(7))))
losses = jax.jit(lambda x: x * x)(jnp.ones((64,)))
loss, count = losses[3], jnp.argmax(losses)
print(loss, f"{loss:.3f}", losses, count)
print("ways", [float(loss) < 0.5, loss.item() < 0.5, bool(np.asarray(losses).max() < 0.5), bool(loss > 0.5), int(count) > 50])
if float(losses.mean()) < 0.5:
    kept = jax.block_until_ready(jnp.ones((1 << 24,)))
`
	for _, release := range []string{"0.10.2", "0.4.38"} {
		t.Run(release, func(t *testing.T) {
			python := jaxPython(t, release)
			needed := map[string]int64{}
			for side, ways := range map[string]string{
				PolicyLow: "ways [False, False, True, False, False]", PolicyHigh: "ways [True, True, False, True, True]",
			} {
				o := runInterpreter(t, python, 1, []string{"-c", program}, "GRESIZE_PROBE_QUICK=", "GRESIZE_VGPU_VALUES="+side)
				if o.failed || len(o.ranks) != 1 || o.ranks[0].Pool == nil {
					t.Fatalf("%+v\n%s", o.reports, o.output)
				}
				if !strings.Contains(o.output, ways) || !strings.Contains(o.output, "own 7") {
					t.Errorf("side %s goes %s, want %s", side, o.output, ways)
				}
				if want, got := map[string]int64{"fetched": 4, "bool": 1, "unbounded": 1}, o.ranks[0].Coverage.Values.Uses; !maps.Equal(got, want) {
					t.Errorf("uses %v, want %v", got, want)
				}
				needed[side] = o.ranks[0].Pool.NeededBytes
			}
			if more := needed[PolicyHigh] - needed[PolicyLow]; more < 63*mib {
				t.Errorf("the other side needs %d more", more)
			}
		})
	}
}

// TestJAXCounts: whole numbers that follow from what the host knows are those of a real run, which JAX on the CPU says; no side is taken for them.
func TestJAXCounts(t *testing.T) {
	const program = "testdata/jax/counted.py"
	lines := func(output string) (found []string) {
		for line := range strings.Lines(output) {
			if word, _, _ := strings.Cut(line, " "); slices.Contains([]string{"state", "sizes", "many", "random", "pmap"}, word) {
				found = append(found, line)
			}
		}
		return found
	}
	for _, release := range jaxReleases() {
		t.Run(release, func(t *testing.T) {
			python := jaxPython(t, release)
			onCPU := exec.Command(python, program)
			onCPU.Env = append(os.Environ(), "JAX_PLATFORMS=cpu")
			truth, err := onCPU.CombinedOutput()
			if want := lines(string(truth)); err != nil || len(want) != 18 {
				t.Fatalf("%v, %d lines\n%s", err, len(want), truth)
			}
			o := runInterpreter(t, python, 1, []string{program}, "GRESIZE_PROBE_QUICK=", "GRESIZE_VGPU_VALUES="+PolicyHigh)
			if o.failed || len(o.ranks) != 1 || o.ranks[0].Pool == nil {
				t.Fatalf("%+v\n%s", o.reports, o.output)
			}
			if diff := cmp.Diff(lines(string(truth)), lines(o.output)); diff != "" || len(o.ranks[0].Coverage.Values.Uses) > 0 {
				t.Errorf("asked for %v\n%s", o.ranks[0].Coverage.Values.Uses, diff)
			}
		})
	}
}

// TestJAXProcessesAreRanks: processes of one program are ranks with a card each; where all were run, nothing is missing.
func TestJAXProcessesAreRanks(t *testing.T) {
	files := map[string][]byte{}
	for rank, pid := range []int{7, 8} {
		files[fmt.Sprintf("jax-%d.json", pid)] = jaxReport(t, pid, map[string]any{"process": rank, "processes": 2, "cards": []int{rank}})
		files[fmt.Sprintf("native-%d.json", pid)] = jaxNative(t, pid, nil)
	}
	r, err := ReadReports(reportDir(t, files))
	if err != nil {
		t.Fatal(err)
	}
	profile, err := gpu.Load("h100")
	if err != nil {
		t.Fatal(err)
	}
	e := Estimate(&trace.Bundle{Manifest: trace.Manifest{Outcome: trace.Completed, Steps: r.Steps, Reasons: r.Reasons}, Ranks: r.Ranks}, profile)
	if e.Confidence != estimator.High || len(e.Ranks) != 2 || e.Ranks[1].Rank != 1 {
		t.Errorf("%s, %+v: %v", e.Confidence, e.Ranks, e.Reasons)
	}
}

// jaxReleases are those that a test runs which takes long: the older one at night.
func jaxReleases() []string {
	if os.Getenv("GRESIZE_NIGHTLY") != "" {
		return []string{"0.10.2", "0.4.38"}
	}
	return []string{"0.10.2"}
}

// mostCost is what a run may take, as a multiple of what the program takes without the Python layer.
const mostCost = 1.3

// bare runs a program without the Python layer; JAX asks for a file of the driver before it looks for cards.
const bare = `
import runpy, sys
from jax._src import hardware_utils
hardware_utils.has_visible_nvidia_gpu = lambda: True
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
`

// BenchmarkJAXCost compares what a run takes of the processor with what the program takes by itself: imports, tracing, XLA's compiler with the same flags, its own data. No kernel computes in either.
func BenchmarkJAXCost(b *testing.B) {
	python := filepath.Join(torchtest.Cache(), "venv-jax-0.10.2", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		b.Skipf("%v: `tools/setup jax 0.10.2` prepares it", err)
	}
	lib, err := filepath.Abs(filepath.Join("..", "..", "build", "lib"))
	if err != nil {
		b.Fatal(err)
	}
	processor := func(o Options, args ...string) float64 {
		env, err := Environment(o, os.Environ())
		if err != nil {
			b.Fatal(err)
		}
		cmd := exec.CommandContext(b.Context(), python, args...)
		cmd.Env = append(append(os.Environ(), "XLA_FLAGS=--xla_gpu_autotune_level=0 --xla_gpu_enable_command_buffer="), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	}
	for _, layers := range []string{"8", "32"} {
		program := []string{"testdata/jax/perceptron.py", "--width", "1024", "--layers", layers, "--batch-size", "512", "--steps", "40"}
		b.Run(layers+" layers", func(b *testing.B) {
			for b.Loop() {
				dir := b.TempDir()
				own := processor(Options{LibDir: lib, Devices: 1, WithoutPython: true}, append([]string{"-c", bare}, program...)...)
				took := processor(Options{LibDir: lib, ReportDir: dir, Devices: 1, Seconds: 240, RecordEvents: true}, program...)
				again := processor(Options{LibDir: lib, ReportDir: b.TempDir(), Devices: 1, Seconds: 240, RecordEvents: true, CompiledDir: dir}, program...)
				r, err := ReadReports(dir)
				if err != nil || len(r.Ranks) != 1 {
					b.Fatalf("%v, %+v", err, r)
				}
				rank, err := parseRank(r.Ranks[0].Report)
				if err != nil || rank.Pool == nil {
					b.Fatalf("%v, %+v", err, rank)
				}
				b.ReportMetric(took, "processor-s/run")
				b.ReportMetric(rank.Pool.CompileSeconds+rank.Pool.ImportSeconds, "processor-s-compile-import/run")
				b.ReportMetric(took/own, "times-own")
				b.ReportMetric(again/own, "times-own-again")
				if took > mostCost*own {
					b.Errorf("%.1f s, %.2f times the program's own %.1f", took, took/own, own)
				}
			}
		})
	}
}

// TestJAXCompiledOnce: what XLA compiled in a run is not compiled in the next, which needs as much; what is no such file is passed over.
func TestJAXCompiledOnce(t *testing.T) {
	const program = `
import glob, os, shutil, sys
import jax, jax.numpy as jnp
step = jax.jit(lambda w, x: w - jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w))
w = jnp.ones((512, 512))
for _ in range(8):
    w = step(w, jnp.ones((256, 512))).block_until_ready()
for path in glob.glob(os.environ["GRESIZE_VGPU_REPORT_DIR"] + "/compiled-*.bin"):
    shutil.copy(path, sys.argv[1])
`
	python := jaxPython(t, "0.10.2")
	run := func(to string, more ...string) *Pool {
		t.Helper()
		o := runInterpreter(t, python, 1, []string{"-c", program, to}, append(more, "GRESIZE_PROBE_QUICK=")...)
		if o.failed || len(o.ranks) != 1 || o.ranks[0].Pool == nil {
			t.Fatalf("%+v\n%s", o.reports, o.output)
		}
		return o.ranks[0].Pool
	}
	kept := t.TempDir()
	first := run(kept)
	files, err := filepath.Glob(filepath.Join(kept, "compiled-*.bin"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: nothing is kept", err)
	}
	second := run(t.TempDir(), "GRESIZE_VGPU_COMPILED="+kept)
	if second.CompileSeconds > first.CompileSeconds/2 || second.ComputationBytes != first.ComputationBytes || max(second.NeededBytes-first.NeededBytes, first.NeededBytes-second.NeededBytes) > mib {
		t.Errorf("%+v, and with what that has compiled %+v", first, second)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, data[:len(data)-len(data)/4], 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if third := run(t.TempDir(), "GRESIZE_VGPU_COMPILED="+kept); third.CompileSeconds < first.CompileSeconds/2 || third.ComputationBytes != first.ComputationBytes {
		t.Errorf("%+v, and with files that are cut short %+v", first, third)
	}
}

// TestJAXFirstOfMany: of many processes the first is run alone, with the cards of all, and has its own part of what is spread over them.
func TestJAXFirstOfMany(t *testing.T) {
	const program = `
import jax, jax.numpy as jnp, numpy as np, os
from jax.sharding import Mesh, NamedSharding, PartitionSpec
jax.distributed.initialize("localhost:" + os.environ["TEST_PORT"], 8, 0)
mesh = Mesh(np.array(jax.devices()), ("data",))
step = jax.jit(lambda w, x: w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w))
x = jax.make_array_from_callback((8 * 1024, 1024), NamedSharding(mesh, PartitionSpec("data")), lambda i: np.ones((1024, 1024), np.float32))
w = jax.make_array_from_callback((1024, 1024), NamedSharding(mesh, PartitionSpec()), lambda i: np.ones((1024, 1024), np.float32))
for _ in range(8):
    w = step(w, x)
w.block_until_ready()
print("process", jax.process_index(), "of", jax.process_count())
`
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err := errors.Join(err, listener.Close()); err != nil {
		t.Fatal(err)
	}
	for _, release := range jaxReleases() {
		t.Run(release, func(t *testing.T) {
			o := runInterpreter(t, jaxPython(t, release), 1, []string{"-c", program}, "GRESIZE_PROBE_QUICK=", "TEST_PORT="+port)
			if o.failed || len(o.ranks) != 1 || o.ranks[0].Pool == nil || !strings.Contains(o.output, "process 0 of 8") {
				t.Fatalf("%+v\n%s", o.reports, o.output)
			}
			// The old and the new weights, an eighth of the batch, and what a step keeps.
			if needed := o.ranks[0].Pool.NeededBytes; needed < 12*mib || needed > 20*mib {
				t.Errorf("needed %d", needed)
			}
			if e := o.estimate(t, trace.Completed); e.Confidence != estimator.Low || !e.HasReason(estimator.CodeRanksNotRun) {
				t.Errorf("%s: %v", e.Confidence, e.Reasons)
			}
		})
	}
}

// TestJAXProcessesThatDiffer: what the processes compare is compared where it is known, and who is told something by the first has that.
func TestJAXProcessesThatDiffer(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly")
	}
	for rank, want := range map[string]string{"same": "told [7 7]", "other": "AssertionError: sizes"} {
		o := runInterpreter(t, jaxPython(t, "0.10.2"), 2, []string{"testdata/jax/two_processes.py", rank}, "GRESIZE_PROBE_QUICK=")
		if o.failed != (rank == "other") || !strings.Contains(o.output, want) {
			t.Errorf("%s: %v, want %s\n%s", rank, o.failed, want, o.output)
		}
	}
}

// TestJAXProcesses runs two processes that meet, compare what they have, and share a step.
func TestJAXProcesses(t *testing.T) {
	for _, release := range jaxReleases() {
		t.Run(release, func(t *testing.T) {
			o := runInterpreter(t, jaxPython(t, release), 2, []string{"testdata/jax/two_processes.py"}, "GRESIZE_PROBE_QUICK=")
			if o.failed || len(o.ranks) != 2 || o.ranks[0].Pool == nil || o.ranks[1].Pool == nil {
				t.Fatalf("%+v\n%s", o.reports, o.output)
			}
			e := o.estimate(t, trace.Completed)
			if e.Confidence != estimator.High || o.reports.Steps < 8 {
				t.Errorf("%s, %d steps: %v\n%s", e.Confidence, o.reports.Steps, e.Reasons, o.output)
			}
		})
	}
}

// TestJAXArrays: what lived on the card, and for what, is in the bundle, and its peak is that of XLA's allocator, which gives back later.
func TestJAXArrays(t *testing.T) {
	const program = `
import jax, jax.numpy as jnp, numpy as np
def step(state, x):
    loss, g = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w) @ w) ** 2))(state["w"])
    m = 0.9 * state["opt_state"] + g
    return {"w": state["w"] - 0.1 * m, "opt_state": m}, loss
step = jax.jit(step)
state = {"w": jnp.ones((1024, 1024)), "opt_state": jnp.zeros((1024, 1024))}
for _ in range(6):
    state, loss = step(state, jax.device_put(np.ones((512, 1024), np.float32)))
    loss.block_until_ready()
`
	for _, release := range jaxReleases() {
		t.Run(release, func(t *testing.T) {
			o := runInterpreter(t, jaxPython(t, release), 1, []string{"-c", program}, "GRESIZE_PROBE_QUICK=", "GRESIZE_PROBE_EVENTS=1")
			if o.failed || len(o.ranks) != 1 || o.ranks[0].Pool == nil {
				t.Fatalf("%+v\n%s", o.reports, o.output)
			}
			bundle := &trace.Bundle{Ranks: o.reports.Ranks}
			line, err := timeline.Read(bundle, 0, "the run")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := replay.FromBundle(bundle, replay.OpenOptions{}, "the run"); !errors.Is(err, replay.ErrXLA) {
				t.Errorf("PyTorch's allocator simulates it: %v", err)
			}
			got := map[string]uint64{}
			for _, owner := range line.OwnersAtPeak() {
				got[owner.Category.String()+" "+owner.Name] += owner.SizeBytes >> 20
			}
			want := map[string]uint64{"parameters state['w']": 8, "optimizer state state['opt_state']": 8, "arguments x": 2} // old and new
			if release == "0.4.38" {                                                                                         // it is not known what the program calls its arguments
				want = map[string]uint64{"parameters argument 0 of jit_step": 8, "parameters argument 1 of jit_step": 8, "arguments argument 2 of jit_step": 2}
			}
			for owner, size := range want {
				if got[owner] != size {
					t.Errorf("%s: %d MiB, want %d: %v", owner, got[owner], size, got)
				}
			}
			if len(line.Steps) != 6 || !line.XLA {
				t.Errorf("steps %v", line.Steps)
			}
			needed := uint64(o.ranks[0].Pool.NeededBytes)
			if line.PeakAllocatedBytes > needed || line.PeakAllocatedBytes < needed-needed/4 {
				t.Errorf("a peak of %d, and XLA's allocator says %d", line.PeakAllocatedBytes, needed)
			}
		})
	}
}

// TestJAXFull runs out of the card's share, as a real program does.
func TestJAXFull(t *testing.T) {
	const program = "import jax.numpy as jnp\nkept = [jnp.ones((1 << 30,)).block_until_ready() for _ in range(40)]\n"
	o := runInterpreter(t, jaxPython(t, "0.10.2"), 1, []string{"-c", program}, "GRESIZE_PROBE_QUICK=")
	if !o.failed || !o.reports.OutOfMemory || !strings.Contains(o.output, "RESOURCE_EXHAUSTED") {
		t.Errorf("%+v\n%s", o.reports, o.output)
	}
}

// TestJAXWithDoubles: the program's own switch makes its numbers twice as wide, and its need with them.
func TestJAXWithDoubles(t *testing.T) {
	const program = "import jax.numpy as jnp\nkept = jnp.ones((1 << 25,)).block_until_ready()\nprint(kept.dtype)\n"
	o := runInterpreter(t, jaxPython(t, "0.10.2"), 1, []string{"-c", program}, "GRESIZE_PROBE_QUICK=", "JAX_ENABLE_X64=1")
	if o.failed || len(o.ranks) != 1 || o.ranks[0].Pool == nil || !strings.Contains(o.output, "float64") {
		t.Fatalf("%+v\n%s", o.reports, o.output)
	}
	if needed := o.ranks[0].Pool.NeededBytes; needed < 256*mib || needed > 257*mib {
		t.Errorf("needed %d for 256 MiB of doubles", needed)
	}
}

// TestJAXOnTheCPU: a program that asks for the CPU puts nothing on a card.
func TestJAXOnTheCPU(t *testing.T) {
	o := runInterpreter(t, jaxPython(t, "0.10.2"), 1, []string{"-c", "import jax\nprint(jax.numpy.ones(3) + 1)"}, "JAX_PLATFORMS=cpu")
	if o.failed || len(o.ranks) != 0 || !o.reports.TorchSeen || len(o.reports.Reasons) != 0 {
		t.Errorf("%+v\n%s", o.reports, o.output)
	}
}

// TestJAXLayerCostsNothing: a program without JAX gets none of it.
func TestJAXLayerCostsNothing(t *testing.T) {
	const program = "import sys\nprint([m for m in sys.modules if m.startswith('gresize_jax.')])"
	env, err := Environment(Options{LibDir: libDir(t), ReportDir: t.TempDir()}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", "-c", program)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Equal(bytes.TrimSpace(out), []byte("[]")) {
		t.Errorf("%v: %s", err, out)
	}
}
