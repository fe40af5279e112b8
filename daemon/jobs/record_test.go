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
	for range group {
		b.manager.reserve()
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
	for range group {
		b.manager.reserve()
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
	b.manager.reserve()
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

// TestAQuestionEndsAGroup: what waits behind a question of the daemon to itself is not written before it is answered, and no group is longer than its bound.
func TestAQuestionEndsAGroup(t *testing.T) {
	m := &Manager{queue: make(chan submission, 2*groupLength)}
	proof := make(chan struct{})
	m.queue <- submission{}
	m.queue <- submission{proof: proof}
	for range 2*groupLength - 2 {
		m.queue <- submission{}
	}
	if group, question := m.group(submission{}); len(group) != 2 || question == nil || question.proof != proof {
		t.Errorf("%d and %v", len(group), question)
	}
	if group, question := m.group(submission{}); len(group) != groupLength || question != nil {
		t.Errorf("%d and %v", len(group), question)
	}
	if group, question := m.group(submission{proof: proof}); group != nil || question == nil {
		t.Errorf("%d and %v", len(group), question)
	}
}
