package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/daemon/listen"
	"github.com/gresize/gresize/daemon/logview"
	"github.com/gresize/gresize/daemon/reader"
	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/daemon/web"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
)

// page is the page of decisions: its listener, and the log opened for it alone.
type page struct {
	server   *web.Server
	listener net.Listener
	logs     []*decisionlog.Log
}

// daemonParts are what the page tells of the running daemon.
type daemonParts struct {
	version, slurm string
	files          *spool.Spool
	reader         *reader.Reader
	manager        *jobs.Manager
	refused        func() int64
	ready          func(context.Context) error
	words          func() map[string]bool
	logger         *slog.Logger
}

// openPage opens the page that the configuration names, nil where it names none. The bundles of ended jobs are kept for it.
func openPage(ctx context.Context, c *config.Config, d daemonParts) (_ *page, err error) {
	keep := int64(0)
	if c.Web.Listen != "" {
		keep = int64(c.Web.KeepBundles)
	}
	if err := d.files.KeepBundles(keep); err != nil || c.Web.Listen == "" {
		return nil, err
	}
	p := &page{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("web: %w", err), p.Close())
		}
	}()
	for range 2 {
		log, err := decisionlog.OpenReadOnly(ctx, c.Log.Path)
		if err != nil {
			return nil, err
		}
		p.logs = append(p.logs, log)
	}
	if p.listener, err = listen.On(c.Web.Listen); err != nil {
		return nil, err
	}
	p.server = web.New(web.Config{Log: p.logs[0], Sums: p.logs[1], Draw: d.draw, KeepsBundles: keep > 0, Words: d.words, Health: d.health(c), Hosts: c.Web.Hosts, Address: p.listener.Addr(),
		Version: d.version, Logger: d.logger})
	return p, nil
}

// Serve answers until ctx ends.
func (p *page) Serve(ctx context.Context) error { return p.server.Serve(ctx, p.listener) }

// Close ends the use of the log.
func (p *page) Close() error {
	var err error
	if p.listener != nil && p.server == nil {
		err = p.listener.Close()
	}
	for _, log := range p.logs {
		err = errors.Join(err, log.Close())
	}
	return err
}

// draw has the bundle of a job read for a picture.
func (d daemonParts) draw(ctx context.Context, token string, what reader.Draw) (*reader.Drawing, error) {
	bundle, err := d.files.FindBundle(token)
	if err != nil {
		return nil, err
	}
	defer bundle.Close()
	a, err := d.reader.Ask(ctx, bundle, reader.Question{Draw: &what})
	return a.Drawing, err
}

// health is what the daemon says of itself.
func (d daemonParts) health(c *config.Config) func(context.Context) web.Health {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	trouble := seldom(d.ready)
	return func(ctx context.Context) web.Health {
		lines := []logview.StoryLine{
			{Name: "Host", Text: host}, {Name: "gresize", Text: d.version}, {Name: "Slurm", Text: d.slurm}, {Name: "Mode", Text: modeWords[d.manager.Mode()]},
			{Name: "Jobs", Text: fmt.Sprintf("%d looked after, %s out", d.manager.OpenJobs(), quantity.Count(d.manager.OpenProbes(), "probe"))},
			{Name: "Probes", Text: probesWords(d.manager.ProbesFailing())},
			{Name: "Turned away", Text: quantity.Count(d.refused(), "submission") + " passed unchanged since too many were asked about at once"},
			{Name: "Log", Text: c.Log.Path + sizeWords(c.Log.Path)},
		}
		for i := range lines {
			lines[i].Text = printable.Clip(lines[i].Text, logview.MaxTextRunes)
		}
		return web.Health{Trouble: trouble(ctx), Lines: lines}
	}
}

const (
	// healthLife is how long an answer about the daemon's health is good enough, and healthTimeout how long one may take.
	healthLife    = 2 * time.Second
	healthTimeout = 2 * time.Second
)

// seldom asks at most once in healthLife, however many want to know: the question takes the way of a submission.
func seldom(ask func(context.Context) error) func(context.Context) error {
	var mu sync.Mutex
	var at time.Time
	var last error
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at) > healthLife {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healthTimeout)
			last = ask(ctx)
			cancel()
			at = time.Now()
		}
		return last
	}
}

// probesWords say whether jobs are tried.
func probesWords(f jobs.ProbesFailing) string {
	switch {
	case !f.Since.IsZero():
		return fmt.Sprintf("fail since %s, and no job is held: the journal says how the last one ended", f.Since.Local().Format(time.TimeOnly))
	case f.Owners > 0:
		return fmt.Sprintf("work; those of %s fail one after the other, whose jobs are not held", quantity.Count(f.Owners, "owner"))
	}
	return "work, as far as is known"
}

var modeWords = map[jobs.Mode]string{
	jobs.Off: "off: every job passes", jobs.Shadow: "shadow: jobs are tried out and recorded, none is changed", jobs.Enforce: "enforce: jobs are given what they need",
}

// sizeWords is the size of the decision log with what is not yet written back.
func sizeWords(path string) string {
	var sum int64
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(path + suffix); err == nil {
			sum += info.Size()
		}
	}
	return fmt.Sprintf(", %.1f MiB", float64(sum)/(1<<20))
}

// webWords says on what the page is and who can read it, for whoever checks a configuration.
func webWords(c *config.Web) string {
	if path, ok := strings.CutPrefix(c.Listen, "unix:"); ok {
		return fmt.Sprintf("the page is on %s: the daemon's user and group can read it", path)
	}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && !config.Loopback(host) {
		return fmt.Sprintf("warning: the page is on %s: everybody who reaches it reads who submitted what (web.remote)", c.Listen)
	}
	return fmt.Sprintf("the page is on %s: every user of this machine can read who submitted what; a socket, web.listen = \"unix:/run/gresize/web.sock\", is for the daemon's group", c.Listen)
}
