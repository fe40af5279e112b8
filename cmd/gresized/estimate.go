package main

import (
	"context"
	"fmt"
	"io"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/capacity"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu"
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
	if b.Manifest.GPU.ID != card.ID {
		return estimator.Estimate{}, fmt.Errorf("recorded on a %q, the job is probed on a %s", b.Manifest.GPU.ID, card.ID)
	}
	e := vgpu.Estimate(b, card)
	capacity.SetMinimum(&e, b)
	return e, nil
}

// checkBundle says what is wrong with a bundle that arrived.
func checkBundle(r io.ReaderAt, size int64) error {
	_, err := trace.Read(r, size)
	return err
}
