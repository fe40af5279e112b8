package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
)

// TestNobodyWaitsForAFullDisk: where the log or the spool cannot be written, no submission is held, and what was held starts, within seconds; once there is room jobs are held again.
func TestNobodyWaitsForAFullDisk(t *testing.T) {
	onAPair(t, nobodyWaitsForAFullDisk)
}

func nobodyWaitsForAFullDisk(t *testing.T, cluster minicluster.Options) {
	s := newFakeSiteOf(t, site.Options{Cluster: cluster, Mode: "enforce", Hold: 4 * time.Minute, StateBytes: 8 << 20})
	state := filepath.Dir(s.LogPath())
	slow := says(t, 7, estimator.Exact)
	slow.DelaySeconds = 60
	s.answer(slow)
	started := func(id string) time.Duration {
		begun := time.Now()
		_, err := s.Cluster.WaitJob(t.Context(), id, "COMPLETED", time.Minute)
		must(t, err)
		return time.Since(begun).Round(100 * time.Millisecond)
	}
	before := s.submit("--gres=gpu:1", "--constraint=gpu80g")
	waitUntil(t, time.Minute, "the probe", func() bool { story, err := s.story(before); return err == nil && len(story.Probes) > 0 })
	ballast := filepath.Join(state, "ballast")
	f, err := os.Create(ballast)
	must(t, err)
	for block := make([]byte, 4<<10); err == nil; {
		_, err = f.Write(block)
	}
	must(t, f.Close())
	first := s.submit("--gres=gpu:1", "--constraint=gpu80g")
	t.Logf("the first submission that meets the full disk had run after %s", started(first))
	t.Logf("the one that waited for its probe had run %s later", started(before))
	for range 3 {
		id := s.submit("--gres=gpu:1", "--constraint=gpu80g")
		out, err := s.Cluster.Run(t.Context(), "root", "scontrol", "-o", "show", "job", id)
		must(t, err)
		if strings.Contains(string(out), "Reason=BeginTime") {
			t.Errorf("job %s is held: %s", id, out)
		}
		t.Logf("a later one had run after %s", started(id))
	}
	must(t, os.Remove(ballast))
	s.answer(says(t, 7, estimator.Exact))
	waitUntil(t, 30*time.Second, "the daemon to be well", func() bool { return healthAt(s.MetricsPath()) == "ok" })
	for _, id := range []string{before, first} {
		if story := s.finished(id, 30*time.Second); story.Job.State != "abandoned" || story.Events[len(story.Events)-1].Code != "log_unwritable" {
			t.Errorf("job %s: %s", id, states(story))
		}
	}
	passed := 0
	for _, l := range s.lines() {
		if l.Decision != nil && l.Decision.Verdict == decision.LeaveAlone && l.Decision.Code == "log_unwritable" {
			passed++
		}
	}
	if passed != 3 {
		t.Errorf("%d rows of submissions that passed, of 3", passed)
	}
	if story := s.finished(s.submit("--gres=gpu:1", "--constraint=gpu80g"), time.Minute); story.Job.State != "verified" {
		t.Errorf("afterwards: %s", states(story))
	}
}
