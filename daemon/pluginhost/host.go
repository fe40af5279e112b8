// Package pluginhost asks the estimators that a site has named, in its order. One that runs as a plugin is supervised: started when it is
// needed, given a deadline for each call, killed when it breaks its word, restarted with growing pauses, and left alone for a while
// when it keeps dying. Whatever one of them does, the next is asked.
package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/contract"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/internal/printable"
)

// The rules of supervision.
const (
	firstPause = time.Second
	maxPause   = time.Minute
	// breakerDeaths within breakerWindow put a plugin aside for breakerWindow.
	breakerDeaths = 5
	breakerWindow = 5 * time.Minute
	// maxWords of a plugin's fault are kept; no letter takes more than four bytes.
	maxWords = estimator.MaxDetailBytes / 4
)

// Builtin is an estimator of gresize's own. Unlike a plugin it is told which job it is about.
type Builtin interface {
	Estimate(ctx context.Context, job estimator.Job, bundle *os.File, card string) (estimator.Estimate, error)
}

// Entry is one estimator of the site's list. Either Builtin or Command is given.
type Entry struct {
	Name    string
	Builtin Builtin
	Command contract.Command
	// SHA256, when set, is what the plugin's program must hash to, looked at before each start.
	SHA256 string
	// Timeout is the time for one call of a plugin, its start not included.
	Timeout time.Duration
}

// Host asks estimators. Make it with New, end it with Close.
type Host struct {
	entries []Entry
	plugins []*supervised // nil for what is built in
	logger  *slog.Logger
}

// New makes a host. No plugin is started before it is asked.
func New(entries []Entry, logger *slog.Logger) *Host {
	h := &Host{entries: entries, logger: logger}
	for _, e := range entries {
		var p *supervised
		if e.Builtin == nil {
			p = &supervised{entry: e, logger: logger, now: time.Now}
		}
		h.plugins = append(h.plugins, p)
	}
	return h
}

// Close ends all plugins.
func (h *Host) Close() {
	var wait sync.WaitGroup
	for _, p := range h.plugins {
		if p != nil {
			wait.Go(p.close)
		}
	}
	wait.Wait()
}

// Estimate asks one estimator after the other until one knows. Its answer bears a reason for each that was asked in vain. Where none
// knows, the answer is the first unknown one; where none even answers, it is an error.
func (h *Host) Estimate(ctx context.Context, job estimator.Job, bundle *os.File, card string) (estimator.Estimate, error) {
	var unknown *estimator.Estimate
	var inVain []string
	var faults []error
	for i, entry := range h.entries {
		e, err := h.askOne(ctx, i, job, bundle, card)
		if ctx.Err() != nil {
			return estimator.Estimate{}, ctx.Err()
		}
		if err != nil {
			h.logger.Warn("estimator has no answer", "estimator", entry.Name, "gpu", card, "error", err)
			faults = append(faults, fmt.Errorf("%s: %w", entry.Name, err))
			inVain = append(inVain, fmt.Sprintf("%s: %v", entry.Name, err))
			continue
		}
		if e.Confidence != estimator.Unknown {
			return withReasons(e, inVain), nil
		}
		h.logger.Info("estimator does not know", "estimator", entry.Name, "gpu", card, "reason", e.Reasons[0].Code)
		inVain = append(inVain, entry.Name+": unknown, "+e.Reasons[0].Code)
		if unknown == nil {
			unknown = &e
		}
	}
	if unknown == nil {
		return estimator.Estimate{}, errors.Join(faults...)
	}
	if len(h.entries) == 1 {
		return *unknown, nil
	}
	return withReasons(*unknown, inVain), nil
}

func withReasons(e estimator.Estimate, inVain []string) estimator.Estimate {
	for _, text := range inVain {
		if len(e.Reasons) == estimator.MaxReasons {
			break
		}
		// An error quotes what a plugin wrote: whoever reads the log by other means than ours is not to be steered by it.
		e.Reasons = append(e.Reasons, estimator.Reason{Code: estimator.CodeEstimatorFellBack, Detail: printable.Clip(text, maxWords)})
	}
	return e
}

func (h *Host) askOne(ctx context.Context, i int, job estimator.Job, bundle *os.File, card string) (estimator.Estimate, error) {
	if p := h.plugins[i]; p != nil {
		return p.ask(ctx, bundle, card)
	}
	e, err := h.entries[i].Builtin.Estimate(ctx, job, bundle, card)
	if err != nil {
		return estimator.Estimate{}, err
	}
	return e, contract.CheckAnswer(&e, contract.Info{Name: h.entries[i].Name}, e.GPU)
}

