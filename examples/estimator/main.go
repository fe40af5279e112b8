// Command estimator is a whole estimator plugin, to start one's own from: it answers the card's own context plus three
// times the largest host memory that the run had, which is a guess, and says so. docs/plugins.md explains it.
package main

import (
	"context"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/contract"
	"github.com/gresize/gresize/estimator/trace"
)

const name = "example"

type example struct{}

func (example) Info() contract.Info { return contract.Info{Name: name, Version: "1.0"} }

func (example) Estimate(_ context.Context, r contract.Request) (estimator.Estimate, error) {
	// The bundle comes from a user's process: trace reads it with limits.
	b, err := trace.ReadFile(r.Bundle)
	if err != nil {
		return estimator.Estimate{}, err
	}
	host := b.Manifest.HostPeakBytes
	if host == 0 {
		// What is not known is an answer with its reason, never a number.
		return estimator.NewUnknown(name, r.GPU.ID, estimator.Reason{Code: "no_host_peak", Detail: "the bundle does not say how much host memory the run took"}), nil
	}
	outside := r.GPU.Context.Bytes
	rank := estimator.Rank{
		PeakAllocatedBytes: 3 * host, PeakReservedBytes: 3 * host, OutsideBytes: outside,
		ComfortableBytes: 3*host + outside, ComfortableHighBytes: 6*host + outside,
	}
	return estimator.Estimate{
		Schema: estimator.SchemaEstimate, Estimator: name, GPU: r.GPU.ID, Ranks: []estimator.Rank{rank}, Confidence: estimator.Low,
		Reasons:  []estimator.Reason{{Code: "example_guess", Detail: "three times the host memory of the run"}},
		Versions: b.Manifest.Versions, Steps: b.Manifest.Steps, Fits: rank.ComfortableHighBytes <= r.GPU.Total.Bytes,
	}, nil
}

func main() { contract.Serve(example{}) }
