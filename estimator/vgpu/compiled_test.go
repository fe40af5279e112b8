package vgpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompilerFindsOnlyPyTorch: when a compiled function is called, nothing of ours is in the place of a function or method that a compiler traces, and what
// a base class gives is given by it again. A program that compiles is followed on outside of what it compiled, and the compiler knows PyTorch's own functions alone.
func TestCompilerFindsOnlyPyTorch(t *testing.T) {
	const program = `
import torch, types
owners = [torch, torch.Tensor]
def ours():
    names = ["%s.%s" % (owner.__name__, name) for owner in owners for name, f in vars(owner).items()
             if isinstance(f, types.FunctionType) and "gresize_vgpu" in f.__code__.co_filename]
    return [n for n in names if n not in ("torch.compile", "torch.save", "torch.load")]
model = torch.nn.Linear(4, 4)
before = len(ours())
print("before", before > 50, "add" in vars(torch.Tensor), "item" in vars(torch.Tensor))
def look(graph, inputs):
    print("at work", ours(), "add" in vars(torch.Tensor), "item" in vars(torch.Tensor))
    print("traced", sorted(str(n.target) for n in graph.graph.nodes if n.op == "call_function"))
    return graph.forward
compiled, unused = torch.compile(lambda x, y: torch.where(x > 0, x, y).sum(), backend=look, fullgraph=True), torch.compile(mode="reduce-overhead")(model)
print("not yet", len(ours()) == before, "item" in vars(torch.Tensor))
import torch._dynamo.variables.torch as known
held = [f for v in vars(known).values() if isinstance(v, (list, tuple, set, frozenset, dict)) for f in v if isinstance(f, types.FunctionType)]
print("known", [f for f in held if "gresize_vgpu" in f.__code__.co_filename])
compiled(torch.ones(4), torch.zeros(4))
print("after", len(ours()) == before, "add" in vars(torch.Tensor), "item" in vars(torch.Tensor))
lengths = torch.tensor([3, 5]).cuda()
print("known", lengths.max().item(), torch.repeat_interleave(lengths).shape[0], (lengths > 3).nonzero().shape[0])
module = torch.nn.modules.module
print("hooks", len(module._global_forward_hooks), len(module._global_forward_pre_hooks))
`
	for _, release := range []string{"2.6.0", "2.11.0"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			o := runPython(t, release, 1, []string{"-c", program}, "GRESIZE_PROBE_EVENTS=1")
			for _, want := range []string{"before True True True\n", "not yet True True\n", "known []\n", "at work [] False False\n", "method where", "after True True True\n", "known 5 8 1\n", "hooks 0 0\n"} {
				if !strings.Contains(o.output, want) {
					t.Errorf("no %q in\n%s", want, o.output)
				}
			}
		})
	}
}

// TestCompilerThatIsThereEarly: libraries import the compiler long before the first call of what is compiled, and a program may hold functions of PyTorch
// by names of its own. Nothing of ours is in the graph, which must be whole.
func TestCompilerThatIsThereEarly(t *testing.T) {
	early := []string{"torch._dynamo", "nothing"}
	if os.Getenv("GRESIZE_NIGHTLY") != "" {
		early = append(early, "torch.distributed.algorithms._checkpoint.checkpoint_wrapper", "torch.distributed._composable.fsdp", "torch._inductor.config", "torch.fx")
	}
	for _, release := range []string{"2.6.0", "2.11.0"} {
		for _, module := range early {
			t.Run(module+"-"+release, func(t *testing.T) {
				t.Parallel()
				o := runPython(t, release, 1, []string{"testdata/early.py", module})
				if o.failed || !o.reports.Stopped || len(o.reports.Reasons) != 0 {
					t.Errorf("failed %v, stopped %v, reasons %v\n%s", o.failed, o.reports.Stopped, o.reports.Reasons, o.output)
				}
			})
		}
	}
}

// TestScriptsFindTheirNames: TorchScript resolves the names of a class where script was called. torch.distributed.optim, which DeepSpeed and ZeroRedundancyOptimizer
// import, is made of such classes.
func TestScriptsFindTheirNames(t *testing.T) {
	for _, release := range often("2.11.0", "2.6.0") {
		o := runPython(t, release, 1, []string{"-c", "import torch.distributed.optim\nprint('imported')"})
		if o.failed || !strings.Contains(o.output, "imported\n") {
			t.Errorf("%s: %s", release, o.output)
		}
	}
}

