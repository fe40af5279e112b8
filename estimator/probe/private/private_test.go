package private

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain makes a directory and dies of SIGKILL where a test asks for it.
func TestMain(m *testing.M) {
	if parent := os.Getenv("PRIVATE_TEST_PARENT"); parent != "" {
		d, err := Make(parent, "test-")
		if err != nil {
			os.Exit(1)
		}
		work := filepath.Join(d.Path, "work")
		if os.MkdirAll(filepath.Join(work, "closed"), 0o700) != nil || os.Chmod(work, 0) != nil {
			os.Exit(1)
		}
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			_ = self.Kill()
		}
		select {}
	}
	os.Exit(m.Run())
}

func old(t *testing.T, path string) {
	t.Helper()
	if err := os.Chtimes(path, time.Now(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
}

func TestTheDeadAreSweptAndTheLivingStay(t *testing.T) {
	parent := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), "PRIVATE_TEST_PARENT="+parent)
	if err := cmd.Run(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("%v, want a kill", err)
	}
	left, err := filepath.Glob(parent + "/test-*")
	if err != nil || len(left) != 1 {
		t.Fatalf("%v %v", left, err)
	}
	old(t, left[0])
	alive, err := Make(t.TempDir(), "test-")
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Remove()
	living := filepath.Join(parent, "test-living")
	if err := os.Rename(alive.Path, living); err != nil {
		t.Fatal(err)
	}
	alive.Path = living
	old(t, living)
	for _, name := range []string{"test-new", "other-1"} {
		if err := os.Mkdir(filepath.Join(parent, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	old(t, filepath.Join(parent, "other-1"))
	target := t.TempDir()
	if err := os.Symlink(target, filepath.Join(parent, "test-link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(parent, "test-file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Make(parent, "test-")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{left[0]: false, living: true, parent + "/test-new": true, parent + "/other-1": true, parent + "/test-link": true, parent + "/test-file": true, target: true, d.Path: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: there %v, want %v", path, err == nil, want)
		}
	}
	d.Remove()
	if _, err := os.Lstat(d.Path); err == nil {
		t.Error("Remove leaves the directory")
	}
}

func TestADirectoryOfAnotherUserStays(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "test-theirs")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("run by root in make test")
	}
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	old(t, path)
	sweep(parent, "test-", time.Now())
	if _, err := os.Lstat(path); err != nil {
		t.Error("it was removed")
	}
}
