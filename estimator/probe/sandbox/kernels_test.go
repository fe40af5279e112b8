package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/probe/sandbox/sandboxtest"
	"github.com/gresize/gresize/estimator/probe/seccomp"
	"golang.org/x/sys/unix"
)

// oldKernel is what the tests take away from the kernel that they run on.
type oldKernel struct {
	// without are the first and the last number of the system calls that are not there.
	without [2]uint32
	copies  bool
	// noUsers says that it makes no user namespaces.
	noUsers bool
}

// The numbers of calls are the same on every architecture from 424 on, pidfd_send_signal of Linux 5.1.
var oldKernels = map[string]oldKernel{
	"":                         {},
	"5.11":                     {without: [2]uint32{unix.SYS_MOUNT_SETATTR, 1000}},
	"4.18 with users' overlay": {without: [2]uint32{unix.SYS_PIDFD_SEND_SIGNAL, 1000}}, // as in RHEL 8.5
	noUsers:                    {noUsers: true},
	"4.18":                     {without: [2]uint32{unix.SYS_PIDFD_SEND_SIGNAL, 1000}, copies: true},
}

// becomeOld has this process, and all that it starts, find the kernel of that name.
func becomeOld(name string) error {
	kernel, known := oldKernels[name]
	if !known {
		return fmt.Errorf("no old kernel %q", name)
	}
	if kernel.noUsers {
		if os.Getuid() != 0 {
			return nil // root has seen to it
		}
		return sandboxtest.ForbidUserNamespaces()
	}
	if kernel.without[0] == 0 {
		return nil
	}
	program := []unix.SockFilter{
		seccomp.Load(seccomp.Number),
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 2, K: kernel.without[0]},
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, Jt: 1, K: kernel.without[1]},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return seccomp.Install(program)
}

func TestOldKernels(t *testing.T) {
	for name := range oldKernels {
		if name == "" || name == noUsers {
			continue
		}
		t.Run(name, func(t *testing.T) {
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestOnOldKernel$", "-test.v")
			cmd.Env = append(os.Environ(), "GRESIZE_TEST_KERNEL="+name)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "--- PASS: TestOnOldKernel/") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestOnOldKernel is the part of TestOldKernels that has that kernel.
func TestOnOldKernel(t *testing.T) {
	name := os.Getenv("GRESIZE_TEST_KERNEL")
	if name == "" {
		t.Skip("one half of another test, which starts it in a process of its own")
	}
	kernel := oldKernels[name]
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{}); err != unix.ENOSYS {
		t.Fatalf("mount_setattr: %v", err)
	}
	t.Run("the world stays", func(t *testing.T) {
		if !kernel.copies {
			theWorldStays(t, t.TempDir(), Policy{})
			return
		}
		// Outside of what is copied, nothing can be changed.
		home := t.TempDir()
		for name, size := range map[string]int{"model.pt": 100, "logs/a.txt": 10, "data/big": 20 << 20, "data/deep/x": 1} {
			path := filepath.Join(home, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		before := snapshot(t, home)
		exit, out := run(t, home, `set -e
			echo after > model.pt; cat model.pt; mv logs other; touch other/new data/deep/y /tmp/gresize-test-tmp /var/tmp/gresize-test "$HOME/runs"
			rm data/deep/x; wc -c < data/big; (echo x > data/big) 2>&1 || true; (touch /usr/evil /etc/evil) 2>&1 || true; echo done`, func(s *Spec) {
			s.Policy = Policy{Copies: true, ScratchBytes: 64 << 20}
			s.Env = append(s.Env, "HOME="+home)
		})
		for _, want := range []string{"after\n", "20971520\n", "Read-only file system", "done\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q: %+v\n%s", want, exit, out)
			}
		}
		if !slices.ContainsFunc(exit.Notes, func(note string) bool { return strings.Contains(note, "are copies") }) {
			t.Errorf("no note says it: %q", exit.Notes)
		}
		if after := snapshot(t, home); fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("the world changed: %v", after)
		}
		if left, err := filepath.Glob("/*tmp/gresize-test*"); err != nil || len(left) > 0 {
			t.Errorf("%v %v", left, err)
		}
	})
	t.Run("what is mounted below", func(t *testing.T) {
		exit, out := run(t, "/", `for p in $(awk '$5 ~ "^/sys(/|$)" {print $5}' /proc/self/mountinfo); do grep -q " $p ro," /proc/self/mountinfo || echo "$p can be written"; done; grep -c " /sys" /proc/self/mountinfo; ls -l /proc/self/fd | grep -c config`, func(s *Spec) { s.Policy.Copies = kernel.copies })
		if strings.Contains(out, "can be written") || strings.HasPrefix(out, "0") || !strings.HasSuffix(out, "\n0\n") {
			t.Error(out)
		}
		want := []string{"close_range", "mount_setattr", "overlays of users"}
		if name == "5.11" {
			want = want[1:2]
		} else if !kernel.copies {
			want = want[:2]
		}
		if !slices.Equal(exit.Lacks, want) {
			t.Errorf("%q, want %q", exit.Lacks, want)
		}
	})
}
