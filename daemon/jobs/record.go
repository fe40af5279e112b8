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

// inbox is what was answered and waits for the writer, by owner: however many one has submitted, another's next one is in the next group.
type inbox struct {
	of map[uint32][]submission
	// rota are the owners in their turn.
	rota []uint32
	n    int
	// proofs are questions of the daemon to itself, answered when the next group was tried.
	proofs []submission
}

func (in *inbox) add(s submission) {
	if s.proof != nil {
		in.proofs = append(in.proofs, s)
		return
	}
	if in.of == nil {
		in.of = map[uint32][]submission{}
	}
	if len(in.of[s.job.UID]) == 0 {
		in.rota = append(in.rota, s.job.UID)
	}
	in.of[s.job.UID] = append(in.of[s.job.UID], s)
	in.n++
}

// fill takes what the queue holds, up to a bound: what is beyond it is refused where it is answered.
func (in *inbox) fill(queue <-chan submission) {
	for in.n < queueLength {
		select {
		case s := <-queue:
			in.add(s)
		default:
			return
		}
	}
}

// next takes a group, one of each owner in turn.
func (in *inbox) next() (group []submission) {
	for len(group) < groupLength && in.n > 0 {
		uid := in.rota[0]
		in.rota = in.rota[1:]
		group = append(group, in.of[uid][0])
		in.n--
		if in.of[uid] = in.of[uid][1:]; len(in.of[uid]) > 0 {
			in.rota = append(in.rota, uid)
		} else {
			delete(in.of, uid)
		}
	}
	return group
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
	m.config.Failpoint(s.first.State + ":written")
	m.config.Logger.Info("job recorded", "token", s.job.Token, "state", s.first.State, "code", s.first.Code, "uid", s.job.UID, "asked", s.job.Asked.String())
	m.say(s.job, s.decision)
	if s.job.Finished {
		if s.payload != nil {
			m.unreserve(s.job.UID, s.payload.Bytes())
		}
		return
	}
	s.job.ID = id
	m.mu.Lock()
	l := &trackedJob{bytes: bytesOf(s.payload), job: s.job, holdEnds: s.job.HoldUntil, since: time.Now(), array: s.payload != nil && s.payload.Array != nil}
	m.unstrandLocked(l)
	m.open[s.job.Token] = l
	m.mu.Unlock()
	m.poke()
}
