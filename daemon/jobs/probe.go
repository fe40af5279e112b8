package jobs

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/launch"
	"github.com/gresize/gresize/daemon/probejob"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/quantity"
)

// ProbeJob is what a probe is told of its job.
type ProbeJob struct {
	Script []byte
	// Arguments are those of the script, without its own path.
	Arguments [][]byte
	WorkDir   string
	Profile   string
	Steps     int
	Budget    time.Duration
	Devices   int
	// Tasks is the number of tasks that an srun in the script starts.
	Tasks int
	// Array is set for a task of a job array.
	Array *probejob.ArrayTask
	// RecordInputs asks for the files that the script reads; Inputs are those of an earlier job, in the row InputsOf of the log.
	RecordInputs bool
	Inputs       []byte
	InputsOf     int64
	// Swap asks for a plan.
	Swap *probejob.Swap
}

// report is what arrived from a probe: a bundle that is on disk, or a reason why there is none.
type report struct {
	bundleSHA256 string
	bundleBytes  int64
	failure      *estimator.Reason
	// unchanged is an earlier answer whose files the probe found as they were.
	unchanged *decisionlog.Cached
}

// ErrUnknownProbe says that there is no such probe, that its key is another, or that it has reported already.
var ErrUnknownProbe = errors.New("no probe of this name waits for a report with this key")

// startProbe asks for a probe as soon as there is a free place.
func (m *Manager) startProbe(ctx context.Context, l *trackedJob, view *queueView) bool {
	if !m.checkHeld(ctx, l, view) {
		return false
	}
	if l.enforced() && time.Until(l.job.HoldUntil) < probeReserve {
		// Too late for a probe: the hold passes and the job starts as it was asked for. It stands in nobody's way meanwhile.
		m.waitNot(l)
		return false
	}
	if m.waitsTooLong(l) {
		return m.leaveAlone(ctx, l, decision.CodeProbeQueue, fmt.Sprintf("the job was left alone: %s, as many as may, and none ended within %s", quantity.Count(m.settings().Probe.MaxRunning, "probe runs", "probes run"), m.settings().Probe.StartWithin))
	}
	return m.launchProbe(ctx, l)
}

// waitsTooLong says whether a held job has waited for its probe to begin for longer than the site wants.
func (m *Manager) waitsTooLong(l *trackedJob) bool {
	limit := m.settings().Probe.StartWithin
	return l.enforced() && limit > 0 && time.Since(l.since) > limit
}

// launchProbe writes down that a probe is asked for, and asks.
func (m *Manager) launchProbe(ctx context.Context, l *trackedJob) bool {
	if l.considered.Equal(l.since) && !m.placeFree(l) {
		return false
	}
	if why, admitted := m.breaker.admit(l.job.UID, l.job.Token, time.Now()); !admitted {
		return m.leaveAlone(ctx, l, decision.CodeProbesFailing, "the job was left alone: "+why)
	}
	if again, left := m.diedBefore(ctx, l); left {
		return again
	}
	payload, err := m.config.Spool.Job(l.job.Token)
	if err != nil {
		return m.leaveAlone(ctx, l, decision.CodeSpoolLost, "the job was left alone: its script is no longer in the spool: "+err.Error())
	}
	if payload.Array == nil && l.plan == nil {
		if again, done := m.fromCache(ctx, l); done {
			return again
		}
	}
	l.considered = l.since
	key := randomWord(32)
	p := &probe{name: launch.NamePrefix + randomWord(10), keySHA256: sha256.Sum256([]byte(key)), token: l.job.Token, nth: len(l.seen)}
	if !m.place(l, p) {
		return false
	}
	detail := "probe " + p.name + " is asked for, as the job's owner"
	if a := payload.Array; a != nil && p.nth < len(a.Tried) {
		detail += fmt.Sprintf(", for task %d of the array", a.Tried[p.nth])
	}
	if m.advance(ctx, l, decisionlog.Transition{To: StateProbing, Detail: detail,
		NewProbe: &decisionlog.Probe{Name: p.name, KeySHA256: hex.EncodeToString(p.keySHA256[:])}}) != nil {
		m.forget(p)
		return false
	}
	l.probe = p
	l.attempts++
	options := m.settings().Probe
	account := options.Account
	if account == "" {
		account = l.job.Account
	}
	id, err := m.config.Launcher.Submit(ctx, launch.Request{UID: l.job.UID, GID: l.job.GID, Name: p.name, Key: key, URL: options.URL + "/v1/probes/" + p.name,
		Environment: payload.Environment, WorkDir: l.job.WorkDir, Partition: options.Partition, Account: account, QOS: options.QOS,
		TimeLimitMinutes: options.TimeLimitMinutes, CPUs: options.CPUs, MemoryMiB: options.MemoryMiB})
	m.config.Failpoint(StateProbing + ":acted")
	var refused *launch.RefusedError
	switch {
	case errors.As(err, &refused):
		p.refused, p.refusedAt = refused.Detail, time.Now()
		if l.attempts-l.reported >= maxProbes {
			return m.giveUp(ctx, l)
		}
		m.config.Logger.Warn("probe refused, asked for once more when slurmctld answers", "token", l.job.Token, "probe", p.name, "error", refused.Detail)
		return false
	case err != nil:
		// It may have been submitted all the same: it is looked for by its name.
		m.config.Logger.Warn("probe without an answer", "token", l.job.Token, "probe", p.name, "error", err)
		return false
	}
	m.setProbeJob(ctx, p, id)
	return false
}

