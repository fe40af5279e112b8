package vgpu

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gresize/gresize/estimator/vgpu/manifest"
)

// built is the virtual GPU of this very tree, made at its first use; the directory goes when the tests are done.
var built struct {
	sync.Once
	root, output string
	err          error
}

func libDir(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		if built.root, built.err = os.MkdirTemp("", "lib-"); built.err != nil {
			return
		}
		out, err := exec.Command("make", "-s", "-j2", "OUT="+filepath.Join(built.root, "lib")).CombinedOutput()
		built.output, built.err = string(out), err
	})
	if built.err != nil {
		t.Fatalf("make: %v\n%s", built.err, built.output)
	}
	return filepath.Join(built.root, "lib")
}

// TestMain gives all that the tests start a place for temporary files that goes with them: a run that is ended once
// enough was seen leaves what Python would have removed at its exit.
func TestMain(m *testing.M) {
	temporary, err := os.MkdirTemp("", "gresize-vgpu-test-")
	if err == nil {
		err = os.Setenv("TMPDIR", temporary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	matrix.print()
	os.RemoveAll(temporary)
	os.Exit(status)
}

// newestGlibc is the C library of the oldest clusters: CentOS 7.
var newestGlibc = []int{2, 17}

func builtLibraries(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(libDir(t), "vgpu", "*.so*"))
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d libraries in %s: %v", len(paths), libDir(t), err)
	}
	return paths
}

func TestLibrariesNeedAnOldCLibraryAndNothingElse(t *testing.T) {
	for _, path := range builtLibraries(t) {
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		needed, err := f.ImportedLibraries()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range needed {
			if !slices.Contains([]string{"libc.so.6", "ld-linux-x86-64.so.2", "libdl.so.2", "libgresize-vgpu.so"}, n) {
				t.Errorf("%s needs %s", filepath.Base(path), n)
			}
		}
		imported, err := f.ImportedSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range imported {
			version, ok := strings.CutPrefix(s.Version, "GLIBC_")
			if !ok {
				continue
			}
			var parts []int
			for _, p := range strings.Split(version, ".") {
				n, err := strconv.Atoi(p)
				if err != nil {
					t.Fatalf("%s: version %q", filepath.Base(path), s.Version)
				}
				parts = append(parts, n)
			}
			if slices.Compare(parts, newestGlibc) > 0 {
				t.Errorf("%s needs %s@%s", filepath.Base(path), s.Name, s.Version)
			}
		}
	}
}

func TestLibrariesExportEverySymbolOfEveryRelease(t *testing.T) {
	all, err := manifest.All()
	if err != nil {
		t.Fatal(err)
	}
	union, err := manifest.Union(all)
	if err != nil {
		t.Fatal(err)
	}
	for soname, lib := range union {
		f, err := elf.Open(filepath.Join(libDir(t), "vgpu", soname))
		if err != nil {
			t.Error(err)
			continue
		}
		defer f.Close()
		exported := map[string]string{}
		symbols, err := f.DynamicSymbols()
		if err != nil {
			t.Fatalf("%s: %v", soname, err)
		}
		for _, s := range symbols {
			if s.Section != elf.SHN_UNDEF {
				exported[s.Name] = s.Version
			}
		}
		for _, s := range lib.Symbols {
			if version, ok := exported[s]; !ok {
				t.Errorf("%s does not export %s", soname, s)
			} else if version != lib.Node {
				t.Errorf("%s exports %s@%s, PyTorch binds to node %q", soname, s, version, lib.Node)
			}
		}
	}
}

