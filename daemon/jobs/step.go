package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/daemon/policy"
	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
	"github.com/gresize/gresize/slurm/wire"
)

// Times that decide when a wait is over.
const (
	// beginTolerance is how far the begin time in the queue may be from the one that was asked for.
	beginTolerance = 5 * time.Second
	// neverSeenShadow is how long a stamped job may stay unseen. A held one has until its hold is over.
	neverSeenShadow = 2 * time.Minute
	// unseenAfter is when the place of a job that was not seen in the queue is given back. Slurm makes the record of a job right after it has asked the plugin, but a busy slurmctld
	// may wait for a lock in between.
	unseenAfter = 10 * time.Second
	// lastMoment before the end of a hold nothing new is begun: the job starts by itself.
	lastMoment = 2 * time.Second
	// probeReserve is what must be left of a hold for a probe to make sense.
	probeReserve = 10 * time.Second
	// reportGrace is how long after the end of its probe's job a report may still arrive.
	reportGrace = 2 * time.Second
	// shadowPatience bounds the wait for a probe where no hold bounds it.
	shadowPatience = time.Hour
	// blindPatience is how long no look at the queue may be answered before no more jobs are held. A slurmctld that starts anew is not asked for any.
	blindPatience = 10 * time.Second
	// refusedPause is between a refusal of a probe and the look at the queue after which it is asked for once more.
	refusedPause = 2 * time.Second
	// maxProbes bounds the probes of one look at a job.
	maxProbes = 2
	// maxTries bounds the attempts at an update or a release that the controller refuses.
	maxTries = 3
)

// MaxCards bounds the cards on which a job is tried: the one that was asked for, the one that it would get, and one more.
const MaxCards = 3

// step advances a job as far as it can without waiting.
func (m *Manager) step(ctx context.Context, l *trackedJob, view *queueView) {
	for again := true; again && !l.job.Finished && ctx.Err() == nil; {
		heartbeat.Of(ctx).Turn()
		if m.leaveAloneUnwritten(ctx, l) {
			return
		}
		if l.plan != nil {
			if why := l.planOverdue(time.Now()); why != "" {
				again = m.withoutPlan(ctx, l, why)
				continue
			}
		}
		switch l.job.State {
		case StateHeld, StateStamped:
			again = m.find(ctx, l, view)
		case StateFound:
			again = m.startProbe(ctx, l, view)
		case StateProbing:
			again = m.awaitReport(ctx, l, view)
		case StateReported:
			again = m.estimate(ctx, l)
		case StateEstimated:
			again = m.decide(ctx, l)
		case StateDecided:
			again = m.act(ctx, l)
		case StateUpdating:
			again = m.update(ctx, l)
		case StateUpdated:
			again = m.watch(ctx, l, view)
		case StateRestoring:
			again = m.restore(ctx, l)
		case StateReleasing:
			again = m.release(ctx, l)
		default:
			m.config.Logger.Error("job in a state of another release: left alone", "token", l.job.Token, "state", l.job.State)
			again = false
		}
	}
}

// enforced says whether the job is held. A job that was recorded in shadow mode stays a shadow for its whole life.
func (l *trackedJob) enforced() bool { return l.job.Mode == string(Enforce) }

// move makes a transition; it reports whether the step may go on.
func (m *Manager) move(ctx context.Context, l *trackedJob, t decisionlog.Transition) bool {
	return m.advance(ctx, l, t) == nil
}

// abandon ends our part in a job that is in other hands now.
func (m *Manager) abandon(ctx context.Context, l *trackedJob, code, detail string) bool {
	m.finish(ctx, l, decisionlog.Transition{To: StateAbandoned, Code: code, Detail: detail})
	return false
}

