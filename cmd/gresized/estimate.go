package main

import (
	"context"
	"io"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/bundled"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
)

// bundleEstimator hands a bundle to a bundled estimator.
type bundleEstimator struct{ method bundled.Method }

// Estimate makes the answer for a GPU profile.
func (e bundleEstimator) Estimate(_ context.Context, _ estimator.Job, bundle []byte, profile string) (estimator.Estimate, error) {
	return estimateBundle(e.method, bundle, profile)
}

func estimateBundle(m bundled.Method, bundle []byte, profile string) (estimator.Estimate, error) {
	card, err := gpu.Load(profile)
	if err != nil {
		return estimator.Estimate{}, err
	}
	b, err := trace.Decode(bundle)
	if err != nil {
		return estimator.Estimate{}, err
	}
	return m.FromBundle(b, card)
}

// checkBundle says what is wrong with a bundle that arrived.
func checkBundle(r io.ReaderAt, size int64) error {
	_, err := trace.Read(r, size)
	return err
}
