package jobs

import (
	"slices"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/launch"
	"github.com/gresize/gresize/daemon/policy"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/request"
	"github.com/gresize/gresize/slurm/wire"
)

// change puts changed settings in force.
func (b *bench) change(do func(*Settings)) {
	s := *b.manager.settings()
	do(&s)
	b.manager.Configure(s)
}

// TestJobsOutsideTheScope: what is known at submit is never held; what the queue alone knows is let go at once.
func TestJobsOutsideTheScope(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	b.change(func(s *Settings) {
		s.Rules.Scope = policy.Scope{Partitions: policy.Choice{Only: []string{"gpu"}}, Users: policy.Choice{Except: []string{"2002"}}}
	})
	for name, change := range map[string]func(*wire.Request){
		"partition": func(r *wire.Request) { r.Partition = "debug" },
		"user":      func(r *wire.Request) { r.Partition, r.UserID = "gpu", 2002 },
	} {
		r := sample()
		change(r)
		if reply := b.manager.Answer(r); reply.Verdict != wire.VerdictPass {
			t.Errorf("%s: %+v", name, reply)
		}
	}
	id, token := b.submit(sample())
	b.slurm.change(id, func(j *client.Job) { j.Partition = "long" })
	b.ends(token, StateReleased, decision.CodeOutsideScope)
	if len(b.slurm.asked) != 0 || len(b.slurm.updates) != 1 {
		t.Errorf("%d probes and %q", len(b.slurm.asked), b.slurm.updates)
	}
	r := sample()
	r.Partition = "gpu"
	id, token = b.submit(r)
	b.slurm.change(id, func(j *client.Job) { j.Partition = "gpu" })
	b.report(1)
	b.until("the update", func() bool { return b.story(token).Job.State == StateUpdated })
}

// TestAQueueOfProbesDelaysNobodyForLong: neither the wait for a place nor the wait of the probe's own job.
func TestAQueueOfProbesDelaysNobodyForLong(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	b.change(func(s *Settings) { s.Probe.MaxRunning, s.Probe.StartWithin = 1, 200*time.Millisecond })
	b.slurm.submit = func(r launch.Request) (uint32, error) {
		return b.slurm.add(client.Job{Name: r.Name, UserID: r.UID, State: "PENDING", Reason: "Resources"}), nil
	}
	_, first := b.submit(sample())
	b.until("the probe", func() bool { return b.story(first).Job.State == StateProbing })
	_, second := b.submit(sample())
	b.ends(first, StateReleased, decision.CodeProbeQueue)
	b.ends(second, StateReleased, decision.CodeProbeQueue)
	b.until("the first probe to be cancelled", func() bool {
		b.slurm.mu.Lock()
		defer b.slurm.mu.Unlock()
		return len(b.slurm.cancelled) > 0
	})
}

// TestAChangedJobDoesNotWaitForEver: with max_wait it gets its request back, and the log says why; without, it keeps the change.
func TestAChangedJobDoesNotWaitForEver(t *testing.T) {
	for _, limit := range []time.Duration{0, 300 * time.Millisecond} {
		b := newBench(t, Enforce, time.Minute)
		b.change(func(s *Settings) { s.MaxWait = limit })
		id, token := b.submit(sample())
		b.report(1)
		if limit == 0 {
			b.ends(token, StateVerified, decision.CodeWaiting)
			continue
		}
		story := b.ends(token, StateRestored, decision.CodeWaitedTooLong)
		j, err := b.slurm.Job(t.Context(), id)
		if err != nil || !request.Equivalent(j.Request, story.Job.Asked) {
			t.Errorf("the job asks for %s, %v", j.Request, err)
		}
		if n := len(b.slurm.updates); n != 2 {
			t.Errorf("%d updates: %q", n, b.slurm.updates)
		}
	}
}

// TestAReasonThatSaysNothing: where slurmctld never says that no node can run a job, a changed one gets its request back.
func TestAReasonThatSaysNothing(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	id, token := b.submit(sample())
	b.report(1)
	b.until("the update", func() bool { return b.story(token).Job.State == StateUpdated })
	// A busy slurmctld may not have looked at the job for longer than it is watched: that is no reason to let it go.
	b.slurm.change(id, func(j *client.Job) { j.Reason = "None" })
	time.Sleep(4 * b.manager.settings().Watch)
	if state := b.story(token).Job.State; state != StateUpdated {
		t.Fatalf("the job is %s", state)
	}
	b.slurm.change(id, func(j *client.Job) { j.Reason = "InvalidAccount" })
	story := b.ends(token, StateRestored, decision.CodeWaitedTooLong)
	if j, err := b.slurm.Job(t.Context(), id); err != nil || !request.Equivalent(j.Request, story.Job.Asked) {
		t.Errorf("the job asks for %s, %v", j.Request, err)
	}
}

// TestOtherSettingsMeetJobsThatAreHeld: a daemon that is told to be a shadow changes nothing any more, and lets go of what it holds.
func TestOtherSettingsMeetJobsThatAreHeld(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	_, token := b.submit(sample())
	b.until("the probe", func() bool { return b.story(token).Job.State == StateProbing })
	b.change(func(s *Settings) { s.Mode = Shadow })
	b.report(1)
	b.ends(token, StateReleased, decision.CodeSmaller)
	if slices.ContainsFunc(b.slurm.updates, func(u string) bool { return len(u) > len("1001 101 []") }) {
		t.Errorf("changed: %q", b.slurm.updates)
	}
	b.change(func(s *Settings) { s.Mode = Off })
	if reply := b.manager.Answer(sample()); reply.Verdict != wire.VerdictPass {
		t.Errorf("%+v", reply)
	}
}