// leaveAlone decides to leave the job as it is: a held one is released at once, a stamped one needs nothing.
func (m *Manager) leaveAlone(ctx context.Context, l *trackedJob, code, reason string) bool {
	if l.plan != nil {
		return m.withoutPlan(ctx, l, reason)
	}
	d := &decisionlog.Decision{At: time.Now(), Verdict: decision.LeaveAlone, Code: code, Reason: reason}
	l.decision = d
	if code == estimator.CodeProbeRefused || code == estimator.CodeProbeLost {
		m.breaker.failed(m.settings().Probe.Breaker, l.job.UID, l.job.Token, reason, d.At)
	}
	if !l.enforced() {
		m.finish(ctx, l, decisionlog.Transition{To: StateShadowed, Code: code, Detail: reason, Decision: d})
		return false
	}
	return m.move(ctx, l, decisionlog.Transition{To: StateReleasing, Code: code, Detail: reason, Decision: d})
}

// lost says how a held job has left our hands, or returns "".
func (l *trackedJob) lost(j client.Job, now time.Time) (code, detail string) {
	if code, detail = l.lostHold(j, now); code == "" && !request.Equivalent(j.Request, l.job.Asked) {
		return decision.CodeOwnerChanged, fmt.Sprintf("the request was changed to %s", j.Request)
	}
	return code, detail
}

// lostHold is lost without a look at the request.
func (l *trackedJob) lostHold(j client.Job, now time.Time) (code, detail string) {
	begin := l.job.HoldUntil
	if l.job.BeginAt.After(begin) {
		begin = l.job.BeginAt
	}
	passed := !now.Before(l.job.HoldUntil.Add(-time.Second))
	switch {
	case j.Ambiguous || j.UserID != l.job.UID:
		return decision.CodeAmbiguous, fmt.Sprintf("the record of job %d is not certain to be this job's", j.ID)
	case j.Ended() && j.NodeList == "":
		return decision.CodeOwnerCancelled, "the job ended as " + j.State + " and never ran"
	case passed && (!j.Pending() || !j.EligibleAt.After(now)):
		return decision.CodeHoldPassed, "the hold passed and the job may start as its owner asked"
	case !j.Pending() || !j.EligibleAt.After(now):
		return decision.CodeOwnerReleased, "the owner lifted the hold: the job runs as it was asked for"
	case strings.HasPrefix(j.Reason, "JobHeld"):
		return decision.CodeOwnerChanged, "the job was put on hold by somebody else: " + j.Reason
	case j.EligibleAt.Sub(begin).Abs() > beginTolerance:
		return decision.CodeOwnerChanged, fmt.Sprintf("the begin time was changed to %s", j.EligibleAt.Format(time.RFC3339))
	}
	return "", ""
}

// checkHeld looks at a held job in a look at the queue that is newer than its state, and abandons it when it left our hands.
func (m *Manager) checkHeld(ctx context.Context, l *trackedJob, view *queueView) (held bool) {
	if !l.enforced() {
		return true
	}
	if view == nil || view.at.Before(l.since) {
		return true
	}
	j, there := m.jobIn(ctx, l, view, l.job.SlurmJobID)
	if !there {
		return !m.gone(ctx, l)
	}
	if code, detail := l.lost(j, time.Now()); code != "" {
		m.abandon(ctx, l, code, detail)
		return false
	}
	if l.overstays(time.Now()) {
		m.leaveAlone(ctx, l, decision.CodeClockSetBack, "the job was left alone: its hold is over, and the clock was set back, so that Slurm would hold it longer")
		return false
	}
	return true
}

// overstays says whether a job that is still held by its begin time has been held for longer than was meant: the clock was set back.
func (l *trackedJob) overstays(now time.Time) bool {
	return l.enforced() && !l.job.BeginAt.After(l.job.HoldUntil) && now.Sub(l.holdEnds) > beginTolerance
}

// endOfHold is when the hold of a job of an earlier life ends by a clock that nobody sets. One that is longer than any hold was made by another clock: as long as holds are now.
func endOfHold(j decisionlog.Job, now time.Time, hold time.Duration) time.Time {
	if left := j.HoldUntil.Sub(now); left > wire.MaxHoldSeconds*time.Second+beginTolerance {
		return now.Add(hold)
	}
	return j.HoldUntil
}