// placeFree says whether a probe of a job may run now.
func (m *Manager) placeFree(l *trackedJob) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.placeForLocked(l)
}

func (m *Manager) setProbeJob(ctx context.Context, p *probe, id uint32) {
	m.mu.Lock()
	p.slurmJobID = id
	m.mu.Unlock()
	if err := m.config.Log.SetProbeJob(ctx, p.name, id); err != nil {
		m.config.Logger.Error("job id of a probe not recorded", "probe", p.name, "error", err)
	}
}

// forget takes a probe's key out of force.
func (m *Manager) forget(p *probe) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.freeLocked(p)
}

// awaitReport waits for the probe, notices when it is lost, and looks after the held job meanwhile.
func (m *Manager) awaitReport(ctx context.Context, l *trackedJob, view *queueView) bool {
	if r := m.arrived(l); r != nil {
		return m.takeReport(ctx, l, r)
	}
	if !m.checkHeld(ctx, l, view) {
		return false
	}
	if !l.enforced() && time.Since(l.since) > shadowPatience {
		return m.leaveAlone(ctx, l, estimator.CodeProbeLost, "the job was left alone: its probe did not report within "+shadowPatience.String())
	}
	p := l.probe
	switch {
	case p == nil:
		return m.startProbe(ctx, l, view) // there was no place, or no row, for one that is asked for once more
	case view == nil || view.at.Before(l.since):
		return false
	case p.refused != "":
		return m.afterRefusal(ctx, l, view)
	case p.slurmJobID == 0:
		return m.searchProbe(ctx, l, view)
	}
	j, there := view.byID[p.slurmJobID]
	if there && (j.Name != p.name || j.UserID != l.job.UID) {
		there = false
	}
	if there && j.Pending() && m.waitsTooLong(l) {
		return m.leaveAlone(ctx, l, decision.CodeProbeQueue, fmt.Sprintf("the job was left alone: its probe %d has waited for more than %s to begin (%s)", j.ID, m.settings().Probe.StartWithin, j.Reason))
	}
	if there && !j.Ended() {
		p.missingSince = time.Time{}
		return false
	}
	now := time.Now()
	if p.missingSince.IsZero() {
		p.missingSince = now
	}
	if now.Sub(p.missingSince) < reportGrace {
		return false
	}
	ended := "its job is no longer in the queue"
	if there {
		ended = fmt.Sprintf("its job %d ended as %s with exit code %s", j.ID, j.State, j.ExitCode)
	}
	m.forget(p)
	return m.leaveAlone(ctx, l, estimator.CodeProbeLost, "the job was left alone: its probe ended without a report: "+ended)
}

// afterRefusal asks once more for a probe that was refused. What is said while slurmctld or gresize-launch ends, starts or hangs is no word on the job, and its
// texts differ: so a refusal is believed when it was given twice, and slurmctld has answered a look at the queue in between.
func (m *Manager) afterRefusal(ctx context.Context, l *trackedJob, view *queueView) bool {
	if view.at.Sub(l.probe.refusedAt) < min(refusedPause, m.config.LaunchSettle) {
		return false
	}
	if l.enforced() && time.Until(l.job.HoldUntil) < probeReserve {
		return m.giveUp(ctx, l)
	}
	m.forget(l.probe)
	l.probe = nil
	return m.launchProbe(ctx, l)
}

