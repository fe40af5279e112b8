package vgpu

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestPythonLayerAlone runs the tests of the Python layer that need no PyTorch: layertests, by the interpreter of the system.
func TestPythonLayerAlone(t *testing.T) {
	for _, folder := range []string{"python", "layertests"} { // what another program reads, the cache of go test does not know
		if err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".py") {
				_, err = os.ReadFile(path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("python3", "-B", "-m", "unittest", "discover", "-s", "layertests")
	cmd.Env = append(cmd.Environ(), "PYTHONPATH=python")
	out, err := cmd.CombinedOutput()
	ran := regexp.MustCompile(`(?m)^Ran (\d+) tests? in `).FindSubmatch(out)
	if err != nil || ran == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n, _ := strconv.Atoi(string(ran[1])); n < 30 {
		t.Errorf("only %d tests were found", n)
	}
}
