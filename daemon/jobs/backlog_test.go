package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

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

// TestSubmissionsWaitForTheDisk: what cannot be written is written later, in its order, and its job is looked after.
func TestSubmissionsWaitForTheDisk(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	dir := filepath.Join(b.dir, "spool")
	// Without its folder no script can be spooled.
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	var tokens []string
	for range 5 {
		_, token := b.submit(sample())
		tokens = append(tokens, token)
	}
	alone := sample()
	alone.TresPerNode = "gres:shard:1"
	if reply := b.manager.Answer(alone); reply.Verdict != wire.VerdictPass {
		t.Fatalf("%+v", reply)
	}
	b.until("all to wait", func() bool { waiting, _ := b.manager.Backlog(); return waiting == 6 })
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	// What comes in meanwhile must not put it off.
	b.until("all to be written", func() bool {
		b.manager.Answer(alone)
		time.Sleep(20 * time.Millisecond)
		waiting, _ := b.manager.Backlog()
		return waiting == 0
	})
	last := int64(0)
	for _, token := range tokens {
		story := b.story(token)
		if story.Job.ID <= last {
			t.Errorf("row %d after %d", story.Job.ID, last)
		}
		last = story.Job.ID
	}
	b.report(1)
	if _, dropped := b.manager.Backlog(); dropped != 0 {
		t.Errorf("%d were given up", dropped)
	}
}