// giveUp lets a job go whose probe was refused.
func (m *Manager) giveUp(ctx context.Context, l *trackedJob) bool {
	p := l.probe
	m.forget(p)
	l.probe = nil
	return m.leaveAlone(ctx, l, estimator.CodeProbeRefused, "the job was left alone: its probe was not submitted: "+p.refused)
}

// cancelProbe ends a probe whose report has no reader any more. We may cancel any job, so it is made sure that it is the probe: its id came
// from a process of the job's owner.
func (m *Manager) cancelProbe(ctx context.Context, l *trackedJob, p *probe) {
	if p.slurmJobID == 0 || !m.isProbe(ctx, l, p, p.slurmJobID) {
		return
	}
	if err := m.config.Slurm.Cancel(ctx, p.slurmJobID); err != nil {
		m.config.Logger.Debug("probe not cancelled", "probe", p.name, "error", err)
	}
}

func (m *Manager) isProbe(ctx context.Context, l *trackedJob, p *probe, id uint32) bool {
	j, err := m.config.Slurm.Job(ctx, id)
	return err == nil && !j.Ambiguous && j.UserID == l.job.UID && j.Name == p.name && !j.Ended()
}

// searchProbe looks for a probe of which only the name is known. When it surely was not submitted it is asked for again, once.
func (m *Manager) searchProbe(ctx context.Context, l *trackedJob, view *queueView) bool {
	for _, j := range view.byName[l.probe.name] {
		if j.Ended() && j.UserID == l.job.UID || m.isProbe(ctx, l, l.probe, j.ID) {
			m.setProbeJob(ctx, l.probe, j.ID)
			return false
		}
	}
	if view.at.Sub(l.since) < m.config.LaunchSettle {
		return false
	}
	m.forget(l.probe)
	l.probe = nil
	if l.attempts-l.reported >= maxProbes || l.enforced() && time.Until(l.job.HoldUntil) < probeReserve {
		return m.leaveAlone(ctx, l, estimator.CodeProbeLost, "the job was left alone: its probe never appeared in the queue")
	}
	return m.launchProbe(ctx, l)
}

// arrived returns the report of a job's probe, if it has come.
func (m *Manager) arrived(l *trackedJob) *report {
	m.mu.Lock()
	defer m.mu.Unlock()
	return l.report
}

// stored is the report that an earlier life of the daemon put on disk and did not get to record.
func (m *Manager) stored(token string) *report {
	bundle, err := m.config.Spool.Bundle(token)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		m.config.Logger.Warn("bundle cannot be read", "token", token, "error", err)
		return nil
	}
	return newReport(bundle)
}

func newReport(bundle []byte) *report {
	sum := sha256.Sum256(bundle)
	return &report{bundleSHA256: hex.EncodeToString(sum[:]), bundleBytes: int64(len(bundle))}
}

// takeReport records a report. The probe's key is out of force from here on.
func (m *Manager) takeReport(ctx context.Context, l *trackedJob, r *report) bool {
	t := decisionlog.Transition{To: StateReported, Detail: fmt.Sprintf("a bundle of %d bytes arrived", r.bundleBytes)}
	if l.probe != nil {
		t.Reported = &decisionlog.Probe{Name: l.probe.name, BundleSHA256: r.bundleSHA256, BundleBytes: r.bundleBytes}
	}
	if r.failure != nil {
		t.Code, t.Detail = r.failure.Code, "the probe could not make a bundle: "+r.failure.Detail
		answer := estimator.NewUnknown(m.config.EstimatorName, l.job.Profile, *r.failure)
		l.estimate = &answer
	}
	if r.unchanged != nil {
		t.Code, t.Detail = decision.CodeFromCache, answeredFrom(*r.unchanged, filesUnchanged)
		l.useCached(*r.unchanged)
		l.verified = r.unchanged.Job
	}
	if !m.move(ctx, l, t) {
		return false
	}
	if l.probe != nil {
		m.forget(l.probe)
		l.probe = nil
		m.poke() // somebody else may wait for its place
	}
	return true
}

