package spool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// childVariable makes the test binary one that writes a file into the spool that it names, and says when it is done.
const childVariable = "GRESIZE_SPOOL_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		s, err := Open(dir)
		if err == nil {
			err = s.PutBundle("token", bytes.Repeat([]byte("x"), 100_000))
		}
		fmt.Println("done", err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// call is one system call of the child that succeeded.
type call struct {
	name string
	// fd is what it works on; of open, what it returns.
	fd         int
	path, dest string
}

// TestFileIsSyncedBeforeItIsRenamed watches the system calls of a process that writes a file: power may go between any two of them. The content is synced before the name is
// given, and the name before anybody is told.
func TestFileIsSyncedBeforeItIsRenamed(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	calls := traced(t, dir)
	at := func(what string, match func(call) bool) int {
		i := slices.IndexFunc(calls, match)
		if i < 0 {
			t.Fatalf("no %s among the calls: %+v", what, calls)
		}
		return i
	}
	opened := at("opening of a .part", func(c call) bool { return c.name == "open" && strings.HasSuffix(c.path, partSuffix) })
	fd := calls[opened].fd
	renamed := at("rename", func(c call) bool {
		return c.name == "rename" && c.path == calls[opened].path && c.dest == dir+"/token"+bundleSuffix
	})
	told := at("word to its parent", func(c call) bool { return c.name == "write" && c.fd == 1 })
	lastWrite, synced, closed := -1, -1, -1
	for i, c := range calls[:renamed] {
		switch {
		case i < opened || c.fd != fd:
		case c.name == "write":
			lastWrite = i
		case c.name == "fsync":
			synced = i
		case c.name == "close" && closed < 0:
			closed = i
		}
	}
	if lastWrite < 0 || synced < lastWrite || closed < synced {
		t.Errorf("opened %d, last written %d, synced %d, closed %d, renamed %d", opened, lastWrite, synced, closed, renamed)
	}
	folder := -1
	for i, c := range calls[renamed:told] {
		if c.name == "open" && c.path == dir {
			folder = c.fd
		}
		if c.name == "fsync" && c.fd == folder {
			t.Logf("of %d calls: open %d, last write %d, fsync %d, rename %d, fsync of the folder %d, told %d", len(calls), opened, lastWrite, synced, renamed, renamed+i, told)
			return
		}
	}
	t.Error("the folder is not synced between the rename and the word that it is done")
}

// traced runs the child and returns its system calls on files in their order.
func traced(t *testing.T, dir string) (calls []call) {
	t.Helper()
	// All requests of ptrace come from the thread that began.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(executable)
	cmd.Env = append(os.Environ(), childVariable+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	const sysgood = 1 // PTRACE_O_TRACESYSGOOD
	if err := syscall.PtraceSetOptions(pid, sysgood|syscall.PTRACE_O_TRACECLONE); err != nil {
		t.Fatal(err)
	}
	inside := map[int]bool{}
	next, signal := pid, 0
	for {
		if err := syscall.PtraceSyscall(next, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		if next, err = syscall.Wait4(-1, &status, syscall.WALL, nil); err != nil {
			t.Fatal(err)
		}
		signal = 0
		switch {
		case status.Exited() || status.Signaled():
			if next == pid {
				_ = cmd.Wait() // it is reaped already
				return calls
			}
		case status.Stopped() && status.StopSignal() == syscall.SIGTRAP|0x80:
			if inside[next] = !inside[next]; !inside[next] {
				calls = appendCall(calls, next)
			}
		case status.Stopped() && status.StopSignal() != syscall.SIGTRAP && status.StopSignal() != syscall.SIGSTOP:
			signal = int(status.StopSignal())
		}
	}
}

func appendCall(calls []call, pid int) []call {
	var r syscall.PtraceRegs
	if syscall.PtraceGetRegs(pid, &r) != nil || int64(r.Rax) < 0 {
		return calls
	}
	switch r.Orig_rax {
	case syscall.SYS_OPENAT:
		return append(calls, call{name: "open", fd: int(r.Rax), path: textAt(pid, r.Rsi)})
	case syscall.SYS_WRITE:
		return append(calls, call{name: "write", fd: int(r.Rdi)})
	case syscall.SYS_FSYNC:
		return append(calls, call{name: "fsync", fd: int(r.Rdi)})
	case syscall.SYS_CLOSE:
		return append(calls, call{name: "close", fd: int(r.Rdi)})
	case syscall.SYS_RENAMEAT:
		return append(calls, call{name: "rename", fd: -1, path: textAt(pid, r.Rsi), dest: textAt(pid, r.R10)})
	case syscall.SYS_RENAME:
		return append(calls, call{name: "rename", fd: -1, path: textAt(pid, r.Rdi), dest: textAt(pid, r.Rsi)})
	}
	return calls
}

func textAt(pid int, address uint64) string {
	buffer := make([]byte, 512)
	n, err := syscall.PtracePeekData(pid, uintptr(address), buffer)
	if err != nil && n == 0 {
		return ""
	}
	text, _, _ := bytes.Cut(buffer[:n], []byte{0})
	return string(text)
}
