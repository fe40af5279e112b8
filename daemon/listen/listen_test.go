package listen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListenLeavesFilesAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := On("unix:" + path); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("%v", err)
	}
}

func TestListen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sub", "s")
	first, err := Unix(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v %v", info.Mode(), err)
	}
	if _, err := Unix(path); err == nil {
		t.Error("two daemons on one socket")
	}
	first.SetUnlinkOnClose(false)
	first.Close()
	second, err := Unix(path)
	if err != nil {
		t.Fatalf("a socket that a dead daemon left: %v", err)
	}
	second.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Unix(path); err == nil {
		t.Error("a file was replaced")
	}
}
