package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/policy"
	"github.com/gresize/gresize/daemon/probejob"
	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/quantity"
)

// planReserve is what is left of a hold when no plan is waited for any more: enough to make the change that was decided without one.
const planReserve = 15 * time.Second

// unfetchedPause is how long no plan is made after a job whose node did not fetch the one that it had: then one job tries again.
const unfetchedPause = 24 * time.Hour

// planTry is the search for a plan for a card that is one size too small. Whatever becomes of it, the job gets what was decided without it.
type planTry struct {
	// decided is what was decided before, in.Asked's plain answer, and profile the card on which that was found.
	decided *decisionlog.Decision
	plain   policy.Decision
	profile string
	// row is the card that is too small, targetBytes what the job may take of it.
	row         policy.Row
	targetBytes int64
	// hostBytes is the host memory that it took without the plan, memMiB what it asked for.
	hostBytes int64
	memMiB    uint64
	// over says that the daemon was started again meanwhile: what arrives is not known to be of a run with a plan.
	over bool
	// plan is what the probe left; it belongs to Manager.mu.
	plan *probejob.Plan
}

// planFor sends a job of which was decided to a probe that makes a plan for the next smaller card. began is false where the site or the owner does not want that, or where it makes no sense.
func (m *Manager) planFor(ctx context.Context, l *trackedJob, in policy.Input, d policy.Decision, payload spool.Job) (again, began bool) {
	rules := m.settings().Rules
	if !rules.Swap.Allow || !l.enforced() || l.array || directed(string(payload.Script), noSwap) || time.Until(l.job.HoldUntil) < planReserve+probeReserve {
		return false, false
	}
	row, found := rules.Smaller(in, d)
	if !found {
		return false, false
	}
	target := rules.TargetBytes(in, d, row)
	failed, err := m.config.Log.PlanFailed(ctx, l.job.UID, l.job.ScriptSHA256)
	unfetched, err2 := m.config.Log.PlansUnfetched(ctx, time.Now().Add(-unfetchedPause))
	switch err := errors.Join(err, err2); {
	case err != nil:
		m.config.Logger.Error("earlier jobs cannot be read; no plan is made", "token", l.job.Token, "error", err)
		return false, false
	case unfetched:
		m.config.Logger.Warn("no plan is made: a job ran without its plan, which its node did not ask for; is TaskProlog set as docs/run.md says, and does munge run there?", "token", l.job.Token)
		return false, false
	case failed != 0 || target <= 0:
		return false, false
	}
	try := &planTry{decided: l.decision, plain: d, profile: l.job.Profile, row: row, targetBytes: target, hostBytes: l.estimate.HostPeakBytes, memMiB: payload.MemMiB}
	m.setPlan(l, try)
	if !m.probeAgain(ctx, l, decisionlog.Transition{Code: decision.CodeTriedWithPlan, Profile: row.Profile, Decision: l.decision,
		Detail: fmt.Sprintf("%s; a plan is made with which it may run on the next smaller card (%s, %s)", d.Reason, row.Profile, quantity.GiB(row.FitsBytes))}) {
		if !l.job.Finished && l.job.State == StateEstimated {
			m.setPlan(l, nil)
		}
		return false, true
	}
	l.job.Profile, l.seen = row.Profile, nil
	return true, true
}

// setPlan is for what probes ask for meanwhile.
func (m *Manager) setPlan(l *trackedJob, try *planTry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.plan = try
}

// wantsPlan is what the probe of a job is to make a plan for; nil: none is wanted.
func (m *Manager) wantsPlan(l *trackedJob) *probejob.Swap {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.plan == nil || l.plan.over {
		return nil
	}
	return &probejob.Swap{TargetBytes: l.plan.targetBytes}
}

