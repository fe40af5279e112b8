package logview

import (
	"strings"
	"testing"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
)

// TestHowToStartIsSaidWhileAJobIsHeld: to one that ended, was let go or was never held, the advice would be wrong.
func TestHowToStartIsSaidWhileAJobIsHeld(t *testing.T) {
	for _, c := range []struct {
		mode  jobs.Mode
		state string
		id    uint32
		held  bool
	}{
		{jobs.Enforce, jobs.StateHeld, 7, true}, {jobs.Enforce, jobs.StateProbing, 7, true}, {jobs.Enforce, jobs.StateDecided, 7, true},
		{jobs.Enforce, jobs.StateUpdated, 7, false}, {jobs.Enforce, jobs.StateVerified, 7, false}, {jobs.Enforce, jobs.StateReleased, 7, false},
		{jobs.Enforce, jobs.StateLeftAlone, 7, false}, {jobs.Shadow, jobs.StateProbing, 7, false}, {jobs.Shadow, jobs.StateShadowed, 7, false},
		{jobs.Enforce, jobs.StateHeld, 0, false}, // its number is not known yet
	} {
		job := decisionlog.Job{Mode: string(c.mode), State: c.state, SlurmJobID: c.id}
		said := false
		for _, line := range OwnersWord(job) {
			said = said || strings.Contains(line.Text, "scontrol update JobId=7 StartTime=now")
		}
		if said != c.held {
			t.Errorf("%s, %s, job %d: said %v", c.mode, c.state, c.id, said)
		}
	}
}