func compile(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestRuntimeAndDriver(t *testing.T) {
	dir := t.TempDir()
	program, profile, reports := filepath.Join(dir, "native"), filepath.Join(dir, "profile"), filepath.Join(dir, "reports")
	compile(t, "-std=gnu11", "-Wall", "-Werror", "-o", program, "testdata/native.c", "-ldl")
	if err := os.WriteFile(profile, []byte("name=A Card\ncontext_bytes=104857600\nunknown_key=1\nattr.16=7\nattr.9999=1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(reports, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, runtime := range []string{"libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13"} {
		env, err := Environment(Options{LibDir: libDir(t), ProfilePath: profile, ReportDir: reports, CapacityBytes: 1 << 30}, os.Environ())
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, runtime)
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", runtime, err, out)
		}
		data, err := os.ReadFile(filepath.Join(reports, fmt.Sprintf("native-%d.json", cmd.Process.Pid)))
		if err != nil {
			t.Fatal(err)
		}
		n, err := ParseNative(data)
		if err != nil {
			t.Fatal(err)
		}
		if n.Devices[0].PeakBytes != 20<<20 || n.Devices[0].InUseBytes != 0 || n.Devices[0].Refused != 2 {
			t.Errorf("%s: device %+v, want a peak of 20 MiB, nothing in use, 2 refusals", runtime, n.Devices[0])
		}
		if n.TrueReads != 2 || n.ValuesReadBack != 2 {
			t.Errorf("%s: %d honest reads and %d values read back, want 2 and 2", runtime, n.TrueReads, n.ValuesReadBack)
		}
		if n.Unanswered["cuNoSuchThing"] != 1 || len(n.Unanswered) != 1 {
			t.Errorf("%s: unanswered %v, want cuNoSuchThing once", runtime, n.Unanswered)
		}
	}
}

// A wheel's run path is a DT_RPATH, which beats LD_LIBRARY_PATH; and some programs open a library by its full path.
func TestAuditRedirectsWhatRunPathsAndFullPathsWouldFind(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "libnccl.so.2")
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	compile(t, "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o", real, write("real.c", "int ncclGetVersion(int *v) { *v = 1; return 0; }\n"))
	linked, opener, other := filepath.Join(dir, "linked"), filepath.Join(dir, "opener"), filepath.Join(dir, "other")
	compile(t, "-o", linked, write("linked.c", "#include <stdio.h>\nint ncclGetVersion(int *);\nint main(void) { int v; ncclGetVersion(&v); printf(\"%d\", v); return 0; }\n"),
		real, "-Wl,--disable-new-dtags", "-Wl,-rpath,"+dir)
	compile(t, "-o", opener, write("opener.c", "#include <dlfcn.h>\n#include <stdio.h>\nint main(void) { int v; int (*f)(int *) = dlsym(dlopen(\""+real+"\", RTLD_NOW), \"ncclGetVersion\"); f(&v); printf(\"%d\", v); return 0; }\n"), "-ldl")
	compile(t, "-o", other, write("other.c", "#include <stdio.h>\n#include <string.h>\nint main(void) { char line[4096]; FILE *f = fopen(\"/proc/self/maps\", \"r\"); int ours = 0;\n"+
		"while (fgets(line, sizeof line, f)) if (strstr(line, \"libgresize-vgpu\")) ours = 1; printf(\"%d\", ours); return 0; }\n"))
	env, err := Environment(Options{LibDir: libDir(t)}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		program, want string
		virtual       bool
	}{
		{linked, "1", false}, {linked, "22105", true}, {opener, "1", false}, {opener, "22105", true},
		{other, "0", true}, // a program that needs none of the libraries gets none of ours
	} {
		cmd := exec.Command(c.program)
		cmd.Env = os.Environ()
		if c.virtual {
			cmd.Env = append(cmd.Env, env...)
		}
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("%s, virtual %v: %q, %v; want %q", filepath.Base(c.program), c.virtual, out, err, c.want)
		}
	}
}

