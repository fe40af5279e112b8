package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/gresize/gresize/daemon/reader"
	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/internal/printable"
)

// newReader reads bundles with this very program, also after an upgrade has put another one in its place.
func newReader(files *spool.Spool, logger *slog.Logger) *reader.Reader {
	return &reader.Reader{Command: []string{"/proc/self/exe"}, Marks: files, Warn: func(why string) {
		logger.Warn("bundles are read in a process of their own, but without a filter of its system calls", "error", why)
	}}
}

// bundleEstimator has a bundle read by a bundled estimator.
type bundleEstimator struct {
	name   string
	reader *reader.Reader
}

// Estimate makes the answer for a GPU profile.
func (e bundleEstimator) Estimate(ctx context.Context, _ estimator.Job, bundle *os.File, profile string) (estimator.Estimate, error) {
	return estimateBundle(ctx, e.reader, bundle, profile, reader.Question{Method: e.name})
}

func estimateBundle(ctx context.Context, r *reader.Reader, bundle *os.File, profile string, q reader.Question) (estimator.Estimate, error) {
	card, err := gpu.Load(profile)
	if err != nil {
		return estimator.Estimate{}, err
	}
	q.Card = card
	a, err := r.Ask(ctx, bundle, q)
	switch {
	case errors.Is(err, reader.ErrEnded):
		return estimator.NewUnknown(q.Method, card.ID, estimator.Reason{Code: estimator.CodeReaderEnded, Detail: printable.Clip(err.Error(), 500)}), nil
	case err != nil:
		return estimator.Estimate{}, err
	case a.Estimate == nil:
		return estimator.Estimate{}, errors.New("the reader of bundles has no answer")
	}
	return *a.Estimate, nil
}
