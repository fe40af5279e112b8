package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/slurm/wire"
)

// TestWhatWaitsIsBounded: of too many, those that hold nobody go first, and then the oldest.
func TestWhatWaitsIsBounded(t *testing.T) {
	var b backlog
	name := func(i int) string { return fmt.Sprint(i) }
	held := &spool.Job{Script: []byte("#!/bin/sh\n")}
	for i := range backlogLength {
		s := submission{job: decisionlog.Job{Token: name(i)}}
		if i%2 == 1 {
			s.payload = held
		}
		if dropped := b.add(s); len(dropped) != 0 {
			t.Fatalf("%d dropped at %d", len(dropped), i)
		}
	}
	for i := range backlogLength {
		dropped := b.add(submission{job: decisionlog.Job{Token: "new"}, payload: held})
		want := name(2 * i)
		if i >= backlogLength/2 {
			want = name(2*(i-backlogLength/2) + 1)
		}
		if len(dropped) != 1 || dropped[0].job.Token != want {
			t.Fatalf("at %d: dropped %v, want %s", i, dropped[0].job.Token, want)
		}
	}
	large := submission{payload: &spool.Job{Script: make([]byte, backlogBytes/4)}}
	for range 4 {
		b.add(large)
	}
	if b.bytes > backlogBytes || len(b.waiting) != 3 {
		t.Errorf("%d bytes in %d submissions", b.bytes, len(b.waiting))
	}
}

// withoutDisk takes the spool's folder away until it is called back: no script can be spooled.
func (b *bench) withoutDisk() (back func()) {
	b.t.Helper()
	dir := filepath.Join(b.dir, "spool")
	if err := os.Rename(dir, dir+".away"); err != nil {
		b.t.Fatal(err)
	}
	return func() {
		b.t.Helper()
		if err := os.Rename(dir+".away", dir); err != nil {
			b.t.Fatal(err)
		}
	}
}

// TestSubmissionsWaitForTheDisk: what cannot be written is written later, in its order. An error that is over soon costs the held job nothing.
func TestSubmissionsWaitForTheDisk(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	back := b.withoutDisk()
	_, token := b.submit(sample())
	b.until("the error to be seen", func() bool { ok, _ := b.manager.canWrite(); return !ok })
	for range 5 {
		if reply := b.manager.Answer(sample()); reply.Verdict != wire.VerdictPass {
			t.Fatalf("%+v", reply)
		}
	}
	b.until("all to wait", func() bool { waiting, _ := b.manager.Backlog(); return waiting == 6 })
	back()
	// What comes in meanwhile must not put it off.
	alone := sample()
	alone.TresPerNode = "gres:shard:1"
	b.until("all to be written", func() bool {
		b.manager.Answer(alone)
		time.Sleep(20 * time.Millisecond)
		waiting, _ := b.manager.Backlog()
		return waiting == 0
	})
	lines, err := b.log.List(t.Context(), 100, decisionlog.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(lines)
	if lines[0].Job.Token != token {
		t.Error("the first is not the first")
	}
	for _, l := range lines[1:6] {
		if l.Decision == nil || l.Decision.Code != decision.CodeLogUnwritable {
			t.Errorf("row %d: %+v", l.Job.ID, l.Decision)
		}
	}
	b.report(1)
	if _, dropped := b.manager.Backlog(); dropped != 0 {
		t.Errorf("%d were given up", dropped)
	}
}

// TestNobodyIsHeldForADisk: where nothing can be written for some seconds, what is held is let go as its owner asked, once, with a row or without, and the rows say so when they can be written.
func TestNobodyIsHeldForADisk(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	known, withRow := b.submit(sample())
	b.until("a probe", func() bool { return b.story(withRow).Job.State == StateProbing })
	back := b.withoutDisk()
	stranger, withoutRow := b.submit(sample())
	let := func(id uint32) bool {
		b.slurm.mu.Lock()
		defer b.slurm.mu.Unlock()
		return slices.Contains(b.slurm.updates, fmt.Sprintf("1001 %d []", id))
	}
	b.until("both to be let go", func() bool { return let(known) && let(stranger) })
	time.Sleep(1500 * time.Millisecond)
	back()
	for token, id := range map[string]uint32{withRow: known, withoutRow: stranger} {
		b.until("the row", func() bool { return b.story(token).Job.Finished })
		if story := b.ends(token, StateAbandoned, decision.CodeLogUnwritable); story.Job.SlurmJobID != id {
			t.Errorf("job %d of %d", story.Job.SlurmJobID, id)
		}
	}
	b.slurm.mu.Lock()
	if len(b.slurm.updates) != 2 {
		t.Errorf("%q", b.slurm.updates)
	}
	b.slurm.mu.Unlock()
	b.until("jobs to be held again", func() bool { ok, _ := b.manager.canWrite(); return ok })
	b.submit(sample())
}
