package jobs

import (
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/slurm/client"
)

// TestWhatTheOwnerDidIsLookedAt: whatever somebody else does to a held job while its probe runs, nothing is changed afterwards, and the story says what was seen.
func TestWhatTheOwnerDidIsLookedAt(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*client.Job)
		code string
	}{
		"another request":    {func(j *client.Job) { j.Request.Features = "gpu40g" }, decision.CodeOwnerChanged},
		"no constraint":      {func(j *client.Job) { j.Request.Features = "" }, decision.CodeOwnerChanged},
		"another begin time": {func(j *client.Job) { j.EligibleAt = time.Now().Add(3 * time.Hour) }, decision.CodeOwnerChanged},
		"put on hold":        {func(j *client.Job) { j.Reason = "JobHeldUser" }, decision.CodeOwnerChanged},
		"let go":             {func(j *client.Job) { j.EligibleAt, j.Reason = time.Now().Add(-time.Second), "Priority" }, decision.CodeOwnerReleased},
		"begun":              {func(j *client.Job) { j.State, j.NodeList = "RUNNING", "gpu1" }, decision.CodeOwnerReleased},
		"cancelled":          {func(j *client.Job) { j.State = "CANCELLED" }, decision.CodeOwnerCancelled},
		"another's job":      {func(j *client.Job) { j.UserID = 2002 }, decision.CodeAmbiguous},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Enforce, time.Minute)
			id, token := b.submit(sample())
			p := b.asked(1)
			b.until("the probe", func() bool { return b.story(token).Job.State == StateProbing })
			b.slurm.change(id, c.do)
			// The report is there before the next look, or after it: the change is seen either way.
			_ = b.manager.ProbeBundle(p.Name, p.Key, []byte("bundle"))
			b.ends(token, StateAbandoned, c.code)
			b.slurm.mu.Lock()
			defer b.slurm.mu.Unlock()
			if len(b.slurm.updates) != 0 {
				t.Errorf("the job was changed: %q", b.slurm.updates)
			}
		})
	}
}
