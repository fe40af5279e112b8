// Package plugin is a bundled estimator in the terms of the contract: what a host starts and asks like a stranger's.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/contract"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/trace"
)

// Estimator serves one of the bundled methods.
type Estimator struct{ Method bundled.Method }

// Info names the estimator.
func (e Estimator) Info() contract.Info {
	return contract.Info{Name: e.Method.Name, Version: e.Method.Version}
}

// Estimate reads the bundle and answers.
func (e Estimator) Estimate(_ context.Context, r contract.Request) (estimator.Estimate, error) {
	b, err := trace.ReadFile(r.Bundle)
	if errors.Is(err, fs.ErrNotExist) {
		return estimator.Estimate{}, fmt.Errorf("no bundle at %s", r.Bundle)
	}
	if err != nil {
		return estimator.Estimate{}, err
	}
	return e.Method.FromBundle(b, &r.GPU)
}