// ErrBadReason says that a reason is of no form that a probe sends.
var ErrBadReason = errors.New("not a reason")

// ProbeOwner is the user whose probe has this name and this key.
func (m *Manager) ProbeOwner(name, key string) (uint32, error) {
	l, _, err := m.authorize(name, key)
	if err != nil {
		return 0, err
	}
	return l.job.UID, nil
}

// ProbeJob tells a probe what to run.
func (m *Manager) ProbeJob(name, key string) (ProbeJob, error) {
	l, nth, err := m.authorize(name, key)
	if err != nil {
		return ProbeJob{}, err
	}
	payload, err := m.config.Spool.Job(l.job.Token)
	if err != nil {
		return ProbeJob{}, err
	}
	// The first entry is the script's own path, which is another one in the probe.
	arguments := payload.Argv
	if len(arguments) > 0 {
		arguments = arguments[1:]
	}
	var task *probejob.ArrayTask
	if a := payload.Array; a != nil {
		if nth >= len(a.Tried) {
			return ProbeJob{}, fmt.Errorf("task %d of %d of an array: %w", nth+1, len(a.Tried), ErrUnknownProbe)
		}
		task = &probejob.ArrayTask{JobID: l.job.SlurmJobID, Task: a.Tried[nth], Count: a.Count, Min: a.Min, Max: a.Max, Step: a.Step}
	}
	job := ProbeJob{Array: task, Script: payload.Script, Arguments: arguments, WorkDir: l.job.WorkDir, Profile: l.job.Profile, Steps: m.settings().Probe.Steps, Budget: m.settings().Probe.Budget, Devices: devicesOf(l.job.Asked), Tasks: max(payload.Tasks, 1)}
	if job.Swap = m.wantsPlan(l); job.Swap == nil && task == nil {
		m.verifiable(l, &job)
	}
	return job, nil
}

// ProbeBundle takes a probe's bundle. When it returns nil, the bundle is on disk and the daemon may die. Of several at once one is taken, and the others change
// nothing: the bundle on disk is the one whose hash is recorded.
func (m *Manager) ProbeBundle(name, key string, bundle []byte) error {
	m.mu.Lock()
	l, err := m.authorizeLocked(name, key)
	if err == nil && l.receiving {
		err = ErrUnknownProbe
	}
	if err == nil {
		l.receiving = true
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	r := newReport(bundle)
	err = m.config.Spool.PutBundle(l.job.Token, bundle)
	m.mu.Lock()
	l.receiving = false
	if err == nil {
		l, err = m.authorizeLocked(name, key)
	}
	if err == nil {
		l.report = r
	}
	m.mu.Unlock()
	if err == nil {
		m.poke()
	}
	return err
}

// ProbeFailure takes the reason why a probe has no bundle.
func (m *Manager) ProbeFailure(name, key string, reason estimator.Reason) error {
	reason.Detail = strings.ToValidUTF8(shorten(reason.Detail, estimator.MaxDetailBytes), "")
	check := estimator.NewUnknown(m.config.EstimatorName, "", reason)
	if err := check.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrBadReason, err)
	}
	return m.setReport(name, key, &report{failure: &reason})
}

// setReport accepts the first report of a probe and no other.
func (m *Manager) setReport(name, key string, r *report) error {
	m.mu.Lock()
	l, err := m.authorizeLocked(name, key)
	if err == nil && l.receiving {
		err = ErrUnknownProbe // a bundle of this probe is being written at this moment
	}
	if err == nil {
		l.report = r
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	m.poke()
	return nil
}

// authorize returns the job of a probe, and how many of its tasks were tried before.
func (m *Manager) authorize(name, key string) (*trackedJob, int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.authorizeLocked(name, key)
	if err != nil {
		return nil, 0, err
	}
	return l, m.probes[name].nth, nil
}

func (m *Manager) authorizeLocked(name, key string) (*trackedJob, error) {
	sum := sha256.Sum256([]byte(key))
	p, known := m.probes[name]
	if !known {
		p = &probe{}
	}
	same := subtle.ConstantTimeCompare(sum[:], p.keySHA256[:]) == 1
	l := m.open[p.token]
	if !known || !same || l == nil || l.report != nil {
		return nil, ErrUnknownProbe
	}
	return l, nil
}
