package jobs

import (
	"errors"
	"testing"
	"time"

	"github.com/gresize/gresize/slurm/client"
)

// TestAStrangersKeyOpensNothing: whoever knows the name of a probe, which stands in the queue for all to read, can neither read its job nor report for it.
func TestAStrangersKeyOpensNothing(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	_, token := b.submit(sample())
	b.until("a probe to be asked for", func() bool { b.slurm.mu.Lock(); defer b.slurm.mu.Unlock(); return len(b.slurm.asked) == 1 })
	b.slurm.mu.Lock()
	p := b.slurm.asked[0]
	b.slurm.mu.Unlock()
	for name, c := range map[string]struct{ name, key string }{
		"no key":        {p.Name, ""},
		"another key":   {p.Name, p.Key[:len(p.Key)-1] + "!"},
		"another probe": {p.Name + "x", p.Key},
	} {
		if _, err := b.manager.ProbeJob(c.name, c.key); !errors.Is(err, ErrUnknownProbe) {
			t.Errorf("%s: the job was told: %v", name, err)
		}
		if err := b.manager.ProbeBundle(c.name, c.key, []byte("bundle")); !errors.Is(err, ErrUnknownProbe) {
			t.Errorf("%s: the report was taken: %v", name, err)
		}
	}
	if state := b.story(token).Job.State; state != StateProbing {
		t.Errorf("the job is %s", state)
	}
	if _, err := b.manager.ProbeJob(p.Name, p.Key); err != nil {
		t.Errorf("its own key: %v", err)
	}
}

// TestAStrangersTokenIsNotWaitedOn: a stranger who learns a token and puts it on a job of his own, before the real job is seen, gains nothing by it and takes nothing away.
func TestAStrangersTokenIsNotWaitedOn(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	r := sample()
	reply := b.manager.Answer(r)
	held := client.Job{Name: "train", UserID: 2002, State: "PENDING", Reason: "BeginTime", EligibleAt: time.Now().Add(time.Minute), AdminComment: "gresize:v1:" + reply.Token, Request: askedOf(r)}
	b.slurm.add(held)
	b.slurm.mu.Lock()
	before := b.slurm.looks
	b.slurm.mu.Unlock()
	b.until("some looks at the queue", func() bool { b.slurm.mu.Lock(); defer b.slurm.mu.Unlock(); return b.slurm.looks > before+5 })
	held.UserID = 1001
	id := b.slurm.add(held)
	b.until("the job to be found", func() bool { return b.story(reply.Token).Job.SlurmJobID != 0 || b.story(reply.Token).Job.Finished })
	if j := b.story(reply.Token).Job; j.SlurmJobID != id || j.Finished {
		t.Errorf("found job %d in the state %s, want %d", j.SlurmJobID, j.State, id)
	}
}