// jobIn is a job in a look at the queue. One with a value that had no room there is asked for again by its id.
func (m *Manager) jobIn(ctx context.Context, l *trackedJob, view *queueView, id uint32) (client.Job, bool) {
	j, there := view.byID[id]
	if there && j.Ambiguous {
		if again, err := m.config.Slurm.Job(ctx, id); err == nil {
			j = again
		}
	}
	return l.withoutOtherMemory(j), there
}

// jobOf asks for the job by its id.
func (m *Manager) jobOf(ctx context.Context, l *trackedJob) (client.Job, error) {
	j, err := m.config.Slurm.Job(ctx, l.job.SlurmJobID)
	return l.withoutOtherMemory(j), err
}

// withoutOtherMemory leaves out host memory where none was asked for by the node: what the queue shows then may be that of each CPU.
func (l *trackedJob) withoutOtherMemory(j client.Job) client.Job {
	if l.job.Asked.MemPerNodeMiB == 0 {
		j.Request.MemPerNodeMiB = 0
	}
	return j
}

// gone asks for a job that a look at the queue did not show, and abandons it when the controller does not know it.
func (m *Manager) gone(ctx context.Context, l *trackedJob) bool {
	if _, err := m.config.Slurm.Job(ctx, l.job.SlurmJobID); !errors.Is(err, client.ErrNoJob) {
		return false
	}
	m.abandon(ctx, l, decision.CodeOwnerCancelled, "the job is no longer in the queue")
	return true
}

// find looks for the job by its token.
func (m *Manager) find(ctx context.Context, l *trackedJob, view *queueView) bool {
	if view == nil {
		return false
	}
	var mine []client.Job
	for _, j := range view.byToken[l.job.Token] {
		if j, there := m.jobIn(ctx, l, view, j.ID); there && !j.Ambiguous && j.Token() == l.job.Token && j.UserID == l.job.UID {
			mine = append(mine, j)
		}
	}
	if whole, split := wholeArray(mine); split {
		mine = []client.Job{whole}
	}
	switch {
	case len(mine) > 1:
		return m.abandon(ctx, l, decision.CodeAmbiguous, fmt.Sprintf("%d jobs carry the token", len(mine)))
	case len(mine) == 0:
		if !l.unseen && view.at.Sub(l.job.SubmittedAt) > unseenAfter {
			// Slurm has refused it, as a rule. Without its script it is let go as soon as it is seen after all.
			if err := m.config.Spool.Remove(l.job.Token); err != nil {
				m.config.Logger.Warn("spool not cleaned", "token", l.job.Token, "error", err)
			}
			if !m.unsee(l) {
				return m.abandon(ctx, l, decision.CodeNeverSeen, "no job carries the token after a few seconds, and many others of this owner are remembered that were not seen either")
			}
		}
		limit := l.job.SubmittedAt.Add(neverSeenShadow)
		if l.enforced() {
			limit = l.job.HoldUntil
		}
		if view.at.After(limit) {
			return m.abandon(ctx, l, decision.CodeNeverSeen, "no job carries the token: it was a test of a submission, was refused later, or the plugin did not get the answer in time")
		}
		return false
	}
	j := mine[0]
	found := decisionlog.Transition{To: StateFound, SlurmJobID: j.ID, Detail: fmt.Sprintf("job %d carries the token", j.ID)}
	if !request.Equivalent(j.Request, l.job.Asked) {
		// Another submit filter changed the job after us: what it wants is not known, so nothing is changed.
		if !m.move(ctx, l, found) {
			return false
		}
		return m.leaveAlone(ctx, l, decision.CodeChangedEarly, fmt.Sprintf("the job was left alone: its request was changed at submit from %s to %s", l.job.Asked, j.Request))
	}
	if outside := m.settings().Rules.Scope.Outside(policy.Who{Partition: j.Partition, Account: j.Account, QOS: j.QOS, UID: j.UserID}, true); outside != "" {
		// Its defaults were not known at submit.
		if !m.move(ctx, l, found) {
			return false
		}
		return m.leaveAlone(ctx, l, decision.CodeOutsideScope, "the job was left alone: "+outside)
	}
	if l.enforced() {
		if code, detail := l.lost(j, time.Now()); code != "" {
			l.job.SlurmJobID = j.ID
			m.finish(ctx, l, decisionlog.Transition{To: StateAbandoned, SlurmJobID: j.ID, Code: code, Detail: detail})
			return false
		}
	}
	return m.move(ctx, l, found)
}

