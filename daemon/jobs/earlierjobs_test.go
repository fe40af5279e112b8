package jobs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
)

// ended adds a changed job of an owner that ended so.
func (b *bench) ended(uid uint32, n int, outcome decisionlog.Outcome, before time.Duration) {
	b.t.Helper()
	at := time.Now().Add(-before)
	ids, err := b.log.AddJobs(b.t.Context(), decisionlog.NewJob{Job: decisionlog.Job{Token: fmt.Sprintf("past-%d-%d", uid, n), UID: uid, Mode: string(Enforce), Fingerprint: fmt.Sprint(n), SubmittedAt: at, State: StateHeld},
		First: decisionlog.Event{At: at, State: StateHeld}, Decision: &decisionlog.Decision{At: at, Verdict: decision.Rewrite, Code: "smaller_row_fits"}})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.log.Advance(b.t.Context(), decisionlog.Transition{Job: ids[0], From: StateHeld, To: StateVerified, At: at, Finished: true, SlurmJobID: uint32(10_000 + n)}); err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.log.AddActual(b.t.Context(), ids[0], decisionlog.Actual{At: at, Source: decisionlog.EpilogOOM, Outcome: outcome, AfterRewrite: true}, nil, false); err != nil {
		b.t.Fatal(err)
	}
}

// TestOwnersWhoseJobsDieAreLeftAlone: whoever's changed jobs keep dying, by design or not, has none changed for a week, and is told so. Others are not concerned, nor is one of whom few died, or long ago.
func TestOwnersWhoseJobsDieAreLeftAlone(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	const dies, lucky, longAgo, twice = 1001, 1002, 1003, 1004
	for n := range 30 {
		outcome := decisionlog.Completed
		if n < 3 {
			outcome = decisionlog.OutOfMemory
			b.ended(dies, 100+n, outcome, time.Hour)
			b.ended(longAgo, 200+n, outcome, 8*24*time.Hour)
		}
		if n < 2 {
			b.ended(twice, 300+n, decisionlog.OutOfMemory, time.Hour)
		}
		b.ended(lucky, 400+n, outcome, time.Hour)
	}
	b.ended(lucky, 499, decisionlog.Completed, time.Hour) // three of 31
	of := func(uid uint32) string {
		r := sample()
		r.UserID = uid
		_, token := b.submit(r)
		return token
	}
	story := b.ends(of(dies), StateReleased, decision.CodeOwnersDeaths)
	if d := story.Decisions[0]; d.Code != decision.CodeOwnersDeaths || !strings.Contains(d.Reason, "of its owner's last 3 changed jobs whose end is known, 3 died") {
		t.Errorf("%+v", d)
	}
	if len(story.Probes) != 0 {
		t.Error("it was probed")
	}
	for n, uid := range []uint32{lucky, longAgo, twice} {
		token := of(uid)
		b.report(n + 1)
		b.until("the job to be changed", func() bool {
			return b.story(token).Job.State == StateUpdated || b.story(token).Job.State == StateVerified
		})
	}
}
