package jobs

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/launch"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/request"
	"github.com/gresize/gresize/slurm/wire"
)

// counted counts every request to a controller.
type counted struct {
	*cluster
	looks, others atomic.Int64
}

func (c *counted) EachJob(ctx context.Context, each func(client.Job)) error {
	c.looks.Add(1)
	return c.cluster.EachJob(ctx, each)
}

func (c *counted) Job(ctx context.Context, id uint32) (client.Job, error) {
	c.others.Add(1)
	return c.cluster.Job(ctx, id)
}

func (c *counted) Update(ctx context.Context, owner, id uint32, set []request.Assignment, start client.Start) error {
	c.others.Add(1)
	return c.cluster.Update(ctx, owner, id, set, start)
}

func (c *counted) Cancel(ctx context.Context, id uint32) error {
	c.others.Add(1)
	return c.cluster.Cancel(ctx, id)
}

// TestThePollIsOneRequestASecond: 2000 held jobs cost slurmctld what one costs; 300 of them in the test of every change, for each is written to the disk.
func TestThePollIsOneRequestASecond(t *testing.T) {
	const seconds = 4
	held := 300
	if os.Getenv("GRESIZE_NIGHTLY") != "" {
		held = 2000
	}
	for _, jobs := range []int{1, held} {
		b := newBench(t, Enforce, 5*time.Minute)
		b.manager.Close()
		slurm := &counted{cluster: b.slurm}
		config := b.manager.config
		config.Slurm, config.Poll = slurm, 0 // a second, as in the daemon
		b.manager = New(config)
		if err := b.manager.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Their probes wait in the queue.
		b.slurm.submit = func(r launch.Request) (uint32, error) {
			return b.slurm.add(client.Job{Name: r.Name, UserID: r.UID, State: "PENDING", Reason: "Resources"}), nil
		}
		b.change(func(s *Settings) { s.Probe.MaxRunning = 8 })
		var tokens []string
		for range jobs {
			r := sample()
			reply := b.manager.Answer(r)
			for ; reply.Verdict != wire.VerdictHold; reply = b.manager.Answer(r) {
				time.Sleep(5 * time.Millisecond) // faster than the log is written
			}
			tokens = append(tokens, reply.Token)
			b.slurm.add(client.Job{Name: r.Name, UserID: r.UserID, State: "PENDING", Reason: "BeginTime", EligibleAt: time.Now().Add(5 * time.Minute), AdminComment: "gresize:v1:" + reply.Token, Request: askedOf(r)})
		}
		for deadline := time.Now().Add(2 * time.Minute); b.manager.OpenJobs() < jobs || b.story(tokens[jobs-1]).Job.SlurmJobID == 0; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d jobs are looked after", b.manager.OpenJobs(), jobs)
			}
		}
		looks, others, begin := slurm.looks.Load(), slurm.others.Load(), time.Now()
		time.Sleep(seconds * time.Second)
		looks, others = slurm.looks.Load()-looks, slurm.others.Load()-others
		most := int64(time.Since(begin)/time.Second) + 1
		t.Logf("%d held jobs: %d looks and %d other requests in %s", jobs, looks, others, time.Since(begin).Round(time.Millisecond))
		if looks < 1 || looks > most || others != 0 {
			t.Errorf("%d held jobs cost %d looks, at most %d are allowed, and %d other requests", jobs, looks, most, others)
		}
		if n := b.manager.OpenJobs(); n != jobs {
			t.Errorf("%d jobs are looked after, want %d", n, jobs)
		}
	}
}

// TestNobodyIsHeldUnseen: while no look at the queue is answered no job would be found, so none is held for it; as soon as one is, all are.
func TestNobodyIsHeldUnseen(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	long := time.Now().Add(-blindPatience - time.Second)
	down := func(down bool) {
		b.slurm.mu.Lock()
		b.slurm.down = down
		b.slurm.mu.Unlock()
	}
	down(true)
	if reply := b.manager.Answer(sample()); reply.Verdict != wire.VerdictHold {
		t.Fatalf("a look that nobody has made yet: %+v", reply)
	}
	b.until("a look that is not answered", func() bool { return b.manager.blindSince.Load() != nil })
	if reply := b.manager.Answer(sample()); reply.Verdict != wire.VerdictHold {
		t.Errorf("slurmctld may be back in a moment: %+v", reply)
	}
	b.manager.blindSince.Store(&long)
	if reply := b.manager.Answer(sample()); reply.Verdict != wire.VerdictPass {
		t.Errorf("held unseen: %+v", reply)
	}
	b.until("its row", func() bool {
		lines, err := b.log.List(t.Context(), 1, decisionlog.Filter{})
		return err == nil && len(lines) == 1 && lines[0].Decision != nil && lines[0].Decision.Code == decision.CodeQueueUnreadable
	})
	down(false)
	b.until("a look that is answered", func() bool { return b.manager.blindSince.Load() == nil })
	if reply := b.manager.Answer(sample()); reply.Verdict != wire.VerdictHold {
		t.Errorf("seen again: %+v", reply)
	}
}
