package decisionlog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// TestLogOfOthersIsAFaultOfPermission: whoever finds the file and may not read it learns that, and not that SQLite cannot open something.
func TestLogOfOthersIsAFaultOfPermission(t *testing.T) {
	l, path := openLog(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Dir(path)
	for _, f := range []string{filepath.Dir(folder), folder} {
		if err := os.Chmod(f, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		// One thread asks as a user; the others stay what they are.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		const nobody, same = 65534, ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, nobody, same); errno != 0 {
			t.Fatal(errno)
		}
		defer syscall.RawSyscall(syscall.SYS_SETRESUID, same, 0, same)
	} else if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	if log, err := OpenReadOnly(t.Context(), path); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v %v", log, err)
	}
}
