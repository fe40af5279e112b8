package offload

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGroupLimit: the lowest limit of a group and those above counts, in both versions of control groups.
func TestGroupLimit(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no files", nil, math.MaxInt64},
		{"no limit", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, math.MaxInt64},
		{"its own", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "4096\n", "sys/fs/cgroup/a/memory.max": "8192\n"}, 4096},
		{"one above", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "8192\n"}, 8192},
		{"version 1", map[string]string{"proc/self/cgroup": "5:cpu:/a\n4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "4096\n"}, 4096},
		{"nonsense", map[string]string{"proc/self/cgroup": "x\n0::/../..\n", "sys/fs/cgroup/memory.max": "-7\n"}, math.MaxInt64},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := groupLimit(root); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	var host *HostError
	if err := (&Plan{HostBytes: 1 << 47}).CheckHost(); !errors.As(err, &host) || host.NeedBytes != 1<<47 {
		t.Errorf("more than any machine has: %v", err)
	}
	if err := (&Plan{HostBytes: 1}).CheckHost(); err != nil {
		t.Error(err)
	}
}

// TestPace: what the card waited for copies makes a step so many times longer; more than is allowed ends the process with the line that the Epilog looks for.
func TestPace(t *testing.T) {
	for _, c := range []struct{ wait, slowest, says string }{
		{"10", "", "slowdown 1.3"}, {"0", "1.05", "slowdown 1.0"}, {"10", "1.5", "slowdown 1.3"}, {"10", "x", "slowdown 1.3"},
		{"10", "1.05", "gresize: steps are too slow with the plan: 1.30 times as long as without waiting for copies, and 1.05 are allowed"},
	} {
		cmd := exec.Command("python3", "testdata/pace.py", c.wait)
		cmd.Env = append(os.Environ(), "PYTHONPATH=python", "GRESIZE_OFFLOAD_SLOWEST="+c.slowest)
		out, err := cmd.CombinedOutput()
		ends := strings.HasPrefix(c.says, "gresize: ")
		if ends != (err != nil) || !strings.HasPrefix(string(out), c.says) || !ends && !strings.HasSuffix(string(out), " 0 0\n") {
			t.Errorf("waits of %s, at most %s: %v %s", c.wait, c.slowest, err, out)
		}
	}
}

// TestNoPinnedMemory: where the system gives none at all, that is said with the way out, and under gresize run the command ends before its first step.
func TestNoPinnedMemory(t *testing.T) {
	for _, strict := range []string{"1", ""} {
		cmd := exec.Command("python3", "-c", `
from gresize_offload import copies
class Torch:
    uint8 = None
    @staticmethod
    def empty(*_, **__):
        raise RuntimeError("CUDA error: out of memory\nmore of it")
pool = copies.Pool(Torch, 3 << 30, True)
assert pool.take(1 << 20) is None
assert pool.take(1 << 20) is None
print("it goes on")`)
		cmd.Env = append(os.Environ(), "PYTHONPATH=python", "GRESIZE_OFFLOAD_STRICT="+strict)
		out, err := cmd.CombinedOutput()
		if text := string(out); (err != nil) != (strict != "") || strings.Count(text, "gresize: the system gives no pinned host memory (CUDA error: out of memory), and the plan takes 3.00 GiB: give the job more memory (sbatch --mem), or plan for a larger --target") != 1 ||
			strings.Contains(text, "it goes on") != (strict == "") || strings.Contains(text, "Traceback") {
			t.Errorf("strict %q: %v %s", strict, err, text)
		}
	}
}
