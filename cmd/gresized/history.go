package main

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/reader"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/methods/history"
)

// historyEstimator is the estimator history with the decision log for its earlier runs: the owner's own on the same card.
type historyEstimator struct {
	log    *decisionlog.Log
	reader *reader.Reader
}

// Estimate answers from what the owner's earlier jobs took, held against the bundle of this one.
func (h historyEstimator) Estimate(ctx context.Context, job estimator.Job, bundle *os.File, profile string) (estimator.Estimate, error) {
	var equal, other []decisionlog.Past
	var err, ofScript error
	if job.Fingerprint != "" {
		equal, err = h.log.PastByFingerprint(ctx, job.UID, job.Fingerprint, history.LatestRows)
	}
	if job.ScriptSHA256 != "" {
		other, ofScript = h.log.PastByScript(ctx, job.UID, job.ScriptSHA256, history.LatestRows)
	}
	if err := errors.Join(err, ofScript); err != nil {
		return estimator.Estimate{}, err
	}
	return estimateBundle(ctx, h.reader, bundle, profile, reader.Question{Method: bundled.HistoryName,
		Earlier: &reader.Earlier{Rows: earlierRuns(equal, other, job, profile), Job: history.Job{Fingerprint: job.Fingerprint, Script: job.ScriptSHA256}}})
}

// earlierRuns are the rows of the log that speak of the card, the latest last. A job that failed for another cause than memory, or of which the end is not
// known, may have ended before it needed what it needs. A trace is compared with traces alone.
func earlierRuns(equal, other []decisionlog.Past, job estimator.Job, profile string) []history.Row {
	var rows []history.Row
	add := func(p decisionlog.Past, fingerprint string) {
		if p.GPU != profile || p.Outcome != decisionlog.Completed && p.Outcome != decisionlog.OutOfMemory {
			return
		}
		r := history.Row{Fingerprint: fingerprint, Script: job.ScriptSHA256, ActualBytes: p.PeakBytes, Died: p.Outcome == decisionlog.OutOfMemory}
		if p.Estimator == bundled.Default {
			r.EstimateBytes = p.EstimateBytes
		}
		rows = append(rows, r)
	}
	for _, p := range slices.Backward(other) {
		if !slices.ContainsFunc(equal, func(e decisionlog.Past) bool { return e.Job == p.Job }) {
			add(p, "another")
		}
	}
	for _, p := range slices.Backward(equal) {
		add(p, job.Fingerprint)
	}
	return rows
}
