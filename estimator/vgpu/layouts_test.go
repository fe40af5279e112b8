package vgpu

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// dummySource is a library that ends the process that loads it.
const dummySource = `#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void)
{
	if (write(2, "` + dummyWord + `\n", sizeof "` + dummyWord + `"))
		abort();
}
`

const dummyWord = "NVIDIA's own library was loaded"

// nvidiaLibraries are the libraries of NVIDIA's that a release's PyTorch is linked to, and the folders in which it looks for them, seen from torch/lib.
func nvidiaLibraries(t *testing.T, torch string) (sonames, folders []string) {
	t.Helper()
	for _, name := range []string{"libtorch_global_deps.so", "libc10_cuda.so", "libtorch_cuda.so"} {
		f, err := elf.Open(filepath.Join(torch, "lib", name))
		if err != nil {
			t.Fatal(err)
		}
		needed, err := f.ImportedLibraries()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range needed {
			if strings.HasPrefix(n, "libcu") || strings.HasPrefix(n, "libnv") || strings.HasPrefix(n, "libnccl") {
				sonames = append(sonames, n)
			}
		}
		for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
			paths, err := f.DynString(tag)
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range strings.Split(strings.Join(paths, ":"), ":") {
				if below, found := strings.CutPrefix(path, "$ORIGIN/"); found {
					folders = append(folders, below)
				}
			}
		}
		f.Close()
	}
	slices.Sort(sonames)
	slices.Sort(folders)
	sonames, folders = slices.Compact(sonames), slices.Compact(folders)
	if len(sonames) < 8 || len(folders) == 0 {
		t.Fatalf("%s needs %v in %v", torch, sonames, folders)
	}
	return sonames, folders
}