// wholeArray is the record that stands for an array of which tasks have a record of their own already: its updates reach all tasks that have not begun.
func wholeArray(records []client.Job) (whole client.Job, split bool) {
	for _, j := range records {
		if j.ArrayID == 0 || j.ArrayID != records[0].ArrayID || j.Ambiguous {
			return client.Job{}, false
		}
		if j.ID == j.ArrayID {
			whole = j
		}
	}
	return whole, len(records) > 1 && whole.ID != 0
}

// estimate asks the estimator. Whatever goes wrong is an unknown estimate with a reason.
func (m *Manager) estimate(ctx context.Context, l *trackedJob) bool {
	if l.estimate == nil {
		if !m.beginReading(l.job.UID) {
			return false
		}
		answer, err := m.ask(ctx, l)
		m.endReading(l.job.UID)
		if ctx.Err() != nil {
			return false
		}
		if err != nil {
			answer = estimator.NewUnknown(m.config.EstimatorName, l.job.Profile, estimator.Reason{Code: estimator.CodeBundleInvalid, Detail: shorten(err.Error(), estimator.MaxDetailBytes)})
		}
		if l.plan != nil {
			markPlanned(&answer)
		}
		l.estimate = &answer
	}
	if !m.move(ctx, l, decisionlog.Transition{To: StateEstimated, Estimate: l.estimate, FromJob: l.fromJob, Detail: describeEstimate(l.estimate)}) {
		return false
	}
	if l.fromJob == 0 {
		m.ran(l)
	}
	l.fromJob = 0
	l.reported++
	if len(l.seen) == 0 {
		l.cardsTried++
	}
	l.seen = append(l.seen, *l.estimate)
	return true
}

// ran notes whether the probe that brought an estimate had a sandbox, and a bundle that can be read.
func (m *Manager) ran(l *trackedJob) {
	if i := slices.IndexFunc(l.estimate.Reasons, func(r estimator.Reason) bool {
		return r.Code == estimator.CodeNoSandbox || r.Code == estimator.CodeSandboxEnded || r.Code == estimator.CodeReaderEnded
	}); i >= 0 {
		m.breaker.failed(m.settings().Probe.Breaker, l.job.UID, l.job.Token, l.estimate.Reasons[i].Words(), time.Now())
		return
	}
	m.breaker.worked(l.job.UID)
}

func (m *Manager) ask(ctx context.Context, l *trackedJob) (estimator.Estimate, error) {
	bundle, err := m.config.Spool.OpenBundle(l.job.Token)
	if err != nil {
		return estimator.Estimate{}, err
	}
	defer bundle.Close()
	answer, err := m.config.Estimator.Estimate(ctx, estimator.Job{UID: l.job.UID, Fingerprint: l.job.Fingerprint, ScriptSHA256: l.job.ScriptSHA256}, bundle, l.job.Profile)
	if err != nil {
		return estimator.Estimate{}, err
	}
	return answer, answer.Validate()
}

func describeEstimate(e *estimator.Estimate) string {
	rank, ok := e.Largest()
	if !ok || e.Confidence == estimator.Unknown {
		return fmt.Sprintf("%s on %s: unknown", e.Estimator, e.GPU)
	}
	return fmt.Sprintf("%s on %s: %s, at most %s, confidence %s, %s seen", e.Estimator, e.GPU,
		quantity.GiB(rank.ComfortableBytes), quantity.GiB(rank.ComfortableHighBytes), e.Confidence, quantity.Count(e.Steps, "step"))
}

