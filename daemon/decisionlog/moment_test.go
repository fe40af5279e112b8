package decisionlog

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
)

// TestAStoryIsOfOneMoment reads jobs while another process, as it were, decides on them: a decision is seen with its event, or neither is.
func TestAStoryIsOfOneMoment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	log, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	reader, err := OpenReadOnly(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	const jobs = 150
	done := make(chan error, 1)
	latest := make(chan int64, jobs)
	go func() {
		defer close(latest)
		for i := range jobs {
			at := time.Now()
			ids, err := log.AddJobs(t.Context(), NewJob{Job: Job{Token: fmt.Sprintf("token%d", i), Mode: "enforce", UID: 1001, SubmittedAt: at}, First: Event{At: at, State: "held"}})
			if err != nil {
				done <- err
				return
			}
			latest <- ids[0]
			if err := log.Advance(t.Context(), Transition{Job: ids[0], From: "held", To: "decided", At: at, Decision: &Decision{At: at, Verdict: decision.LeaveAlone, Code: "opted_out"}}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	read := 0
	for id := range latest {
		for decided := false; !decided; read++ {
			s, err := reader.StoryOfRow(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			decided = len(s.Decisions) > 0
			if last := s.Events[len(s.Events)-1].State; decided != (last == "decided") || s.Job.State != last {
				t.Fatalf("job %d is %s, with %d decisions and %+v", id, s.Job.State, len(s.Decisions), s.Events)
			}
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d jobs were read %d times", jobs, read)
}
