package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/estimator"
)

// The requests of the tests: one that is too large for the job, and one that no node can run once it is changed,
// because the node with the small card has too little memory.
var (
	tooLarge   = []string{"--gres=gpu:1", "--constraint=gpu80g"}
	impossible = []string{"--gres=gpu:1", "--constraint=gpu80g", "--mem=40G"}
)

// TestKilledInEveryState kills the daemon between the row of each state and the action that the row announces, and right after the
// action. The next life goes on from the log: the job ends where it would have ended, probed once on each card and updated once.
func TestKilledInEveryState(t *testing.T) {
	t.Parallel()
	s := newFakeSite(t, "enforce", time.Minute)
	needs := says(t, 7, estimator.Exact)
	dies := fakeAnswer{Die: true}
	for _, c := range []struct {
		place string
		args  []string
		probe fakeAnswer
		last  string
		node  string
	}{
		{jobs.StateFound + ":written", tooLarge, needs, jobs.StateVerified, "gpu1"},
		{jobs.StateProbing + ":written", tooLarge, needs, jobs.StateVerified, "gpu1"},
		{jobs.StateProbing + ":acted", tooLarge, needs, jobs.StateVerified, "gpu1"},
		{jobs.StateReported + ":written", tooLarge, needs, jobs.StateVerified, "gpu1"},
		{jobs.StateEstimated + ":written", tooLarge, needs, jobs.StateVerified, "gpu1"},
		{jobs.StateDecided + ":written", tooLarge, needs, jobs.StateVerified, "gpu1"},
		{"2*" + jobs.StateFound + ":written", tooLarge, needs, jobs.StateVerified, "gpu1"},
		{"2*" + jobs.StateProbing + ":acted", tooLarge, needs, jobs.StateVerified, "gpu1"},
		{"2*" + jobs.StateReported + ":written", tooLarge, needs, jobs.StateVerified, "gpu1"},
		{"2*" + jobs.StateEstimated + ":written", tooLarge, needs, jobs.StateVerified, "gpu1"},
		{jobs.StateUpdating + ":written", tooLarge, needs, jobs.StateVerified, "gpu1"},
		{jobs.StateUpdating + ":acted", tooLarge, needs, jobs.StateVerified, "gpu1"},
		{jobs.StateUpdated + ":written", tooLarge, needs, jobs.StateVerified, "gpu1"},
		{jobs.StateVerified + ":written", tooLarge, needs, jobs.StateVerified, "gpu1"},
		{jobs.StateReleasing + ":written", tooLarge, dies, jobs.StateReleased, "gpu2"},
		{jobs.StateReleasing + ":acted", tooLarge, dies, jobs.StateReleased, "gpu2"},
		{jobs.StateReleased + ":written", tooLarge, dies, jobs.StateReleased, "gpu2"},
		{jobs.StateRestoring + ":written", impossible, needs, jobs.StateRestored, "gpu2"},
		{jobs.StateRestoring + ":acted", impossible, needs, jobs.StateRestored, "gpu2"},
		{jobs.StateRestored + ":written", impossible, needs, jobs.StateRestored, "gpu2"},
	} {
		t.Run(c.place, func(t *testing.T) {
			s := s.in(t)
			s.answer(c.probe)
			s.restart(c.place)
			submitted := time.Now()
			id := s.submit(c.args...)
			s.waitDead(c.place)
			s.restart("")
			story := s.finished(id, s.hold)
			if story.Job.State != c.last {
				t.Errorf("the story ends as %s, want %s: %s", story.Job.State, c.last, states(story))
			}
			job := s.completed(id, 30*time.Second)
			if job["NodeList"] != c.node {
				t.Errorf("the job ran on %s, want %s", job["NodeList"], c.node)
			}
			if waited := time.Since(submitted); waited > s.hold+20*time.Second {
				t.Errorf("the job took %s with a hold of %s", waited, s.hold)
			}
			// One on the card that was asked for, and one on the card that the job gets.
			looks := 2
			if c.last == jobs.StateReleased {
				looks = 1
			}
			if n := s.probesOf(story); n != looks || len(story.Probes) > looks+1 {
				t.Errorf("%d probes ran and %d were asked for, want %d and at most one more", n, len(story.Probes), looks)
			}
			for _, state := range []string{jobs.StateUpdating, jobs.StateRestoring, jobs.StateReleasing} {
				if n := strings.Count(" "+states(story)+" ", " "+state+" "); n > 1 {
					t.Errorf("%s was announced %d times: %s", state, n, states(story))
				}
			}
			updates, err := s.Cluster.Run(t.Context(), "root", "grep", "-c", fmt.Sprintf("_slurm_rpc_update_job: complete JobId=%s ", id), s.Cluster.Dir()+"/log/slurmctld.log")
			must(t, err)
			want := "1"
			if c.last == jobs.StateRestored {
				want = "2" // the change and the way back
			}
			if strings.TrimSpace(updates) != want {
				t.Errorf("the controller carried out %s updates, want %s", strings.TrimSpace(updates), want)
			}
			t.Logf("%s: %s in %s", c.place, states(story), time.Since(submitted).Round(100*time.Millisecond))
		})
	}

	t.Run(jobs.StateHeld+":written", func(t *testing.T) {
		s := s.in(t)
		s.answer(needs)
		s.restart(jobs.StateHeld + ":written")
		id := s.submit(tooLarge...)
		s.waitDead(jobs.StateHeld + ":written")
		s.restart("")
		// The plugin may not have heard the answer: then the job is not held and runs as asked. Both are right.
		job := s.completed(id, s.hold+20*time.Second)
		want := "gpu2"
		if strings.Contains(job["AdminComment"], "gresize:v1:") {
			want = "gpu1"
		}
		if job["NodeList"] != want {
			t.Errorf("the job with the comment %q ran on %s, want %s", job["AdminComment"], job["NodeList"], want)
		}
	})
}

// TestDeadForGood kills the daemon in the middle and does not start it again: the job starts as it was asked for when its hold is over.
func TestDeadForGood(t *testing.T) {
	t.Parallel()
	s := newFakeSite(t, "enforce", 20*time.Second)
	s.answer(says(t, 7, estimator.Exact))
	place := jobs.StateUpdating + ":written"
	s.restart(place)
	submitted := time.Now()
	id := s.submit(tooLarge...)
	s.waitDead(place)
	job := s.completed(id, s.hold+20*time.Second)
	if job["NodeList"] != "gpu2" || job["Features"] != "gpu80g" {
		t.Errorf("the job ran on %s asking for %s, want gpu2 and gpu80g", job["NodeList"], job["Features"])
	}
	if waited := time.Since(submitted); waited < s.hold-2*time.Second {
		t.Errorf("the job ran after %s though nobody released it: it was not held", waited)
	}
	// A daemon that comes back late touches nothing.
	s.restart("")
	if story := s.finished(id, 20*time.Second); story.Job.State != jobs.StateAbandoned {
		t.Errorf("the story ends as %s, want abandoned: %s", story.Job.State, states(story))
	}
}