// decide asks the policy, for an array when enough of its tasks were tried.
func (m *Manager) decide(ctx context.Context, l *trackedJob) bool {
	payload, err := m.config.Spool.Job(l.job.Token)
	if err != nil {
		return m.leaveAlone(ctx, l, decision.CodeSpoolLost, "the job was left alone: its script is no longer in the spool: "+err.Error())
	}
	if l.plan != nil {
		return m.decideWithPlan(ctx, l, payload)
	}
	var forAll *estimator.Estimate
	if a := payload.Array; a != nil && len(l.seen) > 0 && len(l.seen) <= len(a.Tried) {
		if last := l.seen[len(l.seen)-1]; len(l.seen) < len(a.Tried) && last.Confidence != estimator.Unknown {
			return m.nextTask(ctx, l, a)
		}
		all := largestOf(l.seen, a)
		forAll, l.estimate = &all, &all
	}
	in := policy.Input{Asked: l.job.Asked, Estimate: *l.estimate, Version: m.releaseOf(&l.job), EnvDropped: payload.InnerSrunClear}
	if payload.ByNode && !l.enforced() {
		in.Asked.MemPerTres, in.Asked.CpusPerTres = "", "" // what the plugin would have made of it
	}
	if l.cardsTried > 1 {
		in.LeastFitsBytes = m.settings().Rules.FitsOf(l.job.Profile)
	}
	evidence := m.margin(l.estimate, &in)
	d := m.settings().Rules.Decide(in)
	if d.Verdict == decision.Rewrite && d.Profile != "" && d.Profile != l.estimate.GPU {
		return m.probeOnOtherCard(ctx, l, d, forAll)
	}
	l.decision = decided(d, evidence)
	if again, began := m.planFor(ctx, l, in, d, payload); began {
		return again
	}
	return m.move(ctx, l, decisionlog.Transition{To: StateDecided, Code: d.Code, Detail: d.Reason, Decision: l.decision, Estimate: forAll})
}

// decided is a decision as the log keeps it, with what its margin is from.
func decided(d policy.Decision, evidence decisionlog.Margin) *decisionlog.Decision {
	evidence.Kind = d.MarginKind
	return &decisionlog.Decision{At: time.Now(), Verdict: d.Verdict, Code: d.Code, Reason: d.Reason, MarginBytes: d.MarginBytes, Margin: evidence, NeedBytes: d.NeedBytes,
		Target: d.Target, Change: d.Change}
}

// probeOnOtherCard sends the job to a probe on the card that it would get. Another architecture chooses other kernels, with other workspaces: what
// was found on one card is no proof for another.
func (m *Manager) probeOnOtherCard(ctx context.Context, l *trackedJob, d policy.Decision, forAll *estimator.Estimate) bool {
	if l.cardsTried >= MaxCards {
		return m.leaveAlone(ctx, l, decision.CodeCardsDisagree, fmt.Sprintf("the job was left alone: tried on %d cards, and each pointed to another; the last to %s", l.cardsTried, d.Profile))
	}
	if !m.probeAgain(ctx, l, decisionlog.Transition{Code: decision.CodeTriedAgain, Profile: d.Profile, Estimate: forAll,
		Detail: fmt.Sprintf("%s; it is tried on that card (%s) too", d.Reason, d.Profile)}) {
		return false
	}
	l.job.Profile, l.seen = d.Profile, nil
	return true
}

// nextTask sends the next task of an array to a probe.
func (m *Manager) nextTask(ctx context.Context, l *trackedJob, a *spool.Array) bool {
	return m.probeAgain(ctx, l, decisionlog.Transition{Code: decision.CodeNextTask,
		Detail: fmt.Sprintf("task %d of the array was tried, task %d is next", a.Tried[len(l.seen)-1], a.Tried[len(l.seen)])})
}

// probeAgain takes a job back to where it waits for a probe.
func (m *Manager) probeAgain(ctx context.Context, l *trackedJob, t decisionlog.Transition) bool {
	// The bundle is removed first: a daemon that dies here must not take it for the answer of the next probe.
	if err := m.config.Spool.RemoveBundle(l.job.Token); err != nil {
		return m.leaveAlone(ctx, l, decision.CodeSpoolLost, "the job was left alone: "+err.Error())
	}
	t.To = StateFound
	if !m.move(ctx, l, t) {
		return false
	}
	m.mu.Lock()
	l.report = nil
	m.mu.Unlock()
	l.estimate = nil
	return true
}

