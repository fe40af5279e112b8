package regular_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gresize/gresize/internal/regular"
)

func TestCreateBesideSpeaksOfTheFileItself(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "file")
	if _, err := regular.CreateBeside(path); err == nil || err.Error() != "write "+path+": no such file or directory" {
		t.Error(err)
	}
	path = filepath.Join(t.TempDir(), "file")
	f, err := regular.CreateBeside(path)
	if err != nil || filepath.Dir(f.Name()) != filepath.Dir(path) || f.Name() == path {
		t.Fatal(f, err)
	}
	f.Close()
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.WriteFile(at("file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "pipe"} {
		if err := os.Symlink(name, at("link to a "+name)); err != nil {
			t.Fatal(err)
		}
	}
	for path, says := range map[string]string{
		at("file"): "", at("link to a file"): "", at("pipe"): "a pipe and", at("link to a pipe"): "a pipe and", at("socket"): "a socket and", "/dev/zero": "a device and", dir: "is a directory", at("none"): "no such file",
	} {
		f, err := regular.Open(path)
		checked := regular.Check(path)
		if says != "" {
			if f != nil || err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") || checked == nil || !strings.Contains(checked.Error(), says) {
				t.Errorf("%s: opened: %v, checked: %v, want %q", path, err, checked, says)
			}
			continue
		}
		if err != nil || checked != nil {
			t.Errorf("%s: opened: %v, checked: %v", path, err, checked)
			continue
		}
		if text, err := io.ReadAll(f); string(text) != "text" || err != nil {
			t.Errorf("%s: %q, %v", path, text, err)
		}
		f.Close()
	}
	if _, err := regular.OpenFile(at("pipe"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err == nil {
		t.Error("a pipe is opened for writing")
	}
}
