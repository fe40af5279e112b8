package capacity

import (
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/trace"
)

// minimumOps bounds the search for one rank: a second or two of one core, whoever made the bundle.
const minimumOps = 10_000_000

// SetMinimum fills in the smallest card of each rank whose requests were recorded to the end of a run that was not cut off by the card. A rank whose
// record cannot be replayed goes without: that is one figure less, and no reason to doubt the others.
func SetMinimum(e *estimator.Estimate, b *trace.Bundle) {
	if b.Manifest.Outcome != trace.Stopped && b.Manifest.Outcome != trace.Completed {
		return
	}
	for i := range e.Ranks {
		r := &e.Ranks[i]
		if r.Rank < 0 || r.Rank >= len(b.Ranks) || len(b.Ranks[r.Rank].Events) == 0 {
			continue
		}
		program, err := replay.FromBundle(b, replay.OpenOptions{Device: r.Rank}, b.Manifest.GPU.ID)
		if err != nil {
			continue
		}
		if found, err := Search(program, Options{MaxOps: minimumOps}); err == nil {
			r.MinimumBytes = min(int64(found.MinimumBytes)+r.OutsideBytes, r.ComfortableBytes)
		}
	}
}
