package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/slurm/client"
)

// unwrittenPatience is how long nothing can be written before held jobs are let go: a single error of a disk is over by then.
const unwrittenPatience = 2 * time.Second

// unwritten is what goes on while the log or the spool cannot be written: nothing new is held, and what is held is let go as its owner asked. That alone needs no row: it is what time would
// do, and a row says so as soon as one can be written.
type unwritten struct {
	// since is when the first write failed, zero while all is well.
	since time.Time
	// stranded are jobs that were held and of which there is no row yet, by token.
	stranded map[string]*stranded
}

type stranded struct {
	job   decisionlog.Job
	freed bool
}

// notWritten notes that something could not be written.
func (m *Manager) notWritten() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unwritten.since.IsZero() {
		m.unwritten.since = time.Now()
	}
}

// canWrite says whether the last thing that was to be written could be, and if not, since when.
func (m *Manager) canWrite() (yes bool, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unwritten.since.IsZero(), m.unwritten.since
}

// strand remembers a held submission that has no row.
func (m *Manager) strand(s submission) {
	if s.job.HoldUntil.IsZero() || s.job.Finished {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unwritten.stranded == nil {
		m.unwritten.stranded = map[string]*stranded{}
	}
	if m.unwritten.stranded[s.job.Token] == nil {
		m.unwritten.stranded[s.job.Token] = &stranded{job: s.job}
	}
}

// unstrandLocked tells a job that has its row now whether it was let go before.
func (m *Manager) unstrandLocked(l *trackedJob) {
	if s := m.unwritten.stranded[l.job.Token]; s != nil && s.freed {
		l.freed, l.job.SlurmJobID = true, s.job.SlurmJobID
	}
	delete(m.unwritten.stranded, l.job.Token)
}

// tryToWrite looks whether what could not be written can be by now, and lets go meanwhile what is held and has no row.
func (m *Manager) tryToWrite(ctx context.Context) {
	ok, since := m.canWrite()
	if ok {
		return
	}
	err := errors.Join(m.config.Log.Writable(ctx), m.config.Spool.Writable())
	if err == nil {
		m.mu.Lock()
		m.unwritten.since = time.Time{}
		m.mu.Unlock()
		m.config.Logger.Info("the decision log and the spool can be written again: jobs are held as before")
		return
	}
	if time.Since(since) < unwrittenPatience {
		return
	}
	m.mu.Lock()
	view, waiting := m.lastQueue, []*stranded{}
	for token, s := range m.unwritten.stranded {
		switch {
		case time.Since(s.job.HoldUntil) > time.Minute:
			delete(m.unwritten.stranded, token)
		case !s.freed:
			waiting = append(waiting, s)
		}
	}
	m.mu.Unlock()
	if view == nil {
		return
	}
	for _, s := range waiting {
		for _, j := range view.byToken[s.job.Token] {
			l := &trackedJob{job: s.job, holdEnds: s.job.HoldUntil}
			l.job.SlurmJobID = j.ID
			if m.free(ctx, l) {
				m.mu.Lock()
				s.freed, s.job.SlurmJobID = true, j.ID
				m.mu.Unlock()
			}
		}
	}
}

// leaveAloneUnwritten ends the hold of a job while nothing can be written, and says so in its row once something can. It says whether the step is over.
func (m *Manager) leaveAloneUnwritten(ctx context.Context, l *trackedJob) (over bool) {
	ok, since := m.canWrite()
	switch {
	case !l.enforced() || l.job.State == StateUpdated || l.job.State == StateRestoring:
		return false
	case l.freed && ok:
		m.finish(ctx, l, decisionlog.Transition{To: StateAbandoned, SlurmJobID: l.job.SlurmJobID, Code: decision.CodeLogUnwritable, Detail: "the job starts as submitted: the decision log or the spool cannot be written"})
		return true
	case l.freed:
		return true
	case ok || time.Since(since) < unwrittenPatience:
		return false
	}
	l.freed = l.job.SlurmJobID != 0 && m.free(ctx, l)
	return l.freed
}

// free lets a job go that is certainly ours, still held and unchanged.
func (m *Manager) free(ctx context.Context, l *trackedJob) bool {
	j, err := m.jobOf(ctx, l)
	if err != nil || j.Token() != l.job.Token {
		return false
	}
	if code, _ := l.lost(j, time.Now()); code != "" {
		return false
	}
	if err := m.config.Slurm.Update(ctx, l.job.UID, l.job.SlurmJobID, nil, client.Start{At: l.job.BeginAt}); err != nil {
		m.config.Logger.Warn("the hold of a job could not be ended, though nothing can be written", "token", l.job.Token, "error", err)
		return false
	}
	m.config.Logger.Warn("a held job starts as submitted: nothing can be written", "token", l.job.Token, "slurm_job_id", l.job.SlurmJobID)
	return true
}
