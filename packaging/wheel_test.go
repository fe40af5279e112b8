package packaging

import (
	"archive/zip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWheel installs the wheel where nothing else of gresize is, and asks the program that pip has put there for what needs the virtual GPU beside it.
func TestWheel(t *testing.T) {
	out := t.TempDir()
	output(t, "./make-wheel", "../build", out, "1.2.3-rc.4")
	wheel := one(t, out, "gresize-1.2.3rc4-py3-none-manylinux_2_17_x86_64.whl")
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	for _, member := range archive.File {
		file, err := member.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(file)
		if err != nil {
			t.Fatalf("%s: %v", member.Name, err)
		}
		runsOnAnOldLibrary(t, member.Name, data)
	}
	venv := filepath.Join(t.TempDir(), "venv")
	output(t, "python3", "-m", "venv", venv)
	output(t, venv+"/bin/pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel)
	if got := output(t, venv+"/bin/gresize", "gpu", "list"); !strings.Contains(got, "a100-80") {
		t.Errorf("gresize gpu list: %s", got)
	}
	if got := output(t, venv+"/bin/gresize", "estimator", "list"); !strings.Contains(got, "xmem") {
		t.Errorf("gresize estimator list: %s", got)
	}
	cache := os.Getenv("GRESIZE_CACHE")
	if cache == "" {
		cache = "/var/cache/gresize"
	}
	torch := filepath.Join(cache, "venv-torch-2.6.0/bin/python")
	if _, err := os.Stat(torch); err != nil {
		t.Fatalf("%v: run make setup", err)
	}
	// With nothing but what the wheel brought: no GRESIZE_LIBDIR, no build/ beside it.
	got := output(t, "env", "-u", "GRESIZE_LIBDIR", venv+"/bin/gresize", "estimate", "--gpu", "a100-80", "--", torch, "../examples/train_resnet.py", "--batch-size", "8")
	if !strings.HasPrefix(got, "fits: ") {
		t.Errorf("gresize estimate: %s", got)
	}
	output(t, venv+"/bin/pip", "uninstall", "--quiet", "--yes", "--disable-pip-version-check", "gresize")
	// Outside of site-packages pip leaves the empty folders.
	if left := output(t, "find", venv, "-path", venv+"/lib/gresize/*", "-type", "f", "-o", "-name", "gresize*", "!", "-type", "d"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}