// withoutPlan goes on with what was decided without a plan, and says why there is none.
func (m *Manager) withoutPlan(ctx context.Context, l *trackedJob, why string) bool {
	try, p := l.plan, l.probe
	if !m.move(ctx, l, decisionlog.Transition{To: StateDecided, Code: decision.CodeNoPlan, Profile: try.profile, Detail: "no plan for a smaller card: " + why}) {
		return false
	}
	l.decision, l.job.Profile = try.decided, try.profile
	m.setPlan(l, nil)
	if p != nil {
		m.forget(p)
		l.probe = nil
		m.cancelProbe(ctx, l, p)
	}
	m.mu.Lock()
	l.report = nil
	m.mu.Unlock()
	return true
}

// planOverdue says why a plan is not waited for any more, or returns "".
func (l *trackedJob) planOverdue(now time.Time) string {
	switch {
	case l.plan.over:
		return "gresized was started again meanwhile"
	case slices.Contains([]string{StateFound, StateProbing}, l.job.State) && l.job.HoldUntil.Sub(now) < planReserve:
		return "it was not made within the job's hold"
	}
	return ""
}

// decideWithPlan decides for a job that was tried with a plan.
func (m *Manager) decideWithPlan(ctx context.Context, l *trackedJob, payload spool.Job) bool {
	m.mu.Lock()
	plan := l.plan.plan
	m.mu.Unlock()
	if plan == nil {
		why := "its probe left none"
		if len(l.estimate.Reasons) > 0 {
			why = l.estimate.Reasons[0].Words()
		}
		return m.withoutPlan(ctx, l, why)
	}
	in := policy.Input{Asked: l.job.Asked, Estimate: *l.estimate, Version: m.releaseOf(&l.job), EnvDropped: payload.InnerSrunClear}
	evidence := m.margin(l.estimate, &in)
	d := m.settings().Rules.WithPlan(in, l.plan.plain, l.plan.row, policy.Planned{Slowdown: plan.Slowdown, HostBytes: plan.HostBytes, PlainHostBytes: l.plan.hostBytes, MemMiB: l.plan.memMiB})
	if d.Verdict != decision.Rewrite {
		return m.withoutPlan(ctx, l, d.Reason)
	}
	l.decision = decided(d, evidence)
	if !m.move(ctx, l, decisionlog.Transition{To: StateDecided, Code: d.Code, Detail: d.Reason, Decision: l.decision,
		Plan: &decisionlog.Plan{Slowdown: plan.Slowdown, HostBytes: plan.HostBytes, MovedBytes: plan.MovedBytes, Body: plan.Body}}) {
		return false
	}
	m.setPlan(l, nil)
	return true
}

// markPlanned has an estimate say that it is one with a plan.
func markPlanned(e *estimator.Estimate) {
	e.Reasons = append(slices.Clone(e.Reasons[:min(len(e.Reasons), estimator.MaxReasons-1)]), estimator.Reason{Code: estimator.CodeWithPlan, Detail: "tried with a plan: what does not fit goes to host memory and comes back"})
}

// adoptPlan notices in a story that a plan was being made when the last daemon ended.
func (l *trackedJob) adoptPlan(s decisionlog.Story) {
	tried := slices.ContainsFunc(s.Events, func(e decisionlog.Event) bool { return e.Code == decision.CodeTriedWithPlan })
	if !tried || l.decision == nil || !slices.Contains([]string{StateFound, StateProbing, StateReported, StateEstimated}, s.Job.State) {
		return
	}
	l.plan = &planTry{decided: l.decision, profile: s.Job.Profile, over: true}
	for _, e := range s.Estimates {
		if e.GPU != s.Job.Profile {
			l.plan.profile = e.GPU
		}
	}
}

// ProbePlan takes the plan of a probe that was asked for one, before its bundle.
func (m *Manager) ProbePlan(name, key string, plan probejob.Plan) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.authorizeLocked(name, key)
	if err == nil && (l.plan == nil || l.plan.over) {
		err = ErrUnknownProbe
	}
	if err == nil {
		l.plan.plan = &plan
	}
	return err
}

// Slowdown is by how many times a step may be longer with a plan.
func (m *Manager) Slowdown() float64 { return m.settings().Rules.Swap.Slowdown }
