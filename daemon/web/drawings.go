package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/logview"
	"github.com/gresize/gresize/estimator/plot"
	"github.com/gresize/gresize/estimator/printable"
	"github.com/gresize/gresize/estimator/trace"
)

const (
	// shownOwners are named below a picture.
	shownOwners = 20
	// maxPictureBytes is far above the picture of any program; one that is larger was made to be so.
	maxPictureBytes = 4 << 20
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

// drawings draws one picture at a time, and keeps the last ones. A bundle comes from a user's process: what it costs to draw is bounded by what may come
// in, and is paid by whoever wants to see it.
type drawings struct {
	bundles Bundles
	busy    sync.Mutex
	mu      sync.Mutex
	kept    map[drawingKey]drawing
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
		drawn, err := d.draw(key, title(story.Job))
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

func (d *drawings) draw(key drawingKey, title string) (_ drawing, err error) {
	defer func() {
		// What a stranger's bundle breaks is its picture.
		if p := recover(); p != nil {
			err = fmt.Errorf("its record cannot be drawn: %v", p)
		}
	}()
	data, err := d.bundles.FindBundle(key.token)
	if err != nil {
		return drawing{}, err
	}
	b, err := trace.Decode(data)
	if err != nil {
		return drawing{}, fmt.Errorf("its record cannot be read: %w", err)
	}
	if key.rank >= len(b.Ranks) {
		return drawing{}, fmt.Errorf("there is no GPU %d in its record, only %d", key.rank, len(b.Ranks))
	}
	figure, err := plot.OfBundle(b, key.rank, "the record")
	if err != nil {
		return drawing{}, err
	}
	figure.Title = title
	var svg bytes.Buffer
	if err := plot.SVG(&svg, figure); err != nil {
		return drawing{}, err
	}
	if svg.Len() > maxPictureBytes {
		return drawing{}, fmt.Errorf("it would have %d bytes, more than %d", svg.Len(), maxPictureBytes)
	}
	drawn := drawing{rank: key.rank, ranks: len(b.Ranks), svg: svg.Bytes(), height: figure.Height(), subtitle: printable.Clip(figure.Subtitle, 300), owners: figure.Owners(shownOwners)}
	for i := range drawn.owners {
		drawn.owners[i].Name = printable.Clip(drawn.owners[i].Name, 200)
	}
	drawn.alt = "The memory of one GPU over the run of the probe, by what it was for. " + drawn.subtitle + ". The table below names the largest owners at the peak."
	return drawn, nil
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
