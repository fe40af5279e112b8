package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/heartbeat"
)

// Limits on what waits in memory for a log that cannot be written.
const (
	// backlogLength bounds the submissions, and backlogBytes their scripts and environments.
	backlogLength = 4096
	backlogBytes  = 64 << 20
	// backlogRetry is the pause between two attempts to write them.
	backlogRetry = time.Second
	// backlogFailures in a row end an attempt: one that alone cannot be written does not stand in the way of the others.
	backlogFailures = 2
)

// backlog is what could not be written yet, oldest first. It belongs to the writer.
type backlog struct {
	waiting []submission
	bytes   int
}

// add keeps a submission and returns what has to go for it: those that were not held first, then the oldest.
func (b *backlog) add(s submission) (dropped []submission) {
	b.waiting, b.bytes = append(b.waiting, s), b.bytes+s.size()
	for len(b.waiting) > backlogLength || b.bytes > backlogBytes {
		i := max(0, slices.IndexFunc(b.waiting, func(s submission) bool { return s.payload == nil }))
		dropped = append(dropped, b.waiting[i])
		b.bytes -= b.waiting[i].size()
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	return dropped
}

// size is what a submission takes in memory, roughly.
func (s submission) size() int {
	n := 1 << 10
	if s.payload == nil {
		return n
	}
	n += len(s.payload.Script)
	for _, list := range [][][]byte{s.payload.Argv, s.payload.Environment} {
		for _, entry := range list {
			n += len(entry)
		}
	}
	return n
}

// write makes submissions durable. Only then is a job looked after: a row comes before any action. What cannot be written waits.
func (m *Manager) write(ctx context.Context) {
	beat := m.config.Heartbeat.Begin("the writer of submissions", turn)
	defer beat.End()
	writing := heartbeat.With(ctx, beat)
	var late backlog
	// What comes in meanwhile does not put the next attempt off.
	var retry <-chan time.Time
	for {
		beat.Idle()
		switch {
		case len(late.waiting) == 0:
			retry = nil
		case retry == nil:
			retry = time.After(backlogRetry)
		}
		if retry != nil {
			beat.Wait(backlogRetry)
		}
		select {
		case <-ctx.Done():
			m.writeLast(context.WithoutCancel(writing), &late)
			return
		case <-retry:
			beat.Turn()
			m.writeLate(writing, &late)
			retry = nil
		case s := <-m.queue:
			beat.Turn()
			// What is late goes first.
			m.writeNow(writing, s, &late)
		}
		m.backlogged.Store(int64(len(late.waiting)))
	}
}

// writeNow writes a submission and what waits behind it.
func (m *Manager) writeNow(ctx context.Context, s submission, late *backlog) {
	group, proof := m.group(s)
	m.recordGroup(ctx, group, late)
	if proof != nil {
		m.put(late, *proof)
	}
}

// put keeps what could not be written, and answers a question of the daemon to itself.
func (m *Manager) put(late *backlog, s submission) {
	if s.proof != nil {
		close(s.proof)
		return
	}
	if len(late.waiting) == 0 {
		m.config.Logger.Error("submissions cannot be written: they wait in memory, and their holds pass", "most", backlogLength)
	}
	for _, gone := range late.add(s) {
		m.drop(gone)
	}
}

// drop gives a submission up: its job starts as it was asked for, and the account of this life shows that a row is missing.
func (m *Manager) drop(s submission) {
	m.dropped.Add(1)
	m.config.Logger.Warn("a submission is not recorded: too many wait to be written", "token", s.job.Token)
	if s.payload != nil {
		m.unreserve()
	}
}

// writeLate tries to write what waits.
func (m *Manager) writeLate(ctx context.Context, late *backlog) {
	failures := 0
	for range len(late.waiting) {
		s := late.waiting[0]
		late.waiting, late.bytes = late.waiting[1:], late.bytes-s.size()
		heartbeat.Of(ctx).Turn()
		if m.record(ctx, s) {
			failures = 0
			continue
		}
		late.waiting, late.bytes = append(late.waiting, s), late.bytes+s.size()
		if failures++; failures == backlogFailures {
			return
		}
	}
	if len(late.waiting) == 0 {
		m.config.Logger.Info("all submissions are written")
	}
}

// writeLast writes down what was promised to the plugin, when the daemon ends.
func (m *Manager) writeLast(ctx context.Context, late *backlog) {
	for {
		select {
		case s := <-m.queue:
			m.writeNow(ctx, s, late)
			continue
		default:
		}
		break
	}
	m.writeLate(ctx, late)
	if n := len(late.waiting); n > 0 {
		m.dropped.Add(int64(n))
		m.config.Logger.Error("submissions are not recorded: the log could not be written until the end", "not_recorded", n)
	}
}

// Backlog is how many submissions wait in memory since the log cannot be written, and how many were given up for that.
func (m *Manager) Backlog() (waiting, dropped int64) { return m.backlogged.Load(), m.dropped.Load() }

// Numbers gives each submission that is answered its number; *decisionlog.Life is the real one.
type Numbers interface {
	Next() (life, number int64)
}

var _ Numbers = (*decisionlog.Life)(nil)
