package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/doctor"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/finding"
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

// TestDoctorTriesAProbe: with --user a small program is run as that user on a node of a real Slurm, on the virtual GPU and in a sandbox; a Python without PyTorch is the next step.
func TestDoctorTriesAProbe(t *testing.T) {
	if os.Getenv(minicluster.ReleaseVariable) != "" {
		t.Skip("the programs of another release are in a folder of their own, and the configuration names those of this machine")
	}
	torch := filepath.Join(python(t), "python")
	s := started(t, site.Options{Build: filepath.Join("..", "build"), Cluster: minicluster.Default()})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := s.Gresize(ctx, "doctor", "--config", s.ConfigPath(), "--user", minicluster.DefaultUser, "--python", torch)
	if err != nil || !strings.Contains(out, ": a small program was run on the virtual GPU in a sandbox, as "+minicluster.DefaultUser) || !strings.Contains(out, "next: nothing") && !strings.Contains(out, "next: plugin: ") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = s.Gresize(ctx, "doctor", "--config", s.ConfigPath(), "--user", minicluster.DefaultUser, "--python", "/usr/bin/false")
	if err != nil || !strings.Contains(out, "does not train on the virtual GPU") || strings.Contains(out, "a small program was run") || !strings.Contains(out, "--python PATH") {
		t.Errorf("a Python that is none: %v\n%s", err, out)
	}
}
