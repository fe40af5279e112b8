package capacity

import (
	"errors"
	"fmt"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/trace"
)

// minimumOps bounds the search for one rank: a second or two of one core, whoever made the bundle.
const minimumOps = 10_000_000

// Complete adds what the record of each rank's requests tells, to the end of a run that was not cut off by the card: the smallest card, and what the rank
// takes where the driver gives addresses in another order. A rank whose record cannot be simulated goes without: that is two figures less, and no reason
// to doubt the others. One that cannot even be read is: whoever wrote it wrote the others.
func Complete(e *estimator.Estimate, b *trace.Bundle) {
	if b.Manifest.Outcome != trace.Stopped && b.Manifest.Outcome != trace.Completed {
		return
	}
	for i := range e.Ranks {
		r := &e.Ranks[i]
		if r.Rank < 0 || r.Rank >= len(b.Ranks) || len(b.Ranks[r.Rank].Events) == 0 {
			continue
		}
		program, err := replay.FromBundle(b, replay.OpenOptions{Device: r.Rank}, b.Manifest.GPU.ID)
		if errors.Is(err, trace.ErrInvalid) {
			e.Confidence = e.Confidence.AtMost(estimator.Low)
			if len(e.Reasons) < estimator.MaxReasons {
				e.Reasons = append(e.Reasons, estimator.Reason{Code: estimator.CodeReportLost, Detail: trace.Clip(fmt.Appendf(nil, "the record of the requests cannot be read: %v", err), estimator.MaxDetailBytes)})
			}
		}
		if err != nil {
			continue
		}
		found, err := Search(program, Options{MaxOps: minimumOps})
		if err != nil {
			continue
		}
		r.MinimumBytes = min(int64(found.MinimumBytes)+r.OutsideBytes, r.ComfortableBytes)
		r.ComfortableHighBytes += moreInAnotherOrder(program, found.ComfortableBytes)
	}
}

// moreInAnotherOrder is by how much the peak is larger than comfortableBytes, that of a driver's order, with addresses that ascend. PyTorch takes the lowest
// of free blocks of one size, so the order in which a driver gives addresses decides which of them is cut up; it was seen on few cards, and one of 61
// transformers that others measured (docs/accuracy/xmem.md) is right with the other order alone.
func moreInAnotherOrder(program *replay.Program, comfortableBytes uint64) int64 {
	res, err := program.Run(replay.RunOptions{CapacityBytes: replay.Unlimited, Policy: allocator.Ascending})
	if err != nil {
		return 0
	}
	return max(0, int64(res.Card.PeakBytes())-int64(comfortableBytes))
}
