// Package veritasest is the method of VeritasEst, the predecessor of xMem, for convolutional networks. It shares xMem's profile, its pairing and its
// replay. It sees what leaf modules made, forward and backward, without what was freed before their operators ended; parameters, buffers and the
// state of the optimizer live for ever; temporaries of the optimizer and of functions outside of leaf modules are not in it.
package veritasest

import (
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/cpuprofile"
	"github.com/gresize/gresize/estimator/methods/cpuprofile/rebuilt"
	"github.com/gresize/gresize/estimator/methods/xmem"
	"github.com/gresize/gresize/estimator/trace"
)

// Name is the name in answers.
const Name = "veritasest"

// Estimate answers for a bundle.
func Estimate(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	p, why, err := rebuilt.Open(b, cpuprofile.RecordingWhole)
	if err != nil {
		return estimator.Estimate{}, err
	}
	if why == nil && (!p.Layout.Convolutions || p.Layout.Attention) {
		why = &estimator.Reason{Code: estimator.CodeNotCovered, Detail: "the method is for convolutional networks"}
	}
	if why != nil {
		return estimator.NewUnknown(Name, card.ID, append(slices.Clone(b.Manifest.Reasons), *why)...), nil
	}
	return rebuilt.Answer(p, sequence(p), b, card)
}

func sequence(p *rebuilt.Profile) []rebuilt.Request {
	requests := xmem.Weights(p)
	for i := range p.Blocks {
		b, at := &p.Blocks[i], &p.Places[i]
		if at.Scratch || at.Iteration < 0 || !linked(p, b, at) {
			continue
		}
		requests = append(requests, xmem.Seen(b))
	}
	return requests
}

// linked says whether the method knows whose block it is.
func linked(p *rebuilt.Profile, b *cpuprofile.Block, at *cpuprofile.Place) bool {
	switch at.Kind {
	case cpuprofile.Moved, cpuprofile.Backward:
		return true
	case cpuprofile.OptimizerStep:
		return b.Alive() // state
	case cpuprofile.Forward:
		return at.Leaf >= 0 && b.DiedNanos > p.Trace.Modules[at.Leaf].EndNanos
	}
	return false
}
