package lint

import (
	"os/exec"
	"strings"
	"testing"
)

// TestNoGRPCInSmallPrograms keeps gRPC out of the programs that are started for every job or by every person.
func TestNoGRPCInSmallPrograms(t *testing.T) {
	for _, program := range []string{"gresize", "gresize-probe", "gresize-launch"} {
		cmd := exec.Command("go", "list", "-deps", "./cmd/"+program)
		cmd.Dir = ".."
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(out), "google.golang.org/grpc") {
			t.Errorf("%s links gRPC", program)
		}
	}
}