// act begins what was decided.
func (m *Manager) act(ctx context.Context, l *trackedJob) bool {
	d := l.decision
	switch {
	case !l.enforced():
		m.finish(ctx, l, decisionlog.Transition{To: StateShadowed, Code: d.Code, Detail: "shadow mode: nothing was changed"})
		return false
	case m.settings().Mode != Enforce:
		return m.move(ctx, l, decisionlog.Transition{To: StateReleasing, Code: decision.CodeModeChanged, Detail: "the mode is no longer enforce"})
	case d.Verdict == decision.Rewrite:
		return m.move(ctx, l, decisionlog.Transition{To: StateUpdating, Code: d.Code, Detail: "scontrol update " + assignments(d.Change.Set) + " and release"})
	}
	return m.move(ctx, l, decisionlog.Transition{To: StateReleasing, Code: d.Code, Detail: "release without a change"})
}

// update sends the change and the release in one request, unless an earlier life of this daemon has done so already.
func (m *Manager) update(ctx context.Context, l *trackedJob) bool {
	j, err := m.jobOf(ctx, l)
	now := time.Now()
	change := l.decision.Change
	updated := decisionlog.Transition{To: StateUpdated, Detail: "the job asks for " + change.Result.String()}
	switch {
	case errors.Is(err, client.ErrNoJob):
		return m.abandon(ctx, l, decision.CodeOwnerCancelled, "the job is no longer in the queue")
	case err != nil:
		return false
	case j.UserID == l.job.UID && !j.Ambiguous && request.Equivalent(j.Request, change.Result):
		return m.move(ctx, l, updated)
	}
	if code, detail := l.lost(j, now); code != "" {
		return m.abandon(ctx, l, code, detail)
	}
	if m.settings().Mode != Enforce {
		return m.move(ctx, l, decisionlog.Transition{To: StateReleasing, Code: decision.CodeModeChanged, Detail: "the mode is no longer enforce"})
	}
	if l.overstays(now) {
		return m.move(ctx, l, decisionlog.Transition{To: StateReleasing, Code: decision.CodeClockSetBack, Detail: "the hold is over, and the clock was set back"})
	}
	if l.job.HoldUntil.Sub(now) < lastMoment {
		return false
	}
	err = m.config.Slurm.Update(ctx, l.job.UID, l.job.SlurmJobID, change.Set, client.Start{At: l.job.BeginAt})
	m.config.Failpoint(StateUpdating + ":acted")
	var refused *client.CommandError
	switch {
	case errors.As(err, &refused):
		if l.tries++; l.tries < maxTries {
			return false
		}
		return m.move(ctx, l, decisionlog.Transition{To: StateReleasing, Code: decision.CodeUpdateRefused, Detail: "the controller refused the change: " + refused.Stderr})
	case err != nil:
		// It may have been carried out all the same: the next step looks first.
		m.config.Logger.Warn("update without an answer", "token", l.job.Token, "error", err)
		return false
	}
	return m.move(ctx, l, updated)
}