func TestNvidiaSMI(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "profile")
	if err := os.WriteFile(profile, []byte("name=A Card\ntotal_bytes=12884901888\ncontext_bytes=104857600\ndriver_version=1.2.3\ncuda_driver_version=12040\ncc_major=8\ncc_minor=6\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// What two processes left, one of which used the second card alone.
	reports := t.TempDir()
	for name, devices := range map[string]string{"native-77.json": `{"index":0,"total_bytes":9,"peak_bytes":1073741824,"allocations":3},{"index":1,"total_bytes":9,"peak_bytes":0}`,
		"native-78.json": `{"index":0,"peak_bytes":0},{"index":1,"peak_bytes":2147483648}`, "python-78.json": `{"index":0,"peak_bytes":7}`} {
		if err := os.WriteFile(filepath.Join(reports, name), []byte(`{"schema":"x","devices":[`+devices+`],"symbols":[]}`), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"--query-accounted-apps=gpu_uuid,pid,time,max_memory_usage --format=csv,noheader,nounits -i 0", "GPU-11111111-1111-1111-1111-111111111111, 77, 0, 1124\n"},
		{"--query-accounted-apps=pid,max_memory_usage --format=csv", "pid, max_memory_usage\n77, 1124 MiB\n78, 2148 MiB\n"},
		{"-L", "GPU 0: A Card (UUID: GPU-11111111-1111-1111-1111-111111111111)\nGPU 1: A Card (UUID: GPU-11111111-1111-1111-1111-111111111112)\n"},
		{"--query-gpu=name,memory.total,memory.used --format=csv", "name, memory.total [MiB], memory.used [MiB]\nA Card, 12288 MiB, 100 MiB\nA Card, 12288 MiB, 100 MiB\n"},
		{"--query-gpu=memory.free,compute_cap --format=csv,noheader,nounits -i 1", "12188, 8.6\n"},
		{"--format=csv,noheader --query-gpu=index,driver_version --id=0", "0, 1.2.3\n"},
		{"--query-compute-apps=pid --format=csv", ""},
	} {
		cmd := exec.Command(filepath.Join(libDir(t), "bin", "nvidia-smi"), strings.Fields(c.args)...)
		cmd.Env = append(os.Environ(), "GRESIZE_VGPU_PROFILE="+profile, "GRESIZE_VGPU_COUNT=2", "GRESIZE_VGPU_REPORT_DIR="+reports)
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != c.want {
			t.Errorf("nvidia-smi %s: %v\n%swant\n%s", c.args, err, out, c.want)
		}
	}
}

// TestExceptionInAReport holds what a report keeps of an exception of several lines: what happened, and not the advice that follows.
func TestExceptionInAReport(t *testing.T) {
	const script = `import sys
sys.path.insert(0, "python")
from gresize_vgpu.process.exceptions import summary
for text, want in (
    ("", ""), ("\n  \n", ""), ("no data", "no data"), ("CUDA error: assert\nCompile with TORCH_USE_CUDA_DSA", "CUDA error: assert"),
    ("Error(s) in loading state_dict for Net:\n\tMissing key(s)\n\tUnexpected", "Error(s) in loading state_dict for Net: Missing key(s)"), ("only:", "only:"),
):
    assert summary(Exception(text)) == want, (text, summary(Exception(text)))
assert len(summary(Exception("x" * 100000))) < 10000
`
	if out, err := exec.Command("python3", "-c", script).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestOwnLooksAreNotThePrograms holds that what our own layer reads of folders is not taken for the program's: the outputs of jobs often lie there, and an
// earlier answer would never be used again.
func TestOwnLooksAreNotThePrograms(t *testing.T) {
	const script = `import glob, os, sys
sys.path[:0] = ["python", os.getcwd()]
from gresize_vgpu.process import folder_reads
from gresize_vgpu.program import own_files
told = []
folder_reads._access = lambda path, mode: told.append(os.path.dirname(path))
folder_reads.watch()
own_files._installed_folders()
assert not told, told
os.listdir("testdata"); list(os.scandir("native")); glob.glob("manifest/*.json")
assert told == ["testdata", "native", "manifest"], told
`
	if out, err := exec.Command("python3", "-c", script).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// What runs inside a user's Python must be read by Python 3.8.
func TestPythonLayerIsOldSyntax(t *testing.T) {
	var files []string
	for _, depth := range []string{"*.py", "*/*.py", "*/*/*.py"} {
		found, err := filepath.Glob("python/" + depth)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) < 2 {
			t.Fatalf("python/%s: %v", depth, found)
		}
		files = append(files, found...)
	}
	names, err := json.Marshal(files)
	if err != nil {
		t.Fatal(err)
	}
	script := "import ast\nfor f in " + string(names) + ":\n    ast.parse(open(f).read(), f, feature_version=(3, 8))\n"
	// What every Python of a job reads first must not end one that is older, such as the 3.6 of RHEL 8.
	script += "ast.parse(open('python/sitecustomize.py').read(), feature_version=(3, 6))\n"
	if out, err := exec.Command("python3", "-c", script).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
