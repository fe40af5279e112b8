package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Main()
	if err := becomeOld(os.Getenv("GRESIZE_TEST_KERNEL")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(inOwnFolder(m))
}

// inOwnFolder runs the tests with a folder for temporary files of their own: what other packages' tests have there at the same time is not
// something that we left behind.
func inOwnFolder(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sandbox-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = errors.Join(os.Chmod(dir, 0o777|os.ModeSticky), os.Setenv("TMPDIR", dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// run runs a shell script in a sandbox and returns how it ended and what it said.
func run(t *testing.T, dir, script string, change func(*Spec)) (Exit, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out bytes.Buffer
	spec := Spec{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=" + ShimDir + ":" + os.Getenv("PATH")}, Dir: dir, Output: &out}
	if change != nil {
		change(&spec)
	}
	p, err := Start(ctx, spec)
	if err != nil {
		t.Fatalf("%v", err)
	}
	exit := p.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	return exit, out.String()
}

func TestCommandKeepsItsNameAndItsPlace(t *testing.T) {
	dir := t.TempDir()
	exit, out := run(t, dir, "id -u; pwd; exit 7", nil)
	if exit.Code != 7 || exit.Killed || out != fmt.Sprintf("%d\n%s\n", os.Getuid(), dir) {
		t.Errorf("%+v\n%s", exit, out)
	}
	if notes := ownNotes(exit); len(notes) != 0 {
		t.Errorf("notes: %q", notes)
	}
	assertNothingLeft(t)
}

func assertNothingLeft(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "gresize-sandbox.*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// snapshot reads a tree into a map from path to mode, target and content.
func snapshot(t *testing.T, root string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(data)
		case info.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		tree[path] = fmt.Sprint(info.Mode(), info.ModTime().UnixNano(), content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestTheWorldStaysAsItWas(t *testing.T) {
	t.Run("changes in memory", func(t *testing.T) { theWorldStays(t, t.TempDir(), Policy{}) })
	t.Run("changes on the disk", func(t *testing.T) {
		// The home must not be where the changes are kept.
		home, err := os.MkdirTemp("/var/tmp", "gresize-test-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(home)
		theWorldStays(t, home, Policy{DiskScratch: true})
	})
}

// ownNotes are those that are not about /tmp, below which others may mount what they like.
func ownNotes(exit Exit) []string {
	return slices.DeleteFunc(slices.Clone(exit.Notes), func(note string) bool {
		return strings.Contains(note, " entries of /tmp are left out") || strings.Contains(note, "/gresize-nasty-")
	})
}

func theWorldStays(t *testing.T, home string, policy Policy) {
	for _, name := range []string{"model.pt", "logs/a.txt", "logs/deep/b.txt", "keep/c"} {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("before "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("model.pt", filepath.Join(home, "latest")); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, home)
	exit, out := run(t, home, `set -e
		echo after > model.pt; test "$(cat model.pt)" = after
		echo more >> logs/a.txt; tail -n1 logs/a.txt
		ln -sf keep/c latest; mv keep/c keep/d; chmod 700 keep/d
		rm -rf logs; test ! -e logs; mkdir logs; test -z "$(ls logs)"
		touch /gresize-test-root /tmp/gresize-test-tmp /usr/gresize-test-usr /var/tmp/gresize-test /dev/shm/gresize-test
		rm -rf "$PWD"/* ; ls -A; rm -rf /home/* /opt/* 2>/dev/null || true
		mkdir closed; chmod 000 closed
		echo done`, func(s *Spec) { s.Policy = policy })
	if exit.Code != 0 || !strings.HasSuffix(out, "done\n") || len(ownNotes(exit)) != 0 {
		t.Errorf("%+v\n%s", exit, out)
	}
	assertNothingLeft(t)
	if diff := cmp.Diff(before, snapshot(t, home)); diff != "" {
		t.Errorf("the world changed:\n%s", diff)
	}
	for _, path := range []string{"/gresize-test-root", "/tmp/gresize-test-tmp", "/usr/gresize-test-usr", "/var/tmp/gresize-test", "/dev/shm/gresize-test"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s exists outside", path)
		}
	}
}

// TestSharedProjectDirectory runs as root only: it needs a directory of a group that the user has but does not stand for.
func TestSharedProjectDirectory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("run by root in make test")
	}
	home, err := os.MkdirTemp("", "gresize-shared-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	const uid, gid, group = 54321, 54321, 54322
	for _, dir := range []string{"", "of-user", "of-root", "of-root/sub"} {
		path := filepath.Join(home, dir)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "old"), []byte("before\n"), 0o664); err != nil {
			t.Fatal(err)
		}
		owner := 0
		if dir == "of-user" {
			owner = uid
		}
		for _, p := range []string{path, filepath.Join(path, "old")} {
			if err := os.Chown(p, owner, group); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(path, "old"), 0o664); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o775|os.ModeSetgid); err != nil {
			t.Fatal(err)
		}
	}
	before := snapshot(t, home)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(home, "..", filepath.Base(home)+".program") // the test's own directory is closed to others
	data, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(program)
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestAsOther$", "-test.v")
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "GRESIZE_TEST_DIR="+home, "HOME="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: []uint32{group}}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if diff := cmp.Diff(before, snapshot(t, home)); diff != "" {
		t.Errorf("the world changed:\n%s", diff)
	}
}

// TestAsOther is the part of TestSharedProjectDirectory that runs as its user.
func TestAsOther(t *testing.T) {
	dir := os.Getenv("GRESIZE_TEST_DIR")
	if dir == "" {
		t.Skip("one half of another test, which starts it in a process of its own")
	}
	exit, out := run(t, dir, `set -e
		for d in . of-user of-root of-root/sub; do echo new > $d/new; echo more >> $d/old; cat $d/old; done
		mkdir of-root/made; rm of-root/old; rm -r of-user/*; echo x > of-user/y; echo done`, nil)
	if exit.Code != 0 || !strings.HasSuffix(out, "done\n") || strings.Count(out, "before\nmore\n") != 4 {
		t.Errorf("%+v\n%s", exit, out)
	}
}

func TestNoRightsInside(t *testing.T) {
	exit, out := run(t, t.TempDir(), `grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs)' /proc/self/status
		mount -t tmpfs none /mnt 2>&1; mount -o remount,rw /sys 2>&1; umount /proc 2>&1
		echo x > /sys/kernel/gresize 2>&1; mknod /tmp/null c 1 3 2>&1; ls /proc/1/root/.old 2>&1; ls /proc/self/fd`, nil)
	want := "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n"
	if !strings.HasPrefix(out, want) {
		t.Errorf("%+v\n%s", exit, out)
	}
	for _, words := range []string{"mount:", "umount:", "mknod:", "ls: cannot access"} {
		if !strings.Contains(out, words) {
			t.Errorf("%q was not refused:\n%s", words, out)
		}
	}
	if !strings.HasSuffix(out, "\n0\n1\n2\n3\n") { // 3 is ls's own
		t.Errorf("descriptors leak into the sandbox:\n%s", out)
	}
}

// TestNoGroupsOfProcesses: a file system of groups, mounted in namespaces of its own, would let root kill what is outside, and a user what is in a group that was handed to him.
func TestNoGroupsOfProcesses(t *testing.T) {
	exit, out := run(t, "/", "", func(s *Spec) {
		s.Argv = []string{"python3", "-c", `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
users, mounts, groups = 0x10000000, 0x20000, 0x02000000
for what in (users | mounts | groups, users | mounts, groups):
    if os.fork() == 0:
        made = libc.unshare(what); print("unshare", made, ctypes.get_errno(), flush=True)
        if made == 0: print("mount", libc.mount(b"none", b"/mnt", b"cgroup2", 0, None), ctypes.get_errno(), flush=True)
        os._exit(0)
    os.wait()`}
	})
	if want := fmt.Sprintf("unshare -1 %[1]d\nunshare 0 0\nmount -1 %[2]d\nunshare -1 %[2]d\n", syscall.ENOSPC, syscall.EPERM); exit.Code != 0 || out != want {
		t.Errorf("%+v\n%s\nwant\n%s", exit, out, want)
	}
}

// TestSignalsEndProcesses: no signal is ignored inside that is not ignored outside; a pool of processes waits for ever for workers that one does not end.
func TestSignalsEndProcesses(t *testing.T) {
	const ask = "grep SigIgn /proc/self/status"
	outside, err := exec.Command("sh", "-c", ask).Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, inside := run(t, "/", ask, nil); ignored(t, inside)&^ignored(t, string(outside)) != 0 {
		t.Errorf("inside %s, outside %s", inside, outside)
	}
	_, out := run(t, "/", `python3 -c '
import multiprocessing, time
worker = multiprocessing.Process(target=time.sleep, args=(600,))
worker.start(); worker.terminate(); worker.join(); print("ended by", -worker.exitcode)' 2>&1`, nil)
	if !strings.Contains(out, "ended by 15") {
		t.Error(out)
	}
}

// ignored gives the set of ignored signals, a bit each, in a line of /proc/PID/status.
func ignored(t *testing.T, line string) (signals uint64) {
	t.Helper()
	if _, err := fmt.Sscanf(line, "SigIgn: %x", &signals); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return signals
}

func TestInitIsClosedToTheCommand(t *testing.T) {
	// 438 is pidfd_getfd on every architecture; 4 is the control socket.
	_, out := run(t, t.TempDir(), `python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(438, os.pidfd_open(1), 4, 0), ctypes.get_errno())'; readlink /proc/1/fd/4; echo end`, nil)
	if want := fmt.Sprintf("-1 %d\nend\n", syscall.EPERM); out != want {
		t.Errorf("%s\nwant %s", out, want)
	}
}

// TestNoDevicesAndNoSettings is about root most of all: to a device and a setting of the kernel he has a right as their owner, without any capability.
func TestNoDevicesAndNoSettings(t *testing.T) {
	exit, out := run(t, t.TempDir(), `find /dev -type b; find /dev -type c | grep -vE '^/dev/(null|zero|full|random|urandom|tty|pts/ptmx)$'
		find /dev -type s; ls /dev/pts
		for f in /proc/sys/vm/swappiness /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do ( : >> $f ) 2>/dev/null && echo $f can be written; done
		echo x > /dev/null; head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c; echo to stdout > /dev/stdout; echo fd > /dev/fd/1; echo x > /dev/shm/a && cat /dev/shm/a
		test "$(stat -c %t:%T /dev/null)" = 1:3 && echo null; script -qec 'echo pty' /dev/null </dev/null 2>/dev/null | tr -d '\r'`, nil)
	if want := "ptmx\n4\n4\nto stdout\nfd\nx\nnull\npty\n"; out != want {
		t.Errorf("%+v\n%s\nwant %s", exit, out, want)
	}
}

func TestNoNetworkButLoopback(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket := filepath.Join(t.TempDir(), "s")
	unixListener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer unixListener.Close()
	script := fmt.Sprintf(`
import socket, os
def attempt(what, f):
    try: f(); print(what, "reached")
    except OSError as e: print(what, "refused")
def inside():
    s = socket.create_server(("127.0.0.1", 0)); socket.create_connection(s.getsockname(), 2)
attempt("inside", inside)
attempt("outside loopback", lambda: socket.create_connection(("127.0.0.1", %d), 2))
attempt("elsewhere", lambda: socket.create_connection(("192.0.2.1", 80), 2))
attempt("unix", lambda: socket.socket(socket.AF_UNIX).connect(%q))
`, listener.Addr().(*net.TCPAddr).Port, socket)
	_, out := run(t, "/", "", func(s *Spec) { s.Argv = []string{"python3", "-c", script} })
	if want := "inside reached\noutside loopback refused\nelsewhere refused\nunix refused\n"; out != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
}

func TestNothingSurvives(t *testing.T) {
	marker := fmt.Sprintf("gresize-survivor-%d", os.Getpid())
	start := time.Now()
	exit, out := run(t, "/", `setsid sh -c 'exec -a '`+marker+`' sleep 300' >/dev/null 2>&1 & (setsid python3 -c "
import os, sys, time
if os.fork(): sys.exit()
os.setsid()
if os.fork(): sys.exit()
time.sleep(300)" `+marker+` &) ; sleep 0.3; echo main ends`, nil)
	if exit.Code != 0 || time.Since(start) > 10*time.Second {
		t.Errorf("%+v after %v\n%s", exit, time.Since(start), out)
	}
	assertGone(t, marker)
}

func TestCancelKillsAll(t *testing.T) {
	marker := fmt.Sprintf("gresize-hang-%d", os.Getpid())
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	p, err := Start(ctx, Spec{Argv: []string{"/bin/sh", "-c", `trap "" TERM INT HUP; python3 -c "import time; time.sleep(300)" ` + marker + ` & wait; sleep 300`},
		Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if exit := p.Wait(); !exit.Killed || exit.Failed != "" || time.Since(start) > 5*time.Second {
		t.Errorf("%+v after %v", exit, time.Since(start))
	}
	assertGone(t, marker)
}

// TestAnEndOfItsOwnIsSaid: a first process that somebody else kills has not spent its time.
func TestAnEndOfItsOwnIsSaid(t *testing.T) {
	p, err := Start(t.Context(), Spec{Argv: []string{"/bin/sleep", "300"}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := syscall.Kill(p.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if exit := p.Wait(); !exit.Killed || exit.Failed != "signal: killed" {
		t.Errorf("%+v", exit)
	}
}

// assertGone looks for a process that carries the marker in its arguments.
func assertGone(t *testing.T, marker string) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Second)
	for {
		var found []string
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if data, err := os.ReadFile(f); err == nil && bytes.Contains(data, []byte(marker)) {
				found = append(found, f+" "+string(data))
			}
		}
		if len(found) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there: %q", found)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestReportsAndFilesPassThrough(t *testing.T) {
	var out bytes.Buffer
	p, err := Start(t.Context(), Spec{
		Argv: []string{FilesDir + "/job.sh"}, Dir: "/", Output: &out,
		Files: []File{{Name: "job.sh", Data: []byte("#!/bin/sh\necho from the job > " + ReportDir + "/a.json\n"), Mode: 0o755}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if exit := p.Wait(); exit.Code != 0 {
		t.Errorf("%+v %s", exit, out.String())
	}
	data, err := os.ReadFile(p.ReportPath() + "/a.json")
	if err != nil || string(data) != "from the job\n" {
		t.Errorf("%q %v", data, err)
	}
}

func TestScratchIsLimited(t *testing.T) {
	exit, out := run(t, t.TempDir(), "dd if=/dev/zero of=big bs=1M count=64 2>&1; ls -l big", func(s *Spec) { s.Policy.ScratchBytes = 16 << 20 })
	if exit.Code != 0 || !strings.Contains(out, "No space left") {
		t.Errorf("%+v\n%s", exit, out)
	}
}

func TestDiskScratchIsLimited(t *testing.T) {
	home, err := os.MkdirTemp("/var/tmp", "gresize-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	begin := time.Now()
	exit, _ := run(t, home, "dd if=/dev/zero of=big bs=1M count=64 2>&1; sleep 60", func(s *Spec) { s.Policy = Policy{DiskScratch: true, ScratchBytes: 16 << 20} })
	if notes := ownNotes(exit); !exit.Killed || len(notes) != 1 || !strings.Contains(notes[0], "at most 16") || time.Since(begin) > 15*time.Second {
		t.Errorf("%+v after %v", exit, time.Since(begin))
	}
}

// TestChangesThatTheDiskDoesNotTake: a file system below TMPDIR that can be covered and takes no changes itself, as NFS, leaves them in memory, and a note says so.
func TestChangesThatTheDiskDoesNotTake(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can do this: such a file system is mounted")
	}
	layers, err := os.MkdirTemp("/var/tmp", "gresize-layers-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(layers)
	for _, name := range []string{"home", "lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(layers, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	merged := filepath.Join(layers, "merged")
	if err := unix.Mount("overlay", merged, "overlay", 0, "lowerdir="+layers+"/lower,upperdir="+layers+"/upper,workdir="+layers+"/work"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(merged, unix.MNT_DETACH) }()
	exit, out := run(t, filepath.Join(layers, "home"), "mkdir -p a/b && echo x > a/b/c && rm -r a && mkdir a && ls", func(s *Spec) {
		s.Policy = Policy{DiskScratch: true, TemporaryDir: merged}
	})
	if exit.Code != 0 || out != "a\n" || !strings.Contains(strings.Join(exit.Notes, "\n"), "no overlay keeps its changes in "+merged) {
		t.Errorf("%+v %q", exit, out)
	}
}

func TestShims(t *testing.T) {
	cases := []struct{ name, script, want string }{
		{"srun", "srun -n 4 --gpus-per-task=1 -c 8 --label sh -c 'sleep 0.$SLURM_PROCID; echo $SLURM_PROCID of $SLURM_NTASKS on $CUDA_VISIBLE_DEVICES: $0' x",
			"0 of 4 on 0: x\n1 of 4 on 1: x\n2 of 4 on 2: x\n3 of 4 on 3: x\n"},
		{"srun of many", "srun -N 8 --ntasks-per-node 8 sh -c 'sleep 0.$SLURM_NODEID; echo $SLURM_PROCID of $SLURM_NTASKS, $SLURM_LOCALID on $SLURM_NODEID'",
			"0 of 64, 0 on 0\n63 of 64, 7 on 7\n"},
		{"srun for the job's tasks", "SLURM_NTASKS=2 SLURM_NNODES=2 srun sh -c 'sleep 0.$SLURM_PROCID; echo $SLURM_NODEID, $SLURM_TASKS_PER_NODE'", "0, 1(x2)\n1, 1(x2)\n"},
		{"a task in a container", "srun --container-image=nvcr.io#pytorch:24.10 -n 2 python train.py 2>&1; srun --container-image img --container-mounts /a:/b true 2>&1", "gresize: srun is not run while the job's memory is estimated\ngresize: srun is not run while the job's memory is estimated\n"},
		{"a task fails", "srun -n 2 sh -c 'exit $((3 * SLURM_PROCID))'; echo $?", "3\n"},
		{"no such task", "srun -n 2 no-such-command 2>/dev/null; echo $?", "127\n"},
		{"srun by its path", "srun=$(command -v srun); $srun -N1 --mem 4G printf '%s\\n' hi", "hi\n"},
		{"mpirun", "mpirun -np 2 --mca btl tcp -x FOO --oversubscribe echo $((1+1))", "2\n2\n"},
		{"sbatch", "sbatch next.sh 2>/dev/null && echo went on", "went on\n"},
		{"scontrol", "test \"$(scontrol show hostnames nodes | head -n1)\" = \"$(uname -n)\" && echo same", "same\n"},
		{"ssh", "ssh login.example 'rm -rf x' 2>/dev/null; echo $?", "0\n"},
		{"remote scp", "scp model.pt user@host:/x 2>/dev/null; echo $?", "0\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			exit, out := run(t, "/", c.script, nil)
			if exit.Code != 0 || out != c.want {
				t.Errorf("%+v\n%s", exit, out)
			}
		})
	}
}

func TestLauncherOptions(t *testing.T) {
	for _, c := range []struct {
		options *launcherOptions
		args    string
		want    string
	}{
		{&srunOptions, "python t.py -n 3", "python t.py -n 3"},
		{&srunOptions, "-n2 -c 4 --mem-per-cpu 2G --cpu-bind=none -u python -u t.py", "python -u t.py"},
		{&srunOptions, "--ntasks 2 -- python", "python"},
		{&srunOptions, "--ntasks", ""},
		{&srunOptions, "", ""},
		{&mpirunOptions, "-n 2 -bind-to none -map-by slot -x A -x B=1 --mca pml ob1 python t.py", "python t.py"},
		{&mpirunOptions, "--allow-run-as-root -np 1 ./a.out", "./a.out"},
	} {
		command, _ := c.options.split(strings.Fields(c.args))
		if got := strings.Join(command, " "); got != c.want {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
}

func TestMissingCommandAndDirectory(t *testing.T) {
	exit, out := run(t, "/", "", func(s *Spec) { s.Argv = []string{"no-such-command"} })
	if exit.Code != exitNotFound || !strings.Contains(out, "no-such-command") {
		t.Errorf("%+v %s", exit, out)
	}
	var unavailable *UnavailableError
	if _, err := Start(t.Context(), Spec{Argv: []string{"true"}, Dir: "/no/such/dir"}); !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "/no/such/dir") {
		t.Errorf("%v", err)
	}
}

func TestHostMemoryIsMeasured(t *testing.T) {
	exit, out := run(t, "/", "", func(s *Spec) {
		s.Argv = []string{"python3", "-c", "import time\nb = bytearray(200 << 20)\ntime.sleep(0.4)"}
	})
	if exit.HostPeakBytes < 200<<20 || exit.HostPeakBytes > 260<<20 {
		t.Errorf("%d bytes, want about 210 MiB\n%s", exit.HostPeakBytes, out)
	}
}

func TestParseMountinfo(t *testing.T) {
	got, err := parseMountinfo(strings.NewReader(`27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
36 27 0:31 / /mnt/with\040space rw shared:1 master:2 - nfs4 host:/x rw
37 36 0:32 / /mnt/with\040space rw - tmpfs none rw
`))
	want := map[string]string{"/": "ext4", "/mnt/with space": "tmpfs"}
	if err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%v %v", got, err)
	}
	if _, err := parseMountinfo(strings.NewReader("garbage\n")); err == nil {
		t.Error("garbage was accepted")
	}
}

func BenchmarkSetup(b *testing.B) {
	for b.Loop() {
		p, err := Start(b.Context(), Spec{Argv: []string{"true"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/"})
		if err != nil {
			b.Fatal(err)
		}
		p.Wait()
		p.Close()
	}
}
