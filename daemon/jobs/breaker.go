package jobs

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gresize/gresize/internal/quantity"
)

// Breaker says when probes are taken to fail for a cause that no job can help.
type Breaker struct {
	// InRow failures open it; 0: never. Pause is until one job is tried again, at first; it doubles up to longestPause.
	InRow int
	Pause time.Duration
}

const (
	longestPause = 15 * time.Minute
	// ownerShare of the failures that open it for everybody may be those of one owner: it takes three of them.
	ownerShare = 3
	// maxOwners bounds the owners that are remembered, as many as had a failure since the last success.
	maxOwners = 4096
)

// breaker keeps jobs from being held for probes that fail one after the other: there is one for each owner and one for all. The one for all counts but a third
// of what opens it from the same owner, so that nobody alone can open it; whose trial has failed is not the next one to be tried.
type breaker struct {
	logger *slog.Logger

	mu     sync.Mutex
	all    gate
	owners map[uint32]*gate
	// opened counts how often one was opened.
	opened int64
}

// gate is one breaker.
type gate struct {
	failed int
	// since is when it was opened, zero while it is closed; trialAt is when a job is tried again.
	since, trialAt time.Time
	pause          time.Duration
	// trial is the token of the job that is tried while it is open.
	trial string
	// lost are owners whose trial failed, until when each is not tried again.
	lost map[uint32]time.Time
	why  string
}

func newBreaker(logger *slog.Logger) *breaker {
	return &breaker{logger: logger, owners: map[uint32]*gate{}}
}

// admit says whether the probe of a job makes sense now, and why not. A job that is let through while one is open is the trial, under its token.
func (b *breaker) admit(uid uint32, token string, now time.Time) (why string, admitted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var open []*gate
	for _, g := range []*gate{&b.all, b.owners[uid]} {
		switch {
		case g == nil || g.since.IsZero() || g.trial == token:
		case now.Before(g.trialAt) || g.trial != "" || now.Before(g.lost[uid]):
			return g.words(), false
		default:
			open = append(open, g)
		}
	}
	for _, g := range open {
		g.trial = token
	}
	return "", true
}

// over ends a trial that has told nothing: its job left our hands.
func (b *breaker) over(uid uint32, token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range []*gate{&b.all, b.owners[uid]} {
		if g != nil && g.trial == token {
			g.trial = ""
		}
	}
}

// worked notes that a probe ran and reported.
func (b *breaker) worked(uid uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.all.since.IsZero() {
		b.logger.Info("probes work again: jobs are tried", "failed_since", b.all.since)
	}
	b.all = gate{}
	for other, g := range b.owners {
		// What is wrong with one owner's probes says another owner's nothing; but its failures no longer count for all.
		if g.since.IsZero() || other == uid {
			delete(b.owners, other)
		}
	}
}

// TheLast stands before what is said of the last probe that failed, which may have been another user's.
const TheLast = " (the last: "

// failed notes that a job had no probe, or that its probe was lost or had no sandbox.
func (b *breaker) failed(settings Breaker, uid uint32, token, why string, now time.Time) {
	if settings.InRow <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.owners[uid]
	if own == nil {
		if len(b.owners) >= maxOwners {
			return
		}
		own = &gate{}
		b.owners[uid] = own
	}
	share := max(1, settings.InRow/ownerShare)
	if own.failed++; own.failed <= share {
		b.all.failed++
	}
	if b.note(&b.all, settings, uid, token, why, now) {
		b.logger.Error("probes fail one after the other, of several owners: no job is held for one until a trial works", "failures", b.all.failed, "last", why, "next_trial", b.all.trialAt)
	}
	if b.note(own, settings, uid, token, why, now) {
		b.logger.Warn("the probes of an owner fail one after the other: no job of theirs is held for one until a trial works", "uid", uid, "failures", own.failed, "last", why, "next_trial", own.trialAt)
	}
}

// note opens a gate whose failures are enough, or keeps it open after a trial that failed; it says whether it was opened just now.
func (b *breaker) note(g *gate, settings Breaker, uid uint32, token, why string, now time.Time) bool {
	switch {
	case !g.since.IsZero() && g.trial == token:
		g.trial, g.why = "", why
		g.pause = min(2*g.pause, longestPause)
		if g.lost[uid] = now.Add(longestPause); g != &b.all {
			g.lost[uid] = time.Time{} // there is nobody else to be tried
		}
		g.trialAt = now.Add(g.pause)
		if g == &b.all {
			g.trialAt = now.Add(settings.Pause) // of another owner
		}
	case g.since.IsZero() && g.failed >= settings.InRow:
		b.opened++
		*g = gate{failed: g.failed, since: now, pause: settings.Pause, trialAt: now.Add(settings.Pause), lost: map[uint32]time.Time{}, why: why}
		return true
	}
	return false
}

func (g *gate) words() string {
	return fmt.Sprintf("%s in a row without a report"+TheLast+"%s); one job is tried again from time to time", quantity.Count(g.failed, "probe ended", "probes ended"), shorten(g.why, 300))
}

// ProbesFailing says since when jobs are not held since probes fail, for all owners or for some, and how often that began.
type ProbesFailing struct {
	// Since is zero where they work.
	Since  time.Time
	Why    string
	Owners int
	Opened int64
}

// ProbesFailing is what the breakers say at this moment.
func (m *Manager) ProbesFailing() ProbesFailing {
	b := m.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	f := ProbesFailing{Since: b.all.since, Opened: b.opened}
	if !f.Since.IsZero() {
		f.Why = b.all.words()
	}
	for _, g := range b.owners {
		if !g.since.IsZero() {
			f.Owners++
		}
	}
	return f
}