// watch looks after a changed job until it runs, or gives it its request back when it can never start.
func (m *Manager) watch(ctx context.Context, l *trackedJob, view *queueView) bool {
	if view == nil || !view.at.After(l.since) {
		return false
	}
	j, there := m.jobIn(ctx, l, view, l.job.SlurmJobID)
	if !there {
		m.gone(ctx, l)
		return false
	}
	for _, task := range view.byToken[l.job.Token] {
		if j.ArrayID == j.ID && task.ArrayID == j.ArrayID && task.UserID == l.job.UID && !task.Pending() && task.NodeList != "" && request.Equivalent(task.Request, l.decision.Change.Result) {
			j = task
		}
	}
	limit := limitOf(j.Reason, l.decision.Change)
	unjudged, never := l.unjudged(j, m.releaseOf(&l.job))
	switch {
	case j.Ambiguous || j.UserID != l.job.UID:
		return m.abandon(ctx, l, decision.CodeAmbiguous, fmt.Sprintf("the record of job %d is not certain to be this job's", j.ID))
	case !request.Equivalent(j.Request, l.decision.Change.Result):
		return m.abandon(ctx, l, decision.CodeOwnerChanged, fmt.Sprintf("the request was changed to %s", j.Request))
	case !j.Pending():
		m.finish(ctx, l, decisionlog.Transition{To: StateVerified, Code: decision.CodeRunning, Detail: fmt.Sprintf("the job is %s on %s", j.State, j.NodeList), NodeList: j.NodeList})
	case strings.HasPrefix(j.Reason, "BadConstraints"):
		return m.move(ctx, l, decisionlog.Transition{To: StateRestoring, Code: decision.CodeImpossible,
			Detail: "no node of this cluster can run the changed request (BadConstraints): the original is put back, " + assignments(request.Difference(l.decision.Change.Result, l.job.Asked))})
	case limit == single, limit == shared && m.settings().MaxWait == 0 && m.waitedFor(l, view.at) > groupPatience:
		return m.move(ctx, l, decisionlog.Transition{To: StateRestoring, Code: decision.CodeLimit,
			Detail: fmt.Sprintf("a limit of the accounting stands against the changed request (%s): the original is put back, %s", j.Reason, assignments(request.Difference(l.decision.Change.Result, l.job.Asked)))})
	case m.overdue(l, view.at):
		return m.move(ctx, l, decisionlog.Transition{To: StateRestoring, Code: decision.CodeWaitedTooLong,
			Detail: fmt.Sprintf("the changed job has waited for more than %s (%s): the original request is put back, %s", m.settings().MaxWait, j.Reason, assignments(request.Difference(l.decision.Change.Result, l.job.Asked)))})
	case view.at.Sub(l.since) > m.settings().Watch && never:
		return m.move(ctx, l, decisionlog.Transition{To: StateRestoring, Code: decision.CodeWaitedTooLong,
			Detail: fmt.Sprintf("the changed job waits, and slurmctld says neither why nor when it may start (%s): the original request is put back, %s", j.Reason, assignments(request.Difference(l.decision.Change.Result, l.job.Asked)))})
	case view.at.Sub(l.since) > m.settings().Watch && (m.settings().MaxWait == 0 && limit == unlimited && !unjudged || m.crowded()):
		m.finish(ctx, l, decisionlog.Transition{To: StateVerified, Code: decision.CodeWaiting, Detail: "the changed job waits in the queue: " + j.Reason})
	}
	return false
}

// unjudged says whether Slurm has said nothing yet of a waiting job, neither why it waits nor when it may start, and whether it never will. Without slurmdbd the main scheduler of 23.11 and 24.05 takes
// every job for one of an invalid account, for a moment at each of its rounds, and never finds out that no node can run it: the backfill scheduler alone starts jobs there, and gives those that can start
// a time. The looks at the queue come as regularly as the rounds, and may miss that moment each time.
func (l *trackedJob) unjudged(j client.Job, v release.Version) (unjudged, never bool) {
	l.unaccounted = l.unaccounted || j.Reason == "InvalidAccount" || j.Account == "" && release.UnaccountedSkipped.In(v) && !release.UnaccountedJudged.In(v)
	unjudged = j.Unexplained() && j.StartAt.IsZero()
	return unjudged, unjudged && l.unaccounted
}

// overdue says whether a changed job waits for longer than the site allows.
func (m *Manager) overdue(l *trackedJob, now time.Time) bool {
	limit := m.settings().MaxWait
	return limit > 0 && m.waitedFor(l, now) > limit
}

// waitedFor is how long a changed job has waited. Until its owner's own begin time it waits for nothing of ours.
func (m *Manager) waitedFor(l *trackedJob, now time.Time) time.Duration {
	since := l.since
	if l.job.BeginAt.After(since) {
		since = l.job.BeginAt
	}
	return now.Sub(since)
}

