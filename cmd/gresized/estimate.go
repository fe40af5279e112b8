package main

import (
	"context"
	"io"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/bundled"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
)

// bundleEstimator hands a bundle to the estimator of the virtual GPU on which it was recorded.
type bundleEstimator struct{}

// Estimate makes the answer for a GPU profile.
func (bundleEstimator) Estimate(_ context.Context, bundle []byte, profile string) (estimator.Estimate, error) {
	card, err := gpu.Load(profile)
	if err != nil {
		return estimator.Estimate{}, err
	}
	b, err := trace.Decode(bundle)
	if err != nil {
		return estimator.Estimate{}, err
	}
	return bundled.VGPU{}.FromBundle(b, card)
}

// checkBundle says what is wrong with a bundle that arrived.
func checkBundle(r io.ReaderAt, size int64) error {
	_, err := trace.Read(r, size)
	return err
}
