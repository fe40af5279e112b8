package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
)

// TestMixedReleases is a cluster in the middle of an upgrade: slurmctld is of one release, and all of Slurm where gresized runs is of another. With older commands every job is tried and
// changed, in the words of slurmctld's release; slurmctld answers no newer ones, and then a job runs as its owner asked when its hold ends, and the journal says why.
func TestMixedReleases(t *testing.T) {
	t.Parallel()
	pairs := []struct{ controller, commands string }{{"26.05", "24.11"}, {"24.11", "26.05"}}
	if os.Getenv("GRESIZE_NIGHTLY") != "" {
		// In the first two the names of resources changed between the releases, see docs/releases.md.
		pairs = append(pairs, []struct{ controller, commands string }{{"23.11", "23.02"}, {"24.05", "23.11"}, {"24.05", "24.11"}, {"25.05", "23.11"}, {"25.11", "25.05"}}...)
	}
	for _, p := range pairs {
		t.Run("slurmctld "+p.controller+" commands "+p.commands, func(t *testing.T) {
			older := p.commands < p.controller
			s := otherRelease(t, p.controller, false, func(o *site.Options) {
				o.Beside = minicluster.RootForTest(t, p.commands)
				o.Config = "[policy]\nwatch = \"15s\"\n" + typeTable
				if o.Hold = time.Minute; !older {
					o.Hold = 30 * time.Second
				}
			})
			s.answer(says(t, 7, estimator.Exact))
			id := s.submit("--gpus=a100:1")
			job := s.completed(id, 2*time.Minute)
			said, err := s.DaemonLog()
			must(t, err)
			if older {
				if story := s.finished(id, 30*time.Second); story.Job.State != jobs.StateVerified || job["NodeList"] != "gpu1" {
					t.Errorf("%q with %+v, ran on %s", states(story), story.Decisions, job["NodeList"])
				}
			} else if job["NodeList"] != "gpu2" {
				t.Errorf("it ran on %s", job["NodeList"])
			}
			if want := map[bool]string{true: "which takes them", false: "which refuses them"}[older]; !strings.Contains(said, want) {
				t.Errorf("the journal does not say %q:\n%s", want, said)
			}
		})
	}
}

// TestUnknownRelease is a release that does not exist yet. As long as what gresize uses is there it works like the newest one, and the journal says that nobody has tried it; where
// squeue has lost a field, no job can be looked at: each runs as its owner asked, and the journal has squeue's own words.
func TestUnknownRelease(t *testing.T) {
	t.Parallel()
	const version = `[ "$1" != --version ] || { echo "slurm 29.11.0"; exit 0; }` + "\n"
	for _, c := range []struct {
		name   string
		squeue string
		node   string
		says   []string
	}{
		{"nothing of it has changed", `exec squeue "$@"`, "gpu1", []string{"is newer than 26.05"}},
		{"a field of squeue is gone", `case $* in *tres-per-task*) echo 'squeue: error: Invalid job format specification: tres-per-task' >&2; exit 1;; esac; exec squeue "$@"`, "gpu2",
			[]string{"is newer than 26.05", "Invalid job format specification"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := otherRelease(t, "26.05", true, func(o *site.Options) {
				o.Config = "[policy]\nwatch = \"15s\"\n"
				o.Hold = 30 * time.Second
				o.Commands = map[string]string{"scontrol": version + `exec scontrol "$@"` + "\n", "squeue": version + c.squeue + "\n"}
			})
			s.answer(says(t, 7, estimator.Exact))
			id := s.submit(tooLarge...)
			if job := s.completed(id, 2*time.Minute); job["NodeList"] != c.node {
				t.Errorf("it ran on %s", job["NodeList"])
			}
			said, err := s.DaemonLog()
			must(t, err)
			for _, want := range c.says {
				if !strings.Contains(said, want) {
					t.Errorf("the journal does not say %q:\n%s", want, said)
				}
			}
		})
	}
}
