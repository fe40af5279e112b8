package offload

import (
	"slices"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/analysis/planning"
	"github.com/gresize/gresize/estimator/analysis/planning/layout"
)

// Regions are pieces of memory that the job asks PyTorch's allocator for, and gives back to it, before the program asks for any: from then on the allocator cuts the
// program's blocks out of them, in place of a segment for each size. Which addresses come of it is known, for the allocator is simulated exactly.

const (
	// mostRegions bounds what a plan's file may ask for.
	mostRegions = 8
	// regionRoundBytes is what the segment of a region is rounded up to.
	regionRoundBytes = int64(2) << 20
	// mostOps bounds the requests that are simulated in the search for regions; mostOpsOfPlan where that is made for many plans.
	mostOps       = 2_500_000
	mostOpsOfPlan = 800_000
)

// regionShares are the sums of regions that are tried, as parts of what lives at once; pairShares those that are tried as two regions, too, in steps of which splitSteps is
// the size. Finer ones come last.
var (
	regionShares = []float64{1.04, 1.02, 1.01, 1, 0.98, 0.96, 0.93}
	pairShares   = [][]float64{{1.02, 1, 0.98}, {1.06, 1.04, 1.03, 1.02, 1.01, 1, 0.99, 0.98, 0.97, 0.95}}
	splitSteps   = []float64{0.02, 0.005}
)

// LeastWithRegions is the least that PyTorch's allocator takes for a recorded program, and the regions with which it does; none where none help.
func LeastWithRegions(p *replay.Program, config allocator.Config) (regions []int64, peakBytes int64, err error) {
	regions, f, err := fitRegions(p, config, replay.Unlimited)
	return regions, f.peakBytes, err
}

// inRegions is a program whose first requests are for regions.
func inRegions(p *replay.Program, regions []int64) *replay.Program {
	var first, then []replay.Insertion
	for i, bytes := range regions {
		block := int32(p.Blocks + i)
		first = append(first, replay.Insertion{Op: replay.Op{Kind: replay.OpAlloc, Block: block, Bytes: uint64(bytes)}})
		then = append(then, replay.Insertion{Op: replay.Op{Kind: replay.OpFree, Block: block}})
	}
	return p.Spliced(p.Ops, append(first, then...), p.Blocks+len(regions))
}

// candidates are the regions that are tried for a program of which so much lives at once: one, then two, the more promising first.
func candidates(live int64) (all [][]int64) {
	size := func(share float64) int64 { return int64(share*float64(live)) / regionRoundBytes * regionRoundBytes }
	for _, share := range regionShares {
		all = append(all, []int64{size(share)})
	}
	for i, step := range splitSteps {
		for split := step; split <= 0.5; split += step {
			for _, share := range pairShares[i] {
				all = append(all, []int64{size(share) - size(share*split), size(share * split)})
			}
		}
	}
	return all
}

// fitRegions finds regions for a program on a card that leaves the allocator so much: the first with which it never has to give back what it kept, and on a card
// without a limit those with which it takes least; none where the program does as well without.
func fitRegions(p *replay.Program, config allocator.Config, allocatorBytes int64) (regions []int64, best foreseen, err error) {
	if best, err = run(p, config, allocatorBytes); err != nil || config.ExpandableSegments {
		return nil, best, err // a range of expandable segments is a region already
	}
	limited := allocatorBytes < replay.Unlimited
	if limited && best.roomy {
		return nil, best, nil
	}
	lives, err := planning.OfProgram(p)
	if err != nil {
		return nil, best, err
	}
	capacity, left := allocatorBytes, mostOps
	if limited {
		left = mostOpsOfPlan
	}
	for _, sizes := range candidates(int64(layout.LiveBound(lives.Blocks))) {
		if !limited {
			capacity = best.peakBytes - 1
		}
		if slices.Min(sizes) <= 0 || sizes[0] > capacity {
			continue
		}
		if left < 0 {
			break
		}
		f, err := run(inRegions(p, sizes), config, capacity)
		if err != nil {
			return nil, best, err
		}
		left -= f.ops
		if f.roomy {
			if regions, best = sizes, f; limited {
				break
			}
		}
	}
	return regions, best, nil
}

// run is what PyTorch's allocator does with a program on a card that leaves it so much.
func run(p *replay.Program, config allocator.Config, allocatorBytes int64) (f foreseen, err error) {
	result, err := p.Run(replay.RunOptions{Config: &config, CapacityBytes: uint64(allocatorBytes), StopAtOOM: true})
	if err != nil {
		return f, err
	}
	return foreseen{fits: result.FirstOOM == nil, roomy: result.FirstOOM == nil && result.Stats.Retries == 0, peakBytes: result.Stats.ReservedBytes.All.Peak, ops: result.OpsDone}, nil
}
