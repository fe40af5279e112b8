package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/spool"
)

// held is a submission by itself.
func (b *bench) held(token string) submission {
	now := time.Now()
	return submission{job: decisionlog.Job{Token: token, Mode: string(Enforce), State: StateHeld, UID: 1001, SubmittedAt: now, HoldUntil: now.Add(time.Minute), Asked: askedOf(sample())},
		first: decisionlog.Event{At: now, State: StateHeld}, payload: &spool.Job{Script: []byte("#!/bin/sh\n")}}
}

// TestAGroupIsWrittenOrWaits: a group is written as one; where one of it cannot be, none is acted upon, no script is left behind, and the others are written the next time, in their order.
func TestAGroupIsWrittenOrWaits(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	var late backlog
	var group []submission
	for i := range 5 {
		group = append(group, b.held(fmt.Sprintf("sound%d", i)))
	}
	for _, s := range group {
		b.manager.reserve(s.job.UID, s.payload.Bytes())
	}
	b.manager.recordGroup(t.Context(), group, &late)
	if len(late.waiting) != 0 {
		t.Fatalf("%d of a sound group wait", len(late.waiting))
	}
	for _, s := range group {
		if story := b.story(s.job.Token); story.Job.Token == "" {
			t.Errorf("%s has no row", s.job.Token)
		}
	}

	// The token of the third is in the log already.
	group = []submission{b.held("next0"), b.held("next1"), b.held("sound0"), b.held("next2")}
	for _, s := range group {
		b.manager.reserve(s.job.UID, s.payload.Bytes())
	}
	b.manager.recordGroup(t.Context(), group, &late)
	if len(late.waiting) != 4 {
		t.Fatalf("%d wait, want all four", len(late.waiting))
	}
	for _, token := range []string{"next0", "next1", "next2"} {
		if _, err := b.log.StoryByToken(t.Context(), token); err == nil {
			t.Errorf("%s has a row", token)
		}
		if _, err := b.manager.config.Spool.Job(token); err == nil {
			t.Errorf("the script of %s is left", token)
		}
	}
	// What comes now waits behind them.
	b.manager.reserve(1001, 0)
	b.manager.recordGroup(t.Context(), []submission{b.held("last")}, &late)
	b.manager.writeLate(t.Context(), &late)
	if len(late.waiting) != 1 || late.waiting[0].job.Token != "sound0" {
		t.Fatalf("%d wait, want the one with the token of another", len(late.waiting))
	}
	before := int64(0)
	for _, token := range []string{"next0", "next1", "next2", "last"} {
		story := b.story(token)
		if story.Job.ID <= before {
			t.Errorf("%s has row %d after %d", token, story.Job.ID, before)
		}
		before = story.Job.ID
		if _, err := b.manager.config.Spool.Job(token); err != nil {
			t.Error(err)
		}
	}
}

// TestGroupsAreFair: a group has one submission of each owner in turn, and is no longer than its bound; those of one owner keep their order.
func TestGroupsAreFair(t *testing.T) {
	queue := make(chan submission, queueLength)
	for i := range 2 * groupLength {
		queue <- submission{job: decisionlog.Job{UID: mallory, Number: int64(i)}}
	}
	queue <- submission{proof: make(chan struct{})}
	queue <- submission{job: decisionlog.Job{UID: alice, Number: 1000}}
	queue <- submission{job: decisionlog.Job{UID: alice, Number: 1001}}
	var in inbox
	in.fill(queue)
	group := in.next()
	if len(group) != groupLength || group[1].job.Number != 1000 || group[3].job.Number != 1001 || group[0].job.Number != 0 || group[2].job.Number != 1 || group[4].job.Number != 2 {
		t.Errorf("%d: %+v", len(group), group[:5])
	}
	if len(in.proofs) != 1 || in.n != groupLength+2 {
		t.Errorf("%d questions, %d left", len(in.proofs), in.n)
	}
	if in.next(); in.n != 2 || len(in.next()) != 2 || in.n != 0 || len(in.rota)+len(in.of) != 0 {
		t.Errorf("%d left, %v", in.n, in.rota)
	}
}
