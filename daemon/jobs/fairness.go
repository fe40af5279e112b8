package jobs

import (
	"context"
	"fmt"
	"slices"

	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/slurm/wire"
)

// What one owner may take of what all share. Whoever comes later finds room, however many jobs the others have submitted.
const (
	// leastJobs of an owner are looked after while there is a place; beyond them an owner's may be as many as there are free places.
	leastJobs = 64
	// ownerBytes bounds the scripts and environments of one owner in the spool.
	ownerBytes = 64 << 20
	// maxUnseen bounds the submissions of one owner that no job was seen for and that may still come.
	maxUnseen = 256
	// ownerSteps of maxSteps may be one owner's at the same moment.
	ownerSteps = maxSteps - 2
	// maxReadings bounds the bundles that are read at once, ownerReadings those of one owner: each may take a processor and a gigabyte for some time.
	maxReadings, ownerReadings = 2, 1
)

// owner is what one user has in work. It belongs to Manager.mu.
type owner struct {
	jobs, unseen, probes, steps int
	bytes                       int
	// waiting are the jobs that have asked for a place among the probes and got none.
	waiting map[string]bool
	// turns are the jobs that are to be stepped, oldest first.
	turns []*trackedJob
}

// of is the account of a user, which is forgotten by settle when nothing is left in it.
func (m *Manager) of(uid uint32) *owner {
	o := m.owners[uid]
	if o == nil {
		o = &owner{waiting: map[string]bool{}}
		m.owners[uid] = o
	}
	return o
}

func (m *Manager) settle(uid uint32) {
	if o := m.owners[uid]; o != nil && o.jobs == 0 && o.unseen == 0 && o.probes == 0 && o.steps == 0 && o.bytes == 0 && len(o.waiting) == 0 && len(o.turns) == 0 {
		delete(m.owners, uid)
	}
}

// reserve takes a place for a submission, or says why there is none.
func (m *Manager) reserve(uid uint32, bytes int) (why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.settle(uid)
	o, free := m.of(uid), maxOpen-m.inWork
	switch {
	case free <= 0:
		return "too many jobs are being looked after at this moment"
	case o.jobs >= leastJobs && o.jobs >= free:
		return fmt.Sprintf("%d jobs of its owner are being looked after at this moment, as many as may while others are to find room", o.jobs)
	case o.bytes+bytes > ownerBytes:
		return fmt.Sprintf("the scripts and environments of its owner's jobs that are being looked after take %d bytes, at most %d", o.bytes, ownerBytes)
	}
	m.inWork++
	o.jobs++
	o.bytes += bytes
	return ""
}

// bytesOf is what a submission that may be looked after takes in the spool.
func bytesOf(payload *spool.Job) int {
	if payload == nil {
		return 0
	}
	return payload.Bytes()
}

// sizeOf is the same before it is one.
func sizeOf(r *wire.Request) int {
	n := len(r.Script)
	for _, list := range [][]string{r.Argv, r.Environment} {
		for _, entry := range list {
			n += len(entry)
		}
	}
	return n
}

// unreserve gives the place of a submission or of a job back.
func (m *Manager) unreserve(uid uint32, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaveLocked(uid, bytes)
}

// OpenJobs is how many jobs are looked after. Those of which none was seen in the queue are not.
func (m *Manager) OpenJobs() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.open)
	for _, o := range m.owners {
		n -= o.unseen
	}
	return n
}

func (m *Manager) leaveLocked(uid uint32, bytes int) {
	o := m.of(uid)
	m.inWork--
	o.jobs--
	o.bytes -= bytes
	m.settle(uid)
}

// unsee gives the place of a job back that was not seen for some seconds: Slurm has refused it, as a rule. It may still come; said is that it is remembered for that.
func (m *Manager) unsee(l *trackedJob) (remembered bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.of(l.job.UID)
	if o.unseen >= maxUnseen {
		return false
	}
	o.unseen++
	l.unseen = true
	m.leaveLocked(l.job.UID, l.bytes)
	l.bytes = 0
	return true
}

// forgetLocked takes a finished job out of all accounts.
func (m *Manager) forgetLocked(l *trackedJob) {
	delete(m.open, l.job.Token)
	o := m.of(l.job.UID)
	delete(o.waiting, l.job.Token)
	if l.unseen {
		o.unseen--
		m.settle(l.job.UID)
		return
	}
	m.leaveLocked(l.job.UID, l.bytes)
}

