package minicluster

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// reserverVariable has this test take a block of ports and say which.
const reserverVariable = "GRESIZE_RESERVE_PORTS"

// TestClustersOfOtherRootsHaveOtherPorts: a process with another folder of locks, as one in another root, has the same ports on loopback, and does not get a block that is taken.
func TestClustersOfOtherRootsHaveOtherPorts(t *testing.T) {
	if os.Getenv(reserverVariable) != "" {
		block, err := reservePorts(t.TempDir(), false)
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("base " + strconv.Itoa(block.base) + "\n")
		block.release()
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount another folder of locks")
	}
	mine, err := reservePorts(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer mine.release()
	test, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-c", `mount -t tmpfs locks "$0" && exec "$@"`, portLockDir, test, "-test.run=^"+t.Name()+"$")
	other.Env = append(os.Environ(), reserverVariable+"=1")
	out, err := other.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.Contains(string(out), "base ") || strings.Contains(string(out), "base "+strconv.Itoa(mine.base)+"\n") {
		t.Errorf("block %d is held, and the other got: %s", mine.base, out)
	}
}