// dummies compiles a library for each name and puts it into each folder.
func dummies(t *testing.T, sonames, folders []string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "dummy.c")
	if err := os.WriteFile(source, []byte(dummySource), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range sonames {
		library := filepath.Join(filepath.Dir(source), name)
		compile(t, "-shared", "-fPIC", "-o", library, "-Wl,-soname,"+name, source)
		for _, folder := range folders {
			if err := os.Symlink(library, filepath.Join(folder, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// linkAll puts links to everything that is in one folder into another, but for some.
func linkAll(t *testing.T, from, to string, except ...string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err == nil {
		err = os.MkdirAll(to, 0o755)
	}
	for _, e := range entries {
		if err == nil && !slices.Contains(except, e.Name()) {
			err = os.Symlink(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// linkTorch puts links to all packages into a folder. torch and torch/lib are folders of their own: run paths that go up from there stay in the layout.
func linkTorch(t *testing.T, packages, site string, except ...string) {
	t.Helper()
	linkAll(t, packages, site, "torch")
	linkAll(t, filepath.Join(packages, "torch"), filepath.Join(site, "torch"), "lib")
	linkAll(t, filepath.Join(packages, "torch/lib"), filepath.Join(site, "torch/lib"), except...)
}

// TestLayouts: wherever NVIDIA's libraries lie beside PyTorch, the stubs answer and the peaks are those of a PyTorch that has none.
func TestLayouts(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") != "1" {
		t.Skip("run by make nightly")
	}
	for _, release := range everyDayReleases {
		venv := torchtest.Python(t, release)
		found, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(venv)), "lib/python3.*/site-packages"))
		if err != nil || len(found) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		packages := found[0]
		version := filepath.Base(filepath.Dir(packages)) // python3.11
		torch := filepath.Join(packages, "torch")
		sonames, folders := nvidiaLibraries(t, torch)
		plain := train(t, release, "mlp")
		if len(plain.ranks) != 1 {
			t.Fatalf("%s: no report\n%s", release, plain.output)
		}
		for _, layout := range []struct {
			name string
			// prepare fills a folder and returns the interpreter and its variables.
			prepare func(t *testing.T, dir string) (string, []string)
		}{
			{"wheels of NVIDIA's beside it", func(t *testing.T, dir string) (string, []string) {
				linkTorch(t, packages, dir)
				var places []string
				for _, f := range folders {
					places = append(places, filepath.Join(dir, "torch/lib", f))
				}
				dummies(t, sonames, places)
				return venv, []string{"PYTHONPATH=" + filepath.Join(libDir(t), "python") + ":" + dir}
			}},
			{"a prefix as conda has it", func(t *testing.T, dir string) (string, []string) {
				site := filepath.Join(dir, "lib", version, "site-packages")
				linkTorch(t, packages, site, "libtorch_global_deps.so")
				lib := filepath.Join(site, "torch/lib")
				// The first library that PyTorch loads has the run path of a conda package: the prefix's lib, four up.
				deps, err := os.ReadFile(filepath.Join(torch, "lib/libtorch_global_deps.so"))
				if err != nil {
					t.Fatal(err)
				}
				begin := bytes.Index(deps, []byte("$ORIGIN/../../"))
				if begin < 0 {
					t.Fatal("libtorch_global_deps.so has no run path")
				}
				end := begin + bytes.IndexByte(deps[begin:], 0)
				clear(deps[begin+copy(deps[begin:end], "$ORIGIN/../../../..:$ORIGIN") : end])
				if err := os.WriteFile(filepath.Join(lib, "libtorch_global_deps.so"), deps, 0o600); err != nil {
					t.Fatal(err)
				}
				dummies(t, sonames, []string{filepath.Join(dir, "lib")})
				// An activated environment names its lib in a variable of its own, and ours is lost.
				return venv, []string{"PYTHONPATH=" + filepath.Join(libDir(t), "python") + ":" + site, "LD_LIBRARY_PATH=" + filepath.Join(dir, "lib")}
			}},
			{"installed for one user", func(t *testing.T, dir string) (string, []string) {
				base, err := filepath.EvalSymlinks(venv)
				if err != nil {
					t.Fatal(err)
				}
				site := filepath.Join(dir, "lib", version, "site-packages")
				linkTorch(t, packages, site)
				var places []string
				for _, f := range folders {
					places = append(places, filepath.Join(site, "torch/lib", f))
				}
				dummies(t, sonames, places)
				return base, []string{"PYTHONUSERBASE=" + dir, "PYTHONNOUSERSITE="}
			}},
		} {
			t.Run(release+" "+layout.name, func(t *testing.T) {
				interpreter, more := layout.prepare(t, filepath.Join(t.TempDir(), "place"))
				// Without gresize that PyTorch loads one of them, or the layout would prove nothing.
				bare := exec.CommandContext(t.Context(), interpreter, "-c", "import torch")
				bare.Env = append(os.Environ(), more...)
				if out, err := bare.CombinedOutput(); err == nil || !strings.Contains(string(out), dummyWord) {
					t.Fatalf("the layout's own libraries are not those that are loaded: %v\n%s", err, out)
				}
				o := runInterpreter(t, interpreter, 1, []string{"testdata/train.py", "mlp"}, more...)
				if len(o.ranks) != 1 || strings.Contains(o.output, dummyWord) {
					t.Fatalf("%d ranks, %v\n%s", len(o.ranks), o.reports.Reasons, o.output)
				}
				got, want := o.ranks[0], plain.ranks[0]
				if got.PeakAllocatedBytes != want.PeakAllocatedBytes || got.PeakReservedBytes != want.PeakReservedBytes || len(o.reports.UnansweredSymbols) != 0 {
					t.Errorf("peaks of %d and %d bytes, want %d and %d; unanswered %v", got.PeakAllocatedBytes, got.PeakReservedBytes, want.PeakAllocatedBytes, want.PeakReservedBytes, o.reports.UnansweredSymbols)
				}
			})
		}
	}
}

// TestStaticRuntime: what brings a CUDA runtime of its own, or another framework than PyTorch, gets no number.
func TestStaticRuntime(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "static")
	compile(t, "-std=gnu11", "-Wall", "-Werror", "-o", program, "testdata/static.c", "-ldl")
	for name, text := range map[string]string{
		"jax.py":        "import ctypes\ncuda = ctypes.CDLL('libcuda.so.1')\nassert cuda.cuInit(0) == 0\nprint('jax')\n",
		"tensorflow.py": "print('tensorflow')\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	find := "import sys; sys.path.insert(0, '" + dir + "'); import "
	for _, c := range []struct {
		name    string
		command []string
		output  string
		reason  string // of the reports; "": none, and no PyTorch seen
	}{
		{"a program of the driver alone", []string{program}, "trained", "python_layer_missing"},
		{"jax", []string{"python3", "-c", find + "jax"}, "jax", ""},
		{"tensorflow", []string{"python3", "-c", find + "tensorflow"}, "tensorflow", "tensorflow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := runInterpreter(t, c.command[0], 1, c.command[1:])
			if o.failed || strings.TrimSpace(o.output) != c.output {
				t.Fatalf("failed %v: %s", o.failed, o.output)
			}
			if o.reports.TorchSeen || o.reports.Steps != 0 {
				t.Errorf("PyTorch was seen, %d steps", o.reports.Steps)
			}
			if got := len(o.reports.Reasons); c.reason == "" && got != 0 || c.reason != "" && (got != 1 || o.reports.Reasons[0].Code != c.reason) {
				t.Errorf("reasons %v, want %q", o.reports.Reasons, c.reason)
			}
			if e := o.estimate(t, trace.NoTorch); e.Confidence != estimator.Unknown {
				t.Errorf("a confidence of %s", e.Confidence)
			}
		})
	}
}
