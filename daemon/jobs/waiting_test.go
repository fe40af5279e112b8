package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/launch"
	"github.com/gresize/gresize/slurm/client"
)

// waiting is a manager with so many held jobs that wait for a place, all places taken by probes that never report. Its own loop does not look again.
func waiting(t *testing.T, n int) *bench {
	t.Helper()
	b := newBench(t, Enforce, time.Minute)
	b.slurm.submit = func(r launch.Request) (uint32, error) {
		return b.slurm.add(client.Job{Name: r.Name, UserID: r.UID, State: "PENDING"}), nil
	}
	for i := range n {
		r := sample()
		r.Name = fmt.Sprintf("train-%d", i)
		b.submit(r)
	}
	b.until("all jobs to be found", func() bool {
		b.manager.mu.Lock()
		defer b.manager.mu.Unlock()
		for _, l := range b.manager.open {
			if l.busy || l.job.State != StateFound && l.job.State != StateProbing || l.job.State == StateFound && !l.considered.Equal(l.since) {
				return false
			}
		}
		return len(b.manager.open) == n
	})
	b.manager.Close()
	// Whoever had been chosen for a step when the manager was closed gets none.
	b.manager.mu.Lock()
	defer b.manager.mu.Unlock()
	b.manager.rota = nil
	for _, o := range b.manager.owners {
		o.turns = nil
	}
	for _, l := range b.manager.open {
		l.busy = false
	}
	return b
}

// TestWaitingJobsCostNothingBetweenLooks: between two looks at the queue no job is touched that only waits, and one that waits for a place asks neither the log nor
// the spool again.
func TestWaitingJobsCostNothingBetweenLooks(t *testing.T) {
	const jobs = 40
	b := waiting(t, jobs)
	m := b.manager
	busy := func() (n int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, l := range m.open {
			if l.busy {
				n++
			}
		}
		return n
	}
	m.workers = maxSteps // whoever is chosen for a step has to wait
	m.advanceReady(t.Context(), false)
	if n := busy(); n != 0 {
		t.Errorf("%d of %d waiting jobs were touched", n, jobs)
	}
	// A place that comes free is for one of them.
	m.mu.Lock()
	for _, p := range m.probes {
		m.freeLocked(p)
		break
	}
	m.mu.Unlock()
	m.advanceReady(t.Context(), false)
	if n := busy(); n != 1 {
		t.Errorf("%d jobs for one free place", n)
	}
	m.advanceReady(t.Context(), true)
	if n := busy(); n != jobs {
		t.Errorf("after a look %d of %d jobs were advanced", n, jobs)
	}
	m.wait.Wait()
}