// TestCompileWorkersAreNoPrograms: the compiler's own processes open the GPU and are killed, which made every compiled program's answer `unknown`.
func TestCompileWorkersAreNoPrograms(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "torch", "_inductor", "compile_worker")
	entry := filepath.Join(dir, "__main__.py")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(entry, []byte("import os, torch\ntorch.cuda.init()\nprint('begun', flush=True)\nos._exit(0)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := runPython(t, "2.6.0", 1, []string{entry})
	if o.failed || !strings.Contains(o.output, "begun") || len(o.reports.Reasons) != 0 {
		t.Errorf("failed %v, reasons %v\n%s", o.failed, o.reports.Reasons, o.output)
	}
}

// compiledCase is a program of testdata/compiled.py with its allocated and reserved peak on each release.
type compiledCase struct {
	name  string
	peaks map[string][2]int64
}

// compiledParameters are those of the network of testdata/compiled.py.
const compiledParameters = 2*1024*4096 + 4096 + 2*4096 + 1024

func (c compiledCase) check(t *testing.T, release, venv string) {
	o := runPython(t, venv, 1, []string{"testdata/compiled.py", c.name}, "GRESIZE_PROBE_SECONDS=400")
	if o.failed || !o.reports.Stopped || len(o.ranks) != 1 {
		t.Fatalf("failed %v, stopped %v, %d ranks\n%s", o.failed, o.reports.Stopped, len(o.ranks), o.output)
	}
	if len(o.reports.Reasons) != 0 {
		t.Errorf("reasons %v", o.reports.Reasons)
	}
	r := o.ranks[0]
	if r.Coverage.Values.Stopped != "" {
		t.Errorf("values were followed until %q", r.Coverage.Values.Stopped)
	}
	if want, ok := c.peaks[release]; ok && (r.PeakAllocatedBytes != want[0] || r.PeakReservedBytes != want[1]) {
		t.Errorf("allocated %d, reserved %d; before %d, %d", r.PeakAllocatedBytes, r.PeakReservedBytes, want[0], want[1])
	}
	if least := trainingState(compiledParameters); c.name != "flex_attention" && !strings.HasPrefix(c.name, "max_autotune") && r.PeakAllocatedBytes < least {
		t.Errorf("allocated %d, the training state alone is %d", r.PeakAllocatedBytes, least)
	}
	t.Logf("allocated %d, reserved %d, %d MiB and %d MiB, %.1f s", r.PeakAllocatedBytes, r.PeakReservedBytes, r.PeakAllocatedBytes/mib, r.PeakReservedBytes/mib, r.WallSeconds)
}

// TestCompiledWithoutTriton traces both passes and runs them by PyTorch's own kernels.
func TestCompiledWithoutTriton(t *testing.T) {
	c := compiledCase{"aot_eager", map[string][2]int64{"2.6.0": {486769664, 740294656}, "2.11.0": {487818240, 740294656}}}
	for _, release := range []string{"2.6.0", "2.11.0"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			c.check(t, release, release)
		})
	}
}

// TestCompiled runs what needs Triton; `make nightly` prepares the environments.
func TestCompiled(t *testing.T) {
	var cases []compiledCase
	if os.Getenv("GRESIZE_NIGHTLY") == "1" {
		for _, name := range strings.Fields(`default fullgraph reduce_overhead max_autotune max_autotune_no_cudagraphs dynamic compiled_optimizer
			graph_break flex_attention checkpointed`) {
			cases = append(cases, compiledCase{name: name})
		}
	}
	for _, c := range cases {
		for _, release := range []string{"2.6.0", "2.11.0"} {
			t.Run(c.name+"-"+release, func(t *testing.T) {
				dir := t.TempDir() // a cache that another run filled would leave the compiler out
				t.Setenv("TORCHINDUCTOR_CACHE_DIR", dir+"/inductor")
				t.Setenv("TRITON_CACHE_DIR", dir+"/triton")
				c.check(t, release, release+"-triton")
			})
		}
	}
}
