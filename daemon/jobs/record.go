package jobs

import (
	"context"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/daemon/spool"
)

// groupLength bounds the submissions that are written in one transaction, each with a sync of its script.
const groupLength = 64

// group is a submission and those that wait behind it already, up to a question of the daemon to itself, which is returned by itself.
func (m *Manager) group(s submission) (group []submission, proof *submission) {
	if s.proof != nil {
		return nil, &s
	}
	group = []submission{s}
	for len(group) < groupLength {
		select {
		case next := <-m.queue:
			if next.proof != nil {
				return group, &next
			}
			group = append(group, next)
		default:
			return group, nil
		}
	}
	return group, nil
}

// recordGroup writes submissions down, or keeps them all: one that alone cannot be written must not stand in the way of the others, so they are tried one by one the next time. What is late
// goes first, so that the rows keep their order.
func (m *Manager) recordGroup(ctx context.Context, group []submission, late *backlog) {
	if len(group) == 0 || len(late.waiting) == 0 && m.record(ctx, group...) {
		return
	}
	for _, s := range group {
		m.put(late, s)
	}
}

// record makes submissions durable, all or none, their scripts first; then the jobs are looked after.
func (m *Manager) record(ctx context.Context, group ...submission) bool {
	logger, rows := m.config.Logger.With("token", group[0].job.Token, "submissions", len(group)), make([]decisionlog.NewJob, len(group))
	spooled := false
	for i, s := range group {
		rows[i] = decisionlog.NewJob{Job: s.job, First: s.first, Decision: s.decision}
		spooled = spooled || s.payload != nil
	}
	if spooled {
		if err := m.config.Spool.PutJobs(func(yield func(string, spool.Job) bool) {
			for _, s := range group {
				heartbeat.Of(ctx).Turn()
				if s.payload != nil && !yield(s.job.Token, *s.payload) {
					return
				}
			}
		}); err != nil {
			logger.Error("job not spooled yet", "error", err)
			m.unspool(group)
			return false
		}
	}
	ids, err := m.config.Log.AddJobs(ctx, rows...)
	if err != nil {
		logger.Error("job not recorded yet", "error", err)
		m.unspool(group)
		return false
	}
	for i, s := range group {
		m.take(s, ids[i])
	}
	return true
}

// unspool takes the scripts of submissions away that were not recorded.
func (m *Manager) unspool(group []submission) {
	for _, s := range group {
		if s.payload == nil {
			continue
		}
		if err := m.config.Spool.Remove(s.job.Token); err != nil {
			m.config.Logger.Warn("spool not cleaned", "token", s.job.Token, "error", err)
		}
	}
}

// take looks after a job whose row has this id.
func (m *Manager) take(s submission, id int64) {
	if s.payload != nil {
		defer m.unreserve()
	}
	m.config.Failpoint(s.first.State + ":written")
	m.config.Logger.Info("job recorded", "token", s.job.Token, "state", s.first.State, "code", s.first.Code, "uid", s.job.UID, "asked", s.job.Asked.String())
	m.say(s.job, s.decision)
	if s.job.Finished {
		return
	}
	s.job.ID = id
	m.mu.Lock()
	m.open[s.job.Token] = &life{job: s.job, holdEnds: s.job.HoldUntil, since: time.Now(), array: s.payload != nil && s.payload.Array != nil}
	m.mu.Unlock()
	m.poke()
}
