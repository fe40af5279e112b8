package jobs

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/probejob"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/wire"
)

// fourteenGiB is what a job takes as it is, and ten with a plan on the small card.
type fourteenGiB struct{}

func (fourteenGiB) Estimate(_ context.Context, _ estimator.Job, _ *os.File, profile string) (estimator.Estimate, error) {
	bytes := 14 * gib
	if profile == "rtx3060" {
		bytes = 10 * gib
	}
	return estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: profile, Confidence: estimator.Exact, Fits: true, Reasons: []estimator.Reason{},
		Ranks: []estimator.Rank{{PeakReservedBytes: bytes, ComfortableBytes: bytes, ComfortableHighBytes: bytes}}}, nil
}

// newSwapBench is a site that allows a card that is too small.
func newSwapBench(t *testing.T, hold time.Duration) *bench {
	t.Helper()
	b := newBench(t, Enforce, hold)
	b.manager.config.Estimator = fourteenGiB{}
	b.configureSwap(b.manager)
	return b
}

func (b *bench) configureSwap(m *Manager) {
	settings := *m.settings()
	settings.Rules.Swap.Allow, settings.Rules.Swap.Slowdown = true, 1.05
	settings.Rules.Rows = slices.Clone(settings.Rules.Rows)
	settings.Rules.Rows[0].Profile, settings.Rules.Rows[1].Profile = "rtx3060", "a100-80"
	m.Configure(settings)
}

func withMem(mib uint64, script string) *wire.Request {
	r := sample()
	r.PnMinMemory = &mib
	r.Script, r.ScriptTotal = script, uint64(len(script))
	return r
}

// plan plays the n-th probe, which was asked for a plan.
func (b *bench) plan(n int, plan *probejob.Plan) {
	b.t.Helper()
	b.asked(n)
	b.slurm.mu.Lock()
	p := b.slurm.asked[n-1]
	b.slurm.mu.Unlock()
	job, err := b.manager.ProbeJob(p.Name, p.Key)
	if err != nil || job.Swap == nil || job.Swap.TargetBytes <= 10*gib || job.Swap.TargetBytes > 12*gib || job.Profile != "rtx3060" || job.RecordInputs {
		b.t.Fatalf("%+v %v", job, err)
	}
	if plan == nil {
		if err := b.manager.ProbeFailure(p.Name, p.Key, estimator.Reason{Code: estimator.CodeProbeRefused, Detail: "no plan fits"}); err != nil {
			b.t.Fatal(err)
		}
		return
	}
	if err := b.manager.ProbePlan(p.Name, p.Key, *plan); err != nil {
		b.t.Fatal(err)
	}
	b.report(n)
}

var goodPlan = probejob.Plan{Slowdown: 1.02, HostBytes: 3 * gib, MovedBytes: 6 * gib, Body: []byte("{}")}

const plainScript = "#!/bin/sh\n"

// TestAPlanForASmallerCard: a job that would keep its large card gets the small one, with a plan that is kept before the job is changed, and the log says so.
func TestAPlanForASmallerCard(t *testing.T) {
	b := newSwapBench(t, time.Minute)
	_, token := b.submit(withMem(8<<10, plainScript))
	b.report(1)
	b.plan(2, &goodPlan)
	b.until("the update", func() bool { return b.story(token).Job.State == StateVerified })
	story := b.story(token)
	if n := len(story.Decisions); n != 2 || story.Decisions[0].Code != decision.CodeAlready || story.Decisions[1].Code != decision.CodePlanned || story.Decisions[1].Change.Result.Features != "gpu12g" {
		t.Errorf("%+v", story.Decisions)
	}
	if e := story.Estimates[len(story.Estimates)-1]; !e.HasReason(estimator.CodeWithPlan) {
		t.Errorf("%+v", e.Reasons)
	}
	if p, found, err := b.log.PlanOf(t.Context(), story.Job.ID); err != nil || !found || p.Slowdown != 1.02 || p.HostBytes != 3*gib || string(p.Body) != "{}" {
		t.Errorf("%+v %v %v", p, found, err)
	}
	// What was found with a plan is no answer for the next job, nor is its peak.
	if c, found, err := b.log.Cached(t.Context(), 1001, story.Job.Fingerprint, "rtx3060", 0); err != nil || found {
		t.Errorf("%+v %v", c, err)
	}
	// Another that died with its plan: the same script gets none again, and is rewritten as any.
	if _, err := b.log.AddActual(t.Context(), story.Job.ID, decisionlog.Actual{At: time.Now(), Source: decisionlog.EpilogOOM, Outcome: decisionlog.OutOfMemory, AfterRewrite: true},
		&decisionlog.Event{At: time.Now(), State: StateVerified, Code: decision.CodeDied}, false); err != nil {
		t.Fatal(err)
	}
	_, token = b.submit(withMem(8<<10, plainScript))
	b.report(3)
	if story = b.ends(token, StateReleased, decision.CodeAlready); len(story.Probes) != 1 {
		t.Errorf("%d probes", len(story.Probes))
	}
}

