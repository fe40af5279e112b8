package offload

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/vgpu"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// TestPlantedFaults: a function of the layer that raises, at its first call or at a later one, leaves the program's losses, gradients and states as they are without a plan, or ends the program with that error; no program computes anything else.
func TestPlantedFaults(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: a hundred processes with PyTorch")
	}
	env, err := vgpu.Environment(vgpu.Options{LibDir: libDir(t)}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(torchtest.Python(t, "2.6.0"), "testdata/faults.py")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if _, counts, ok := strings.Cut(string(out), "planted: "); ok {
		t.Log(strings.TrimSpace(counts))
	}
}
