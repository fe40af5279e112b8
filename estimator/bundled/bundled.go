// Package bundled has gresize's own estimators in the terms of the contract, so that the daemon asks them in its own process
// and everyone else as a plugin, with the same code.
package bundled

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/capacity"
	"github.com/gresize/gresize/estimator/contract"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu"
)

// VGPU is the estimator of the virtual GPU: it reads what a run of the job itself recorded.
type VGPU struct{}

// Info names the estimator.
func (VGPU) Info() contract.Info { return contract.Info{Name: vgpu.Name, Version: "1"} }

// Estimate reads the bundle and answers.
func (v VGPU) Estimate(_ context.Context, r contract.Request) (estimator.Estimate, error) {
	b, err := trace.ReadFile(r.Bundle)
	if errors.Is(err, fs.ErrNotExist) {
		return estimator.Estimate{}, fmt.Errorf("no bundle at %s", r.Bundle)
	}
	if err != nil {
		return estimator.Estimate{}, err
	}
	return v.FromBundle(b, &r.GPU)
}

// FromBundle answers for a bundle that has been read already. A bundle speaks of the card on which it was recorded and of no other.
func (VGPU) FromBundle(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	if b.Manifest.GPU.ID != card.ID {
		return estimator.Estimate{}, fmt.Errorf("recorded on a %q, the job is probed on a %s", b.Manifest.GPU.ID, card.ID)
	}
	e := vgpu.Estimate(b, card)
	capacity.SetMinimum(&e, b)
	return e, nil
}
