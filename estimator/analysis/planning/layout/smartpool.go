package layout

import (
	"cmp"
	"context"
	"slices"
)

// maxSmartPoolPairs bounds the work of SmartPool, which looks at every pair of blocks that live at one time.
const maxSmartPoolPairs = 1 << 24

// SmartPool is the published offline colouring: blocks by size, the largest first and ties in the order of allocation; each goes into the smallest gap
// that holds it between the placed blocks that live when it does, or on top. The gap below the lowest of them counts too: the published code forgets it.
// It returns nil when there are too many pairs for it, or when ctx ends.
func SmartPool(ctx context.Context, blocks []Block) *Layout {
	if overlappingPairs(blocks) > maxSmartPoolPairs {
		return nil
	}
	order := make([]int32, len(blocks))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(blocks[b].SizeBytes, blocks[a].SizeBytes), cmp.Compare(blocks[a].Start, blocks[b].Start))
	})
	l := &Layout{Offsets: make([]uint64, len(blocks)), Method: "SmartPool"}
	index := newIntervalIndex(blocks)
	var near []span
	for _, i := range order {
		if ctx.Err() != nil {
			return nil
		}
		b := blocks[i]
		near = near[:0]
		index.overlapping(b.Start, b.End, func(o int32) {
			if at := l.Offsets[o]; blocks[o].SizeBytes > 0 {
				near = append(near, span{at, at + blocks[o].SizeBytes})
			}
		})
		slices.SortFunc(near, func(x, y span) int { return cmp.Compare(x.from, y.from) })
		var top, at uint64
		gap, found := ^uint64(0), false
		for _, r := range near {
			if r.from > top && r.from-top >= b.SizeBytes && r.from-top < gap {
				gap, at, found = r.from-top, top, true
			}
			top = max(top, r.to)
		}
		if !found {
			at = top
		}
		l.Offsets[i] = at
		index.add(i)
	}
	l.HeightBytes = height(blocks, l.Offsets)
	return l
}

// overlappingPairs counts the pairs of blocks that live at one time: for each start, the blocks that are live then.
func overlappingPairs(blocks []Block) (pairs int) {
	starts, ends := make([]int64, len(blocks)), make([]int64, len(blocks))
	for i, b := range blocks {
		starts[i], ends[i] = b.Start, b.End
	}
	slices.Sort(starts)
	slices.Sort(ends)
	ended := 0
	for i, s := range starts {
		for ended < len(ends) && ends[ended] <= s {
			ended++
		}
		pairs += i - ended
	}
	return pairs
}

type span struct{ from, to uint64 }

// intervalIndex answers which of the blocks added so far live at some time of an interval: a segment tree over the starts and a list by node.
type intervalIndex struct {
	blocks []Block
	order  []int32 // blocks by start
	place  []int32 // by block: where it is in order
	latest []int64 // by node: the latest end of those added below it
	leaves int
}

func newIntervalIndex(blocks []Block) *intervalIndex {
	x := &intervalIndex{blocks: blocks, order: make([]int32, len(blocks)), place: make([]int32, len(blocks)), leaves: 1}
	for i := range x.order {
		x.order[i] = int32(i)
	}
	slices.SortFunc(x.order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(blocks[a].Start, blocks[b].Start), cmp.Compare(a, b))
	})
	for at, b := range x.order {
		x.place[b] = int32(at)
	}
	for x.leaves < len(blocks) {
		x.leaves *= 2
	}
	x.latest = make([]int64, 2*x.leaves)
	for i := range x.latest {
		x.latest[i] = -1 << 63
	}
	return x
}

func (x *intervalIndex) add(b int32) {
	for n := x.leaves + int(x.place[b]); n > 0 && x.latest[n] < x.blocks[b].End; n /= 2 {
		x.latest[n] = x.blocks[b].End
	}
}

// overlapping calls see for each added block with a moment in [from, to): those that start before to and end after from.
func (x *intervalIndex) overlapping(from, to int64, see func(b int32)) {
	before, _ := slices.BinarySearchFunc(x.order, to, func(b int32, t int64) int { return cmp.Compare(x.blocks[b].Start, t) })
	x.walk(1, 0, x.leaves, before, from, see)
}

func (x *intervalIndex) walk(node, low, high, before int, from int64, see func(b int32)) {
	if low >= before || x.latest[node] <= from {
		return
	}
	if high-low == 1 {
		see(x.order[low])
		return
	}
	middle := (low + high) / 2
	x.walk(2*node, low, middle, before, from, see)
	x.walk(2*node+1, middle, high, before, from, see)
}
