package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/estimator"
)

// TestProbeQueueOfARealSlurm: probes that may not be submitted, that a limit of Slurm keeps back, that wait in their queue, or that keep all places, delay no job for longer than the site wants.
func TestProbeQueueOfARealSlurm(t *testing.T) {
	t.Parallel()
	s := newFakeSite(t, "enforce", time.Minute)
	config, err := os.ReadFile(s.ConfigPath())
	must(t, err)
	must(t, os.WriteFile(s.ConfigPath(), []byte(strings.Replace(string(config), "[probe]\n", "[probe]\nstart_within = \"6s\"\nmax_running = 1\n", 1)), 0o644))
	s.restart("")
	partition := func(setting string) {
		t.Helper()
		if out, err := s.Cluster.Run(t.Context(), "root", "scontrol", "update", "PartitionName=probe", setting); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	for _, c := range []struct {
		name, set, undo, code string
	}{
		{"the queue takes no job", "State=INACTIVE", "State=UP", "probe_refused"},
		{"a limit of the queue keeps the probe back", "MaxMemPerNode=100", "MaxMemPerNode=0", "probe_queue_full"},
		{"the queue starts no job", "State=DOWN", "State=UP", "probe_queue_full"},
	} {
		partition(c.set)
		s.answer(says(t, 7, estimator.Exact))
		began := time.Now()
		id := s.submit(tooLarge...)
		story := s.finished(id, 40*time.Second)
		partition(c.undo)
		took := time.Since(began)
		if last := story.Decisions[len(story.Decisions)-1]; story.Job.State != jobs.StateReleased || last.Code != c.code {
			t.Errorf("%s: the story is %q with %s (%s), want %s", c.name, states(story), last.Code, last.Reason, c.code)
		}
		if job := s.completed(id, 30*time.Second); job["Features"] != "gpu80g" {
			t.Errorf("%s: the job ran asking for %s", c.name, job["Features"])
		}
		t.Logf("%s: let go after %s", c.name, took.Round(100*time.Millisecond))
	}
	slow := says(t, 7, estimator.Exact)
	slow.DelaySeconds = 20
	s.answer(slow)
	first := s.submit(tooLarge...)
	s.waitState(first, jobs.StateProbing)
	began := time.Now()
	second := s.submit(tooLarge...)
	story := s.finished(second, 40*time.Second)
	if last := story.Decisions[len(story.Decisions)-1]; last.Code != "probe_queue_full" || len(story.Probes) != 0 {
		t.Errorf("all places are taken: the story is %q with %s and %d probes", states(story), last.Code, len(story.Probes))
	}
	t.Logf("all places are taken by a slow probe: let go after %s", time.Since(began).Round(100*time.Millisecond))
}
