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
	return n + s.payload.Bytes()
}

// write makes submissions durable. Only then is a job looked after: a row comes before any action. What cannot be written waits.
func (m *Manager) write(ctx context.Context) {
	beat := m.config.Heartbeat.Begin("the writer of submissions", turn)
	defer beat.End()
	writing := heartbeat.With(ctx, beat)
	var late backlog
	var in inbox
	more := make(chan struct{})
	close(more)
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
		var again <-chan struct{}
		if in.n > 0 {
			again = more
		}
		select {
		case <-ctx.Done():
			m.writeLast(context.WithoutCancel(writing), &in, &late)
			return
		case <-retry:
			beat.Turn()
			m.writeLate(writing, &late)
			retry = nil
		case <-again:
			beat.Turn()
			m.writeNow(writing, &in, &late)
		case s := <-m.queue:
			beat.Turn()
			// What is late goes first.
			in.add(s)
			m.writeNow(writing, &in, &late)
		}
		m.backlogged.Store(int64(len(late.waiting)))
	}
}

// writeNow writes the next group of what waits.
func (m *Manager) writeNow(ctx context.Context, in *inbox, late *backlog) {
	in.fill(m.queue)
	m.recordGroup(ctx, in.next(), late)
	for _, proof := range in.proofs {
		close(proof.proof)
	}
	in.proofs = nil
}

// put keeps what could not be written.
func (m *Manager) put(late *backlog, s submission) {
	m.notWritten()
	m.strand(s)
	if len(late.waiting) == 0 {
		m.config.Logger.Error("submissions cannot be written: they wait in memory, no job is held, and jobs that are held start as submitted", "most", backlogLength)
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
		m.unreserve(s.job.UID, s.payload.Bytes())
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
func (m *Manager) writeLast(ctx context.Context, in *inbox, late *backlog) {
	for in.fill(m.queue); in.n > 0 || len(in.proofs) > 0; {
		m.writeNow(ctx, in, late)
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
