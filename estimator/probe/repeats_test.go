package probe

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/vgpu"
)

// TestFailureIsNamedOnce: what the command died of is said by its failure, and a phase that was not reached only where that is something else.
func TestFailureIsNamedOnce(t *testing.T) {
	ended := reason("phase_not_reached", vgpu.EndedBeforeItsTime+"ValueError: no data")
	failed := reason("script_failed", "exit status 1: ValueError: no data")
	other := reason("script_failed", "exit status 1: no such file")
	later := reason("phase_not_reached", "an optimizer was made and hardly used")
	for _, c := range []struct{ given, want []estimator.Reason }{
		{[]estimator.Reason{ended, failed}, []estimator.Reason{failed}},
		{[]estimator.Reason{failed, ended, later}, []estimator.Reason{failed, later}},
		{[]estimator.Reason{ended}, []estimator.Reason{ended}},
		{[]estimator.Reason{ended, other}, []estimator.Reason{ended, other}},
	} {
		if diff := cmp.Diff(c.want, withoutRepeats(c.given)); diff != "" {
			t.Error(diff)
		}
	}
}