// crowded says whether so many jobs are looked after that those that only wait have to make room.
func (m *Manager) crowded() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inWork > maxOpen/2
}

// restore gives a job its original request back.
func (m *Manager) restore(ctx context.Context, l *trackedJob) bool {
	j, err := m.jobOf(ctx, l)
	switch {
	case errors.Is(err, client.ErrNoJob), err == nil && j.Ended():
		return m.abandon(ctx, l, decision.CodeOwnerCancelled, "the job ended")
	case err != nil:
		return false
	case j.UserID != l.job.UID || j.Ambiguous:
		return m.abandon(ctx, l, decision.CodeAmbiguous, fmt.Sprintf("the record of job %d is not certain to be this job's", j.ID))
	case request.Equivalent(j.Request, l.job.Asked):
		m.finish(ctx, l, decisionlog.Transition{To: StateRestored, Code: l.code, Detail: "the job asks for " + l.job.Asked.String() + " again"})
		return false
	case !j.Pending() || !request.Equivalent(j.Request, l.decision.Change.Result):
		return m.abandon(ctx, l, decision.CodeOwnerChanged, fmt.Sprintf("the job is %s and asks for %s", j.State, j.Request))
	}
	err = m.config.Slurm.Update(ctx, l.job.UID, l.job.SlurmJobID, request.Difference(l.decision.Change.Result, l.job.Asked), client.Start{At: l.job.BeginAt})
	m.config.Failpoint(StateRestoring + ":acted")
	var refused *client.CommandError
	if errors.As(err, &refused) {
		if l.tries++; l.tries >= maxTries {
			m.config.Logger.Error("a changed job cannot start and its request cannot be put back: its owner has to submit it again", "slurm_job_id", l.job.SlurmJobID, "stderr", refused.Stderr)
			return m.abandon(ctx, l, decision.CodeUpdateRefused, "the controller refused to put the original request back: "+refused.Stderr)
		}
	}
	return err == nil
}

// release lets a job go as its owner asked.
func (m *Manager) release(ctx context.Context, l *trackedJob) bool {
	j, err := m.jobOf(ctx, l)
	switch {
	case errors.Is(err, client.ErrNoJob):
		return m.abandon(ctx, l, decision.CodeOwnerCancelled, "the job is no longer in the queue")
	case err != nil:
		return false
	}
	released := decisionlog.Transition{To: StateReleased, Code: l.decision.Code, Detail: "the job may start, asking for " + j.Request.String()}
	// What the job asks for does not matter here: nothing but its begin time is touched.
	switch code, detail := l.lostHold(j, time.Now()); code {
	case "":
	case decision.CodeHoldPassed:
		released.Code, released.Detail = code, detail
		m.finish(ctx, l, released)
		return false
	case decision.CodeOwnerReleased:
		// An earlier life of this daemon has sent the release, or the owner did the same: there is no difference.
		m.finish(ctx, l, released)
		return false
	default:
		return m.abandon(ctx, l, code, detail)
	}
	if l.job.BeginAt.After(l.job.HoldUntil) {
		// The begin time in force is the owner's own.
		m.finish(ctx, l, released)
		return false
	}
	err = m.config.Slurm.Update(ctx, l.job.UID, l.job.SlurmJobID, nil, client.Start{At: l.job.BeginAt})
	m.config.Failpoint(StateReleasing + ":acted")
	var refused *client.CommandError
	switch {
	case errors.As(err, &refused):
		if l.tries++; l.tries >= maxTries {
			return m.abandon(ctx, l, decision.CodeUpdateRefused, "the controller refused the release, the hold will pass by itself: "+refused.Stderr)
		}
		return false
	case err != nil:
		return false
	}
	m.finish(ctx, l, released)
	return false
}

func assignments(set []request.Assignment) string {
	parts := make([]string, len(set))
	for i, a := range set {
		parts[i] = a.Key + "=" + a.Value
	}
	return strings.Join(parts, " ")
}

func shorten(s string, limit int) string {
	if len(s) > limit {
		return s[:limit]
	}
	return s
}
