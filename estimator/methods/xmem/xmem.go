// Package xmem is the method of the paper xMem: the job is run for some iterations on the CPU under PyTorch's profiler, its memory events are paired
// into blocks and attributed, the blocks that a GPU would have are put into the order in which it would have them, and the simulator of the caching
// allocator says what that takes.
//
// The paper's meaning is followed by default; Published does what the published program does, including where that is wrong.
package xmem

import (
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/cpuprofile"
	"github.com/gresize/gresize/estimator/methods/cpuprofile/rebuilt"
	"github.com/gresize/gresize/estimator/trace"
)

// Name and PublishedName are the names in answers.
const (
	Name          = "xmem"
	PublishedName = "xmem-published"
)

// Estimate answers for a bundle in the paper's meaning.
func Estimate(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	return estimate(b, card, Name, cpuprofile.RecordingWhole, sequence)
}

// Published answers as the published program does.
func Published(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	return estimate(b, card, PublishedName, cpuprofile.RecordingPublished, published)
}

func estimate(b *trace.Bundle, card *gpu.Profile, name, recording string, rebuild func(*rebuilt.Profile) []rebuilt.Request) (estimator.Estimate, error) {
	p, why, err := rebuilt.Open(b, recording)
	if err != nil {
		return estimator.Estimate{}, err
	}
	if why != nil {
		return estimator.NewUnknown(name, card.ID, append(slices.Clone(b.Manifest.Reasons), *why)...), nil
	}
	return rebuilt.Answer(p, rebuild(p), b, card)
}

// sequence is what the paper means: parameters and buffers first, as the model brings them to the GPU; then, in the order of the recorded
// iterations, the copies of batches, all that the forward pass, the backward pass and the optimizer made, each until it was freed. Gradients and the
// optimizer's state are blocks like any other: where they live on past an iteration, they were seen to. What only the kernels of the CPU needed, and
// what belongs to the host, is left out.
func sequence(p *rebuilt.Profile) []rebuilt.Request {
	requests := Weights(p)
	for i := range p.Blocks {
		b, at := &p.Blocks[i], &p.Places[i]
		if at.Kind == cpuprofile.Host || at.Scratch || at.Iteration < 0 {
			continue
		}
		requests = append(requests, Seen(b))
	}
	return requests
}

// Weights are the requests of parameters and buffers, before all others.
func Weights(p *rebuilt.Profile) []rebuilt.Request {
	requests := make([]rebuilt.Request, 0, len(p.Report.Weights))
	for i, w := range p.Report.Weights {
		if w.Bytes() > 0 {
			requests = append(requests, rebuilt.Request{Bytes: w.Bytes(), Born: int64(i - len(p.Report.Weights)), Died: cpuprofile.Never})
		}
	}
	return requests
}

// Seen is a block as it lived in the trace, in the order of its events.
func Seen(b *cpuprofile.Block) rebuilt.Request {
	r := rebuilt.Request{Bytes: b.Bytes, Born: int64(b.Birth), Died: cpuprofile.Never}
	if !b.Alive() {
		r.Died = int64(b.Death)
	}
	return r
}