// place takes a place among the probes for a job, when it is its owner's turn: no other owner whose jobs wait has fewer probes out, nor, of as many, an account with
// fewer; and a quarter of the places is left to others.
func (m *Manager) place(l *trackedJob, p *probe) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.of(l.job.UID)
	if !m.placeForLocked(l) {
		o.waiting[l.job.Token] = true
		return false
	}
	delete(o.waiting, l.job.Token)
	p.uid, p.account = l.job.UID, l.job.Account
	o.probes++
	m.probes[p.name] = p
	return true
}

// waitNot says that a job waits for a place no longer.
func (m *Manager) waitNot(l *trackedJob) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of(l.job.UID).waiting, l.job.Token)
}

func (m *Manager) placeForLocked(l *trackedJob) bool {
	most := m.settings().Probe.MaxRunning
	mine := m.of(l.job.UID)
	if len(m.probes) >= most || mine.probes >= most-most/4 {
		return false
	}
	for uid, o := range m.owners {
		if uid == l.job.UID || len(o.waiting) == 0 {
			continue
		}
		if o.probes < mine.probes {
			return false
		}
		if o.probes > mine.probes {
			continue
		}
		for token := range o.waiting {
			if other := m.open[token]; other != nil && m.ofAccount(other.job.Account) < m.ofAccount(l.job.Account) {
				return false
			}
			break // one of them stands for its owner
		}
	}
	return true
}

// ofAccount is how many probes of an account are out.
func (m *Manager) ofAccount(account string) (n int) {
	for _, p := range m.probes {
		if p.account == account {
			n++
		}
	}
	return n
}

// freeLocked takes a probe's key out of force.
func (m *Manager) freeLocked(p *probe) {
	if m.probes[p.name] != p {
		return
	}
	delete(m.probes, p.name)
	m.of(p.uid).probes--
	m.settle(p.uid)
}

// beginReading takes a place for reading a bundle, if one is free. endReading gives it back.
func (m *Manager) beginReading(uid uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := 0
	for _, n := range m.readings {
		all += n
	}
	if all >= maxReadings || m.readings[uid] >= ownerReadings {
		return false
	}
	m.readings[uid]++
	return true
}

func (m *Manager) endReading(uid uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.readings[uid]--; m.readings[uid] == 0 {
		delete(m.readings, uid)
	}
	m.poke() // somebody else may wait for the place
}

// advanceReady takes a step with every job after a look at the queue. In between, only with those for which something has changed: a hundred submissions a
// second must not make thousands of others be looked after a hundred times.
func (m *Manager) advanceReady(ctx context.Context, looked bool) {
	m.mu.Lock()
	places := m.settings().Probe.MaxRunning - len(m.probes)
	var ready []*trackedJob
	for _, l := range m.open {
		// The state of a job that is not busy is nobody's at this moment.
		if l.busy || !looked && l.report == nil && (l.job.State != StateFound || places <= 0) {
			continue
		}
		ready = append(ready, l)
	}
	slices.SortFunc(ready, func(a, b *trackedJob) int { return int(min(max(a.job.ID-b.job.ID, -1), 1)) })
	owners := map[uint32]int{}
	for _, l := range ready {
		if !looked && l.report == nil {
			// As many of each owner as there are places: whose turn it is is seen when one is taken.
			if owners[l.job.UID]++; owners[l.job.UID] > places {
				continue
			}
		}
		l.busy = true
		o := m.of(l.job.UID)
		if o.turns = append(o.turns, l); len(o.turns) == 1 {
			m.rota = append(m.rota, l.job.UID)
		}
	}
	more := min(len(ready), maxSteps-m.workers)
	m.workers += max(more, 0)
	m.mu.Unlock()
	for range more {
		m.wait.Go(func() { m.work(ctx) })
	}
}

// work takes steps until none is left, from owner to owner.
func (m *Manager) work(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer func() { m.workers-- }()
	for ctx.Err() == nil {
		l := m.nextLocked()
		if l == nil {
			return
		}
		view := m.lastQueue
		m.mu.Unlock()
		beat := m.config.Heartbeat.Begin("the work on job "+l.job.Token, turn)
		m.step(heartbeat.With(ctx, beat), l, view)
		beat.End()
		m.mu.Lock()
		l.busy = false
		m.of(l.job.UID).steps--
		m.settle(l.job.UID)
	}
}

// nextLocked is the job whose turn it is: the oldest of the owner who has waited longest, and who has not too many in work.
func (m *Manager) nextLocked() *trackedJob {
	for i, uid := range m.rota {
		o := m.of(uid)
		if o.steps >= ownerSteps {
			continue
		}
		l := o.turns[0]
		o.turns = o.turns[1:]
		o.steps++
		m.rota = slices.Delete(m.rota, i, i+1)
		if len(o.turns) > 0 {
			m.rota = append(m.rota, uid)
		}
		return l
	}
	return nil
}