// TestNodesThatAskForNoPlan: where a job ran without its plan, no more are made until a node has fetched one, or a day has passed.
func TestNodesThatAskForNoPlan(t *testing.T) {
	b := newSwapBench(t, time.Minute)
	_, token := b.submit(withMem(8<<10, plainScript))
	b.report(1)
	b.plan(2, &goodPlan)
	b.until("the update", func() bool { return b.story(token).Job.State == StateVerified })
	first := b.story(token).Job.ID
	if _, err := b.log.AddActual(t.Context(), first, decisionlog.Actual{At: time.Now(), Source: decisionlog.Reported, Outcome: decisionlog.Failed, AfterRewrite: true}, nil, false); err != nil {
		t.Fatal(err)
	}
	_, token = b.submit(withMem(8<<10, "#!/bin/sh\n# another\n"))
	b.report(3)
	if story := b.ends(token, StateReleased, decision.CodeAlready); len(story.Probes) != 1 {
		t.Errorf("%d probes", len(story.Probes))
	}
	if err := b.log.PlanFetched(t.Context(), first, time.Now()); err != nil {
		t.Fatal(err)
	}
	_, token = b.submit(withMem(8<<10, "#!/bin/sh\n# a third\n"))
	b.report(4)
	b.plan(5, &goodPlan)
	b.until("the update", func() bool { return b.story(token).Job.State == StateVerified })
}

// TestWithoutAPlan: whatever is in the way of a plan, the job gets what it would have got.
func TestWithoutAPlan(t *testing.T) {
	slow := goodPlan
	slow.Slowdown = 1.2
	for _, c := range []struct {
		name, script string
		mem          uint64
		plan         *probejob.Plan
		tried        bool
	}{
		{"there is none", plainScript, 8 << 10, nil, true},
		{"it is slow", plainScript, 8 << 10, &slow, true},
		{"--mem does not hold its buffers", plainScript, 2 << 10, &goodPlan, true},
		{"its owner does not want one", "#!/bin/sh\n#GRESIZE noswap\n", 8 << 10, nil, false},
	} {
		b := newSwapBench(t, time.Minute)
		_, token := b.submit(withMem(c.mem, c.script))
		b.report(1)
		if c.tried {
			b.plan(2, c.plan)
		}
		story := b.ends(token, StateReleased, decision.CodeAlready)
		said := slices.ContainsFunc(story.Events, func(e decisionlog.Event) bool { return e.Code == decision.CodeNoPlan })
		if _, found, err := b.log.PlanOf(t.Context(), story.Job.ID); said != c.tried || found || err != nil || story.Job.Profile != "a100-80" || b.manager.OpenProbes() != 0 {
			t.Errorf("%s: %v, plan %v %v, %s", c.name, said, found, err, story.Job.Profile)
		}
	}
}

// TestAPlanInTime: a plan that is not there shortly before the hold ends is not waited for, and its probe is cancelled.
func TestAPlanInTime(t *testing.T) {
	b := newSwapBench(t, planReserve+probeReserve+3*time.Second)
	_, token := b.submit(withMem(8<<10, plainScript))
	b.report(1)
	b.asked(2)
	b.until("the time to be over", func() bool {
		l := b.manager.tracked(token)
		if l == nil {
			return true
		}
		b.manager.mu.Lock()
		defer b.manager.mu.Unlock()
		if !l.busy {
			l.job.HoldUntil = time.Now().Add(planReserve - time.Second)
		}
		return b.story(token).Job.Finished
	})
	story := b.story(token)
	if i := slices.IndexFunc(story.Events, func(e decisionlog.Event) bool { return e.Code == decision.CodeNoPlan }); i < 0 || story.Decisions[0].Code != decision.CodeAlready || len(b.slurm.cancelled) != 1 {
		t.Errorf("%+v, %d cancelled", story.Events, len(b.slurm.cancelled))
	}
}

// TestARestartWhileAPlanIsMade: what arrives at the next daemon is not known to be of a run with a plan: the job gets what was decided before.
func TestARestartWhileAPlanIsMade(t *testing.T) {
	b := newSwapBench(t, time.Minute)
	_, token := b.submit(withMem(8<<10, plainScript))
	b.report(1)
	b.asked(2)
	b.until("the probe", func() bool { return b.story(token).Job.State == StateProbing })
	b.manager.Close()
	again := New(b.manager.config)
	b.configureSwap(again)
	b.manager = again
	if err := again.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.slurm.mu.Lock()
	p := b.slurm.asked[1]
	b.slurm.mu.Unlock()
	if err := again.ProbePlan(p.Name, p.Key, goodPlan); !errors.Is(err, ErrUnknownProbe) {
		t.Errorf("a plan of the life before was taken: %v", err)
	}
	story := b.ends(token, StateReleased, decision.CodeAlready)
	if story.Job.Profile != "a100-80" {
		t.Error(story.Job.Profile)
	}
}

// tracked is an open job.
func (m *Manager) tracked(token string) *trackedJob {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open[token]
}
