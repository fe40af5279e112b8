// Package actuals owns what is learnt after a job has run: the reports of the
// nodes' Epilogs and of Slurm's accounting become rows of the decision log, a
// job that died of memory on what gresize had given it raises an alarm and may
// be run again as its owner had asked, and the margin of the next decisions
// follows from all of it.
package actuals

import (
	"context"
	"fmt"
	"sync"

	"github.com/gresize/gresize/daemon/calibration"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/policy"
	"github.com/gresize/gresize/estimator"
)

const (
	// learnt actuals are read at the start; older ones are out of every window but that of the rarest groups.
	learnt = 20_000
	// longRunGPUSeconds is how long a run that did not complete must have lasted to say something of the whole job.
	longRunGPUSeconds = 600
)

// Calibrator keeps the margins up to date with the log. It is safe for concurrent use.
type Calibrator struct {
	log *decisionlog.Log

	mu    sync.Mutex
	table *calibration.Table
	last  int64
	// counted are the runs that have said something, and what.
	counted map[run]calibration.Observation
}

type run struct {
	job    int64
	number int
}

// NewCalibrator makes a calibrator that knows what the log knows.
func NewCalibrator(ctx context.Context, log *decisionlog.Log, options calibration.Options) (*Calibrator, error) {
	c := &Calibrator{log: log, table: calibration.New(options), counted: map[run]calibration.Observation{}}
	measured, err := log.LatestMeasured(ctx, learnt)
	if err != nil {
		return nil, fmt.Errorf("learn from earlier jobs: %w", err)
	}
	c.learn(measured)
	return c, nil
}

// Refresh takes up what has been added to the log.
func (c *Calibrator) Refresh(ctx context.Context) error {
	c.mu.Lock()
	last := c.last
	c.mu.Unlock()
	measured, err := c.log.Measured(ctx, last, learnt)
	if err != nil {
		return fmt.Errorf("learn from actuals: %w", err)
	}
	c.learn(measured)
	return nil
}

func (c *Calibrator) learn(measured []decisionlog.Measured) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range measured {
		if m.ID <= c.last {
			continue // another refresh was faster
		}
		c.last = m.ID
		r := run{m.Job, m.Run}
		ratio := float64(m.PeakBytes) / float64(m.EstimateBytes)
		died := m.Outcome == decisionlog.OutOfMemory
		// Sources may speak of the same run: the first that says something counts. That it died is often told after what it took.
		before, told := c.counted[r]
		if told && died && !before.Died {
			c.table.Died(before)
			before.Died = true
			c.counted[r] = before
		}
		if told || !died && m.Outcome != decisionlog.Completed && ratio <= 1 && m.ElapsedGPUSeconds < longRunGPUSeconds {
			continue
		}
		if len(c.counted) > 2*learnt {
			clear(c.counted)
		}
		o := calibration.Observation{Key: calibration.Key{GPU: m.GPU, Estimator: m.Estimator, Confidence: m.Confidence}, Ratio: ratio, Died: died, User: m.UID}
		c.counted[r] = o
		c.table.Add(o)
	}
}

// Margin is what is known of the margin of an estimate, for the policy and for the log.
func (c *Calibrator) Margin(e *estimator.Estimate) (policy.Calibrated, decisionlog.Margin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := calibration.Key{GPU: e.GPU, Estimator: e.Estimator, Confidence: string(e.Confidence)}
	m := c.table.Margin(key)
	known := policy.Calibrated{Worst: c.table.Worst(key)}
	if m.Calibrated {
		known.Ratio = m.Ratio
	}
	return known, decisionlog.Margin{Group: m.Group, Actuals: m.Actuals, Died: m.Died, Ratio: known.Ratio, TargetFailureRate: m.TargetFailureRate}
}
