package lint

import (
	"os/exec"
	"testing"
)

// TestMutantsHaveTheirPlaces: a planted bug whose place has moved is planted nowhere.
func TestMutantsHaveTheirPlaces(t *testing.T) {
	if out, err := exec.Command("./mutants", "--check").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
