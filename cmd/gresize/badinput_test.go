package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/answer"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// toy trains a layer; its argument names a file that another stage left.
const toy = `
import torch
layer = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for step in range(200):
    layer(torch.ones(8, 512, device="cuda")).sum().backward()
    optimizer.step()
`

// site is a folder with a sitecustomize of the site's own, which must run whatever gresize does.
func site(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte("import os\nos.environ['SITE_RAN'] = '1'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// foreignTorch is a PyTorch whose library is for another processor: its import fails as the dynamic linker fails.
func foreignTorch(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "torch", "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	head := append([]byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00\xb7\x00"), make([]byte, 44)...)
	for name, data := range map[string][]byte{
		"torch/lib/libtorch_cpu.so": head,
		"torch/__init__.py":         []byte("import ctypes, os\nctypes.CDLL(os.path.join(os.path.dirname(__file__), 'lib', 'libtorch_cpu.so'))\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// missing is a torch that wants what nobody has.
func missing(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "torch"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "torch/__init__.py"), []byte("raise ImportError("+text+")\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// database is a file larger than what a command may change.
func database(t *testing.T) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "data.mdb"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := syscall.Fallocate(int(file.Fd()), 0, 0, 5<<29); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// TestBadInput: what stands between a program and the virtual GPU has a reason of its own, and is never called the command's failure.
func TestBadInput(t *testing.T) {
	real := torchtest.Python(t, "2.6.0")
	train := script(t, toy)
	nightly := os.Getenv("GRESIZE_NIGHTLY") == "1"
	for _, c := range []struct {
		name    string
		long    bool // runs every night only
		command []string
		status  string
		reason  string // "": none but the usual ones
	}{
		// The program is run as always, whatever it does to its environment.
		{name: "python -I", command: []string{real, "-I", train}, status: answer.Fits},
		{name: "a PYTHONPATH of its own", long: true, command: []string{"env", "PYTHONPATH=" + site(t), real, "-c", "import os; assert os.environ['SITE_RAN']\n" + toy}, status: answer.Fits},
		{name: "a sitecustomize of the site", long: true, command: []string{"sh", "-c", "PYTHONPATH=$PYTHONPATH:" + site(t) + " exec " + real + " -c \"$0\"", "import os; assert os.environ['SITE_RAN']\n" + toy}, status: answer.Fits},
		{name: "an LD_PRELOAD of its own", long: true, command: []string{"env", "LD_PRELOAD=libc.so.6", real, train}, status: answer.Fits},
		{name: "a child interpreter", long: true, command: []string{"bash", "-c", "exec bash -c '" + real + " " + train + "'"}, status: answer.Fits},
		{name: "a child by python -I", long: true, command: []string{real, "-c", "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-I', '" + train + "']))"}, status: answer.Fits},
		{name: "another program in its place", long: true, command: []string{real, "-c", "import os, sys; os.execv(sys.executable, [sys.executable, '-E', '" + train + "'])"}, status: answer.Fits},
		{name: "an LD_LIBRARY_PATH of its own", long: true, command: []string{"env", "LD_LIBRARY_PATH=/usr/lib", real, train}, status: answer.Fits},
		{name: "an LD_PRELOAD that is not there", long: true, command: []string{"env", "LD_PRELOAD=/nowhere/lib.so", real, train}, status: answer.Fits},
		{name: "few files and no locked memory", long: true, command: []string{"sh", "-c", "ulimit -n 16; ulimit -l 0; exec " + real + " " + train}, status: answer.Fits},
		// What takes the virtual GPU away is said.
		{name: "a child with an empty environment", long: true, command: []string{real, "-c", "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '" + train + "'], env={}))"}, status: answer.Unknown, reason: "environment_replaced"},
		{name: "an LD_AUDIT of its own", command: []string{"env", "-u", "LD_LIBRARY_PATH", "LD_AUDIT=/nowhere.so", real, train}, status: answer.Unknown, reason: "environment_replaced"},
		{name: "env -i", command: []string{"env", "-i", real, train}, status: answer.Unknown, reason: "environment_replaced"},
		{name: "a second stage by python -I that is killed", long: true, command: []string{"sh", "-c", real + " " + train + " && " + real +
			" -I -c 'import torch, os, signal; x = torch.ones(9, device=\"cuda\"); os.kill(os.getpid(), signal.SIGKILL)'"}, status: answer.Unknown, reason: "out_of_host_memory"},
		{name: "a limit on address space", command: []string{"sh", "-c", "ulimit -v 12000000; exec " + real + " -c \"$0\"", "import torch\nx = torch.empty(24 << 30, dtype=torch.uint8, device='cuda')\n" + toy}, status: answer.Unknown, reason: "address_space"},
		{name: "a fork bomb", command: []string{"bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 60"}, status: answer.Unknown, reason: "too_many_processes"},
		{name: "the disk is full", command: []string{"sh", "-c", "head -c 3G /dev/zero > big; exit $?"}, status: answer.Unknown, reason: "out_of_disk"},
		{name: "no memory for the program", command: []string{"python3", "-c", "x = bytearray(1 << 62)"}, status: answer.Unknown, reason: "out_of_host_memory"},
		{name: "a limit on address space, and no GPU", command: []string{"sh", "-c", "ulimit -v 400000; exec python3 -c 'x = bytearray(1 << 30)'"}, status: answer.Unknown, reason: "address_space"},
		{name: "a limit on data, and no GPU", command: []string{"sh", "-c", "ulimit -d 400000; exec python3 -c 'x = bytearray(1 << 30)'"}, status: answer.Unknown, reason: "address_space"},
		{name: "no room for the linker", long: true, command: []string{"sh", "-c", "ulimit -d 100000; exec " + real + " " + train}, status: answer.Unknown, reason: "address_space"},
		// Memory of the card counts for nothing where the kernel promises no more than there is (vm.overcommit_memory=2), which is played by a limit on data.
		{name: "a limit on data", command: []string{"sh", "-c", "ulimit -d 4000000; exec " + real + " -c \"$0\"", "import torch\nx = [torch.empty(1 << 30, dtype=torch.uint8, device='cuda') for _ in range(24)]\n" + toy}, status: answer.Fits},
		{name: "a limit on address space, and much of it for the program", long: true, command: []string{"sh", "-c", "ulimit -v 700000000; exec " + real + " -c \"$0\"", "import mmap, torch\nx = torch.empty(24 << 30, dtype=torch.uint8, device='cuda')\n" +
			"y = mmap.mmap(-1, 250 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)\n" + toy}, status: answer.Fits},
		{name: "no more files", command: []string{"sh", "-c", "ulimit -n 16; exec python3 -c 'x = [open(\"/dev/null\") for _ in range(64)]'"}, status: answer.Unknown, reason: "resource_limit"},
		{name: "no longer files", command: []string{"sh", "-c", "ulimit -f 1; head -c 1M /dev/zero > big"}, status: answer.Unknown, reason: "resource_limit"},
		{name: "no more time on the CPU", command: []string{"sh", "-c", "ulimit -t 1; exec python3 -c 'while True: pass'"}, status: answer.Unknown, reason: "resource_limit"},
		{name: "a database that is too large to copy", command: []string{real, "-c", "open('" + database(t) + "', 'r+b', buffering=0).write(b'x')\n" + toy}, status: answer.Unknown, reason: "out_of_disk"},
		{name: "a database that is open for writing and read", command: []string{real, "-c", "open('" + database(t) + "', 'r+b').read(9)\n" + toy}, status: answer.Fits},
		{name: "no room for the reports", command: []string{"sh", "-c", "head -c 1G /dev/zero > $GRESIZE_VGPU_REPORT_DIR/x; exit 0"}, status: answer.Unknown, reason: "out_of_disk"},
		{name: "killed", command: []string{"sh", "-c", "kill -KILL $$"}, status: answer.Unknown, reason: "out_of_host_memory"},
		{name: "a wheel of another architecture", command: []string{"python3", "-c", "import sys; sys.path.insert(0, '" + foreignTorch(t) + "'); import torch"}, status: answer.Unknown, reason: "other_architecture"},
		{name: "a library that has no stub", command: []string{"python3", "-c", "import sys; sys.path.insert(0, '" +
			missing(t, "'libcusomething.so.9: cannot open shared object file: No such file or directory'") + "'); import torch"}, status: answer.Unknown, reason: "stub_missing"},
		{name: "a symbol that no stub has", command: []string{"python3", "-c", "import sys; sys.path.insert(0, '" +
			missing(t, "'/x/libtorch_cuda.so: undefined symbol: cudaSomethingNew'") + "'); import torch"}, status: answer.Unknown, reason: "symbol_missing"},
		{name: "a torch that is broken by itself", command: []string{"python3", "-c", "import sys; sys.path.insert(0, '" + missing(t, "'no numpy'") + "'); import torch"}, status: answer.Failed, reason: "script_failed"},
		{name: "CUDA sources and no compiler for them", command: []string{real, "-c", "from torch.utils import cpp_extension\ncpp_extension.CUDA_HOME = None\n" +
			"cpp_extension.load_inline('twice', [''], ['__global__ void twice(float *x) { *x *= 2; }'])"}, status: answer.Unknown, reason: "no_cuda_compiler"},
		{name: "sources and no Ninja", command: []string{"env", "PATH=/nowhere", real, "-c", "from torch.utils import cpp_extension\n" +
			"cpp_extension.load_inline('twice', ['int twice(int x) { return 2 * x; }'], functions=['twice'])"}, status: answer.Unknown, reason: "no_cuda_compiler"},
		{name: "no program of Python's", command: []string{"/bin/true"}, status: answer.Unknown, reason: "no_torch"},
		// The words of the competitor's faults: text decides nothing, an error that was caught is one.
		{name: "the words alone", command: []string{"sh", "-c", "echo 'torch.OutOfMemoryError: CUDA out of memory' >&2; exit 1"}, status: answer.Failed, reason: "script_failed"},
		{name: "out of memory, caught", command: []string{real, "-c", "import torch\ntry:\n    torch.empty(1 << 40, device='cuda')\nexcept Exception:\n    pass\n" + toy}, status: answer.DoesNotFit, reason: "out_of_memory"},
		{name: "out of memory in other words", long: true, command: []string{real, "-c", "import torch, sys\ntry:\n    torch.empty(1 << 40, device='cuda')\nexcept Exception:\n    sys.exit('so sorry')\n"}, status: answer.DoesNotFit, reason: "out_of_memory"},
		{name: "no optimizer and no backward", long: true, command: []string{real, "-c", "import torch\nx = torch.ones(9, device='cuda')\nfor i in range(50): x = x + 1\n"}, status: answer.Unknown, reason: "no_step_seen"},
	} {
		if c.long && !nightly {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			a := estimated(t, t.TempDir(), append([]string{"--budget", "60s", "--"}, c.command...)...)
			if a.Status != c.status || a.code != answer.ExitCode(c.status) || c.reason != "" && !a.has(c.reason) {
				t.Errorf("%s, exit code %d, reasons %v: want %s because of %q", a.Status, a.code, a.Reasons, c.status, c.reason)
			}
			for _, r := range a.Reasons {
				if !estimator.Known(r.Code) {
					t.Errorf("%s has no words", r.Code)
				}
			}
		})
	}
}

// TestALimitOfAMoment: a process may end as soon as it has its limit, before anybody has looked at it while it ran.
func TestALimitOfAMoment(t *testing.T) {
	for name, options := range map[string][]string{"in the sandbox": nil, "without one": {"--no-sandbox"}} {
		t.Run(name, func(t *testing.T) {
			a := estimated(t, t.TempDir(), append(options, "--", "sh", "-c", "ulimit -d 400000; echo MemoryError >&2; exit 1")...)
			if a.Status != answer.Unknown || !a.has("address_space") {
				t.Errorf("%s, reasons %v", a.Status, a.Reasons)
			}
		})
	}
}

// TestAnAnswerWithNothingToNote is what its schema says: a list stays a list.
func TestAnAnswerWithNothingToNote(t *testing.T) {
	if a := estimated(t, t.TempDir(), "--no-sandbox", "--", "false"); a.Status != answer.Failed {
		t.Errorf("%s", a.Status)
	}
}