// supervised is one plugin over all its lives.
type supervised struct {
	entry  Entry
	logger *slog.Logger
	now    func() time.Time

	mu     sync.Mutex
	client *contract.Client // nil: it does not run
	// bundles is the folder of what it is asked about, while it runs.
	bundles string
	closed  bool
	deaths  []time.Time // of the last breakerWindow
	pause   time.Duration
	resume  time.Time // no start before
}

func (p *supervised) ask(ctx context.Context, bundle *os.File, name string) (estimator.Estimate, error) {
	card, err := gpu.Load(name)
	if err != nil {
		return estimator.Estimate{}, err
	}
	client, err := p.running(ctx)
	if err != nil {
		return estimator.Estimate{}, err
	}
	path, err := p.keepBundle(bundle)
	if err != nil {
		return estimator.Estimate{}, err
	}
	defer os.Remove(path)
	call, cancel := context.WithTimeout(ctx, p.entry.Timeout)
	defer cancel()
	e, err := client.Estimate(call, contract.NewRequest(path, card))
	switch {
	case err == nil:
		p.worked()
	case errors.Is(err, contract.ErrDeadline), errors.Is(err, contract.ErrDied), errors.Is(err, contract.ErrFlood):
		p.died(client, err)
	}
	return e, err
}

// keepBundle writes a bundle where the plugin can read it. A plugin gets a copy of its own, which it cannot spoil for the next.
func (p *supervised) keepBundle(bundle *os.File) (path string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client == nil {
		return "", errors.New("it ended before it was asked")
	}
	f, err := os.CreateTemp(p.bundles, "gresize-*.bundle")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, io.NewSectionReader(bundle, 0, math.MaxInt64))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// running returns the plugin's process, and starts it if need be and if the rules allow.
func (p *supervised) running(ctx context.Context) (*contract.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.New("the host ends")
	}
	if p.client != nil {
		select {
		case <-p.client.Done():
			p.diedLocked(p.client, errors.New("it ended between two calls"))
		default:
			return p.client, nil
		}
	}
	if wait := p.resume.Sub(p.now()); wait > 0 {
		return nil, fmt.Errorf("it died %d times in %s and is not started for another %s", len(p.deaths), breakerWindow, wait.Round(100*time.Millisecond))
	}
	command := p.entry.Command
	var err error
	if command.Path, err = contract.TrustedFile(command.Path, p.entry.SHA256); err != nil {
		return nil, err // no death: it was never alive, and is started as soon as somebody has mended it
	}
	if p.bundles, err = os.MkdirTemp(command.Dir, "gresize-"); err != nil {
		return nil, err
	}
	command.Reads = append(slices.Clone(command.Reads), p.bundles)
	client, err := contract.Start(ctx, command)
	if err == nil && client.Info().Name != p.entry.Name {
		err = fmt.Errorf("it calls itself %q: use that as its name", client.Info().Name)
		client.Kill()
	}
	if err != nil {
		_ = os.RemoveAll(p.bundles) // where it stays, it is empty
		if ctx.Err() == nil {       // a host that ends is no fault of the plugin's
			p.diedLocked(nil, err)
		}
		return nil, err
	}
	p.client = client
	p.logger.Info("estimator started", "estimator", p.entry.Name, "version", client.Info().Version, "contract", client.ContractVersion())
	if missing := client.Unconfined(); len(missing) > 0 {
		p.logger.Warn("estimator has more rights than it needs: this machine cannot take them", "estimator", p.entry.Name, "missing", missing)
	}
	return client, nil
}

func (p *supervised) worked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause = 0
}

func (p *supervised) died(client *contract.Client, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.diedLocked(client, cause)
}

// diedLocked counts a death and says when the next start may be. Of several calls that see one death, the first counts it.
func (p *supervised) diedLocked(client *contract.Client, cause error) {
	if client != nil {
		if p.client != client {
			return
		}
		p.client = nil
		client.Kill()
		_ = os.RemoveAll(p.bundles) // copies of those that it was asked about
	}
	now := p.now()
	for len(p.deaths) > 0 && now.Sub(p.deaths[0]) >= breakerWindow {
		p.deaths = p.deaths[1:]
	}
	p.deaths = append(p.deaths, now)
	if p.pause = min(2*p.pause, maxPause); p.pause == 0 {
		p.pause = firstPause
	}
	p.resume = now.Add(p.pause)
	if len(p.deaths) >= breakerDeaths {
		p.resume = now.Add(breakerWindow)
		p.logger.Error("estimator is put aside: it keeps dying", "estimator", p.entry.Name, "deaths", len(p.deaths), "until", p.resume, "error", cause)
		return
	}
	p.logger.Warn("estimator died", "estimator", p.entry.Name, "next_start_after", p.pause, "error", cause)
}

func (p *supervised) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.client != nil {
		p.client.Close()
		p.client = nil
		_ = os.RemoveAll(p.bundles) // copies of those that it was asked about
	}
}
