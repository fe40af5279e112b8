package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator"
)

// TestRemovedDuringTheHold takes gresize off the machine, programs, sockets and plugin, while a job is held: the job runs as it was asked for when its hold is over,
// and what is submitted afterwards is not touched, by a slurmctld that still has the plugin in memory. The packages' own part in it is TestUnderSystemd's.
func TestRemovedDuringTheHold(t *testing.T) {
	t.Parallel()
	s := newFakeSite(t, "enforce", 20*time.Second)
	answer := says(t, 7, estimator.Exact)
	answer.DelaySeconds = 60
	s.answer(answer)
	submitted := time.Now()
	held := s.submit(tooLarge...)
	waitUntil(t, 15*time.Second, "the probe to be asked for", func() bool {
		story, err := s.story(held)
		return err == nil && strings.HasSuffix(states(story), "probing")
	})
	must(t, s.Remove())
	if _, err := os.Stat(s.Cluster.PluginPath()); !os.IsNotExist(err) {
		t.Fatalf("the plugin is still there: %v", err)
	}
	after := s.submit(tooLarge...)
	if job, err := s.Cluster.Job(t.Context(), after); err != nil || job["AdminComment"] != "" || job["Features"] != "gpu80g" || strings.Contains(job["Reason"], "BeginTime") {
		t.Errorf("a submission after the removal was touched: %v %v", job, err)
	}
	for _, id := range []string{held, after} {
		if job := s.completed(id, s.hold+40*time.Second); job["NodeList"] != "gpu2" || job["Features"] != "gpu80g" {
			t.Errorf("job %s ran on %s asking for %s, want gpu2 and gpu80g", id, job["NodeList"], job["Features"])
		}
	}
	if waited := time.Since(submitted); waited < s.hold-2*time.Second {
		t.Errorf("all was over after %s: the job was not held", waited)
	}
}
