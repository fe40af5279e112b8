package web

import (
	"context"
	"sync"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/logview"
	"github.com/gresize/gresize/daemon/report"
)

const (
	// summaryDays are summed up above the list, anew after summaryLife. What takes longer than summaryTimeout is left out until it is there.
	summaryDays    = 30
	summaryLife    = time.Minute
	summaryTimeout = 2 * time.Second
)

// summary is what stands above the list.
type summary struct {
	Days                int
	Jobs, Changed, Open int64
	HoursFreed          float64
	// Known ended in a way that is known; Died of them, of memory, on what they had been given.
	Known, Died int64
	Bar         bar
}

// bar is a row of pieces, whose widths are shares of a thousand.
type bar struct{ Pieces []piece }

type piece struct {
	X, Width float64
	Slug     string
	Text     string
	Jobs     int64
	Percent  float64
}

// barOf makes the bar of the outcomes of a report.
func barOf(outcomes []logview.Outcome) (b bar) {
	x := 0.0
	for _, o := range outcomes {
		b.Pieces = append(b.Pieces, piece{X: x, Width: 10 * o.Percent, Slug: o.Slug, Text: o.Text, Jobs: o.Jobs, Percent: o.Percent})
		x += 10 * o.Percent
	}
	return b
}

// cardBar compares the hours of a kind of card that were asked for with those that were needed.
type cardBar struct {
	Kind                    string
	Asked, Needed           float64
	AskedWidth, NeededWidth float64
}

// cardBars are as wide as the largest of them allows.
func cardBars(r report.Report) (bars []cardBar) {
	most := 0.0
	for _, c := range r.Cards {
		most = max(most, c.GPUHoursAsked, c.GPUHoursNeeded)
	}
	for _, c := range r.Cards {
		if most > 0 && (c.GPUHoursAsked > 0 || c.GPUHoursNeeded > 0) {
			bars = append(bars, cardBar{Kind: c.Kind, Asked: c.GPUHoursAsked, Needed: c.GPUHoursNeeded, AskedWidth: 1000 * c.GPUHoursAsked / most, NeededWidth: 1000 * c.GPUHoursNeeded / most})
		}
	}
	return bars
}

// summaries keeps the latest summary, which one reader at a time makes anew.
type summaries struct {
	busy sync.Mutex
	mu   sync.Mutex
	last *summary
	at   time.Time
}

// of is the summary, nil where none can be had in time.
func (k *summaries) of(ctx context.Context, log *decisionlog.Log, words func() map[string]bool, now time.Time) *summary {
	k.mu.Lock()
	last, at := k.last, k.at
	k.mu.Unlock()
	if last != nil && now.Sub(at) < summaryLife || !k.busy.TryLock() {
		return last
	}
	defer k.busy.Unlock()
	ctx, cancel := context.WithTimeout(ctx, summaryTimeout)
	defer cancel()
	filter := decisionlog.Filter{Since: now.AddDate(0, 0, -summaryDays)}
	span, groups, err := log.Groups(ctx, filter)
	if err != nil {
		return last
	}
	truth, err := log.Truth(ctx, filter)
	if err != nil {
		return last
	}
	r := report.Make(span, groups, truth, words())
	s := &summary{Days: summaryDays, Jobs: r.Jobs, HoursFreed: r.Total.GPUHoursFreed, Known: truth.Known, Died: truth.DiedAfterRewrite, Bar: barOf(logview.Outcomes(r))}
	for _, line := range r.Outcomes {
		switch line.Outcome {
		case report.Changed:
			s.Changed += line.Jobs
		case report.Open:
			s.Open += line.Jobs
		}
	}
	k.mu.Lock()
	k.last, k.at = s, now
	k.mu.Unlock()
	return s
}
