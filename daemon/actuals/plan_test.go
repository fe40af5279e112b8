package actuals

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/slurm/request"
)

// planned has the job of a bench run with a plan.
func (b *bench) planned() {
	b.t.Helper()
	at := time.Now()
	ids, err := b.log.AddJobs(b.t.Context(), decisionlog.NewJob{Job: decisionlog.Job{Token: "planned", Mode: "enforce", UID: 1001, GID: 100, Name: "train", Asked: asked, Fingerprint: "g", ScriptSHA256: "t", SubmittedAt: at}, First: decisionlog.Event{At: at, State: "estimated"}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.row = ids[0]
	if err := b.log.Advance(b.t.Context(), decisionlog.Transition{Job: b.row, From: "estimated", To: "verified", At: at, Finished: true, SlurmJobID: 7, Plan: &decisionlog.Plan{Slowdown: 1, Body: []byte("x")},
		Decision: &decisionlog.Decision{At: at, Verdict: decision.Rewrite, Code: decision.CodePlanned, Change: request.Change{Result: changed}}}); err != nil {
		b.t.Fatal(err)
	}
}

// TestAPlanThatFails: a job that died with its plan, or ended since its steps were too slow, is to run again, and its script gets no plan again; others of its owner are changed as ever. The line means nothing
// in the output of a job without a plan, or of one that went on.
func TestAPlanThatFails(t *testing.T) {
	slow := epilog.SlowStep + "1.32 times as long"
	for _, c := range []struct {
		name, line, exit string
		planned          bool
		code             string
		failed           uint32
	}{
		{"dies", line, "1:0", true, decision.CodeDied, 7},
		{"is slow", slow, "1:0", true, decision.CodeSlowWithPlan, 7},
		{"is slow and went on", slow, "0:0", true, "", 0},
		{"says so and has no plan", slow, "1:0", false, "", 0},
	} {
		b := newBench(t, true)
		if c.planned {
			b.planned()
		}
		b.slurm.job.ExitCode = c.exit
		b.report(epilog.Report{})
		b.report(epilog.Report{MemoryLine: c.line})
		events := codes(b.story())
		if found := slices.Contains(events, decision.CodeDied) || slices.Contains(events, decision.CodeSlowWithPlan); found != (c.code != "") || c.code != "" && events[len(events)-1] != c.code {
			t.Errorf("%s: %q", c.name, events)
		}
		rescues, err := b.log.OpenRescues(t.Context())
		if err != nil || len(rescues) != int(c.failed/7) {
			t.Errorf("%s: %+v %v", c.name, rescues, err)
		}
		if failed, err := b.log.PlanFailed(t.Context(), 1001, "t"); err != nil || failed != c.failed {
			t.Errorf("%s: %d %v", c.name, failed, err)
		}
		if dead, err := b.log.DiedAfterRewrite(t.Context(), 1001, "g"); err != nil || dead != 0 {
			t.Errorf("%s: jobs like it are left alone: %d %v", c.name, dead, err)
		}
		if s := b.story(); c.code != "" && !strings.Contains(s.Events[len(s.Events)-1].Detail, "to run again with what its owner had asked for") {
			t.Errorf("%s: %+v", c.name, s.Events)
		}
	}
}
