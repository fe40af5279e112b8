package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/doctor"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/finding"
	"github.com/gresize/gresize/slurm/minicluster"
)

// TestDoctor: a running site is sound from end to end, and what is taken away from it is the next step.
func TestDoctor(t *testing.T) {
	if os.Getenv(minicluster.ReleaseVariable) != "" {
		t.Skip("the programs of another release are in a folder of their own, and the configuration names those of this machine")
	}
	s := newFakeSite(t, "enforce", time.Minute)
	look := func(wanted string, sound bool) {
		t.Helper()
		r := doctor.Check(t.Context(), doctor.Options{Config: s.ConfigPath()})
		for _, f := range r.Findings {
			t.Logf("%-6s %s: %s", f.Level, f.Name, f.Text)
		}
		if !strings.Contains(r.Next, wanted) || finding.Refused(r.Findings) == sound {
			t.Errorf("next: %q, want %q", r.Next, wanted)
		}
	}
	look("gresize doctor --user", true)
	s.answer(says(t, 7, estimator.Exact))
	s.finished(s.submit("--gres=gpu:1", "--constraint=gpu80g"), time.Minute)
	look("gresize doctor --user", true)
	s.KillDaemon()
	look("enable --now gresized", false)
}
