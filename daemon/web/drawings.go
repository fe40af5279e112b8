package web

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/logview"
	"github.com/gresize/gresize/daemon/reader"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/analysis/plot"
	"github.com/gresize/gresize/internal/printable"
)

const (
	// shownOwners are named below a picture.
	shownOwners = 20
	// keptDrawings are not drawn again while the daemon runs.
	keptDrawings = 16
)

// picturePolicy lets a picture that is opened alone use its own sheet, and nothing else.
var picturePolicy = func() string {
	sum := sha256.Sum256([]byte(plot.Style()))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; frame-ancestors 'none'; sandbox"
}()

// drawing is one GPU of one job.
type drawing struct {
	rank, ranks   int
	svg           []byte
	height        int
	subtitle, alt string
	owners        []plot.OwnerLine
}

type drawingKey struct {
	token string
	rank  int
	// sum tells the bundles of one job apart: a job may be tried on several cards.
	sum string
}

// drawings draws one picture at a time, and keeps the last ones.
type drawings struct {
	source Draw
	busy   sync.Mutex
	mu     sync.Mutex
	kept   map[drawingKey]drawing
	// order is the order in which they were drawn.
	order []drawingKey
}

// errBusy says that others are first.
var errBusy = errors.New("it is being drawn, or another one is: load this page again in a moment")

// of draws a GPU of a job, or takes what was drawn; rank -1 is the one that needs the most. It returns when ctx ends, and the picture is there for the next
// who asks.
func (d *drawings) of(ctx context.Context, story decisionlog.Story, rank int) (drawing, error) {
	key := drawingKey{token: story.Job.Token, rank: rank}
	if n := len(story.Probes); n > 0 {
		key.sum = story.Probes[n-1].BundleSHA256
	}
	if rank < 0 && len(story.Estimates) > 0 {
		if largest, ok := story.Estimates[len(story.Estimates)-1].Largest(); ok {
			key.rank = largest.Rank
		}
	}
	key.rank = max(key.rank, 0)
	d.mu.Lock()
	found, ok := d.kept[key]
	d.mu.Unlock()
	if ok {
		return found, nil
	}
	if !d.busy.TryLock() {
		return drawing{}, errBusy
	}
	type result struct {
		drawing drawing
		err     error
	}
	done := make(chan result, 1)
	go func() {
		defer d.busy.Unlock()
		// Whoever does not wait for it has it the next time.
		drawn, err := d.draw(context.WithoutCancel(ctx), key, title(story.Job))
		if err == nil {
			d.keep(key, drawn)
		}
		done <- result{drawn, err}
	}()
	select {
	case r := <-done:
		return r.drawing, r.err
	case <-ctx.Done():
		return drawing{}, errBusy
	}
}

// title is what stands above a picture: the job's command is not for everybody who may read the rows.
func title(j decisionlog.Job) string {
	return printable.Clip(fmt.Sprintf("GPU memory of job %s, %q", logview.JobID(j), j.Name), 120)
}

func (d *drawings) draw(ctx context.Context, key drawingKey, title string) (drawing, error) {
	drawn, err := d.source(ctx, key.token, reader.Draw{Rank: key.rank, Title: title, Owners: shownOwners})
	if err != nil {
		return drawing{}, err
	}
	made := drawing{rank: key.rank, ranks: min(max(drawn.Ranks, 0), estimator.MaxRanks), svg: drawn.SVG, height: drawn.Height, subtitle: printable.Clip(drawn.Subtitle, 300), owners: drawn.Owners}
	made.alt = "The memory of one GPU over the run of the probe, by what it was for. " + made.subtitle + ". The table below names the largest owners at the peak."
	return made, nil
}

func (d *drawings) keep(key drawingKey, drawn drawing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kept == nil {
		d.kept = map[drawingKey]drawing{}
	}
	if len(d.order) >= keptDrawings {
		delete(d.kept, d.order[0])
		d.order = d.order[1:]
	}
	d.kept[key], d.order = drawn, append(d.order, key)
}
