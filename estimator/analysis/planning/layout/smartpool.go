package layout

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
)

// maxSmartPoolPairs bounds the work of SmartPool, which looks at every pair of blocks that live at one time.
const maxSmartPoolPairs = 1 << 24

// SmartPool is the published offline colouring: blocks by size, the largest first and ties in the order of allocation; each goes into the smallest gap
// that holds it between the placed blocks that live when it does, or on top. The gap below the lowest of them counts too: the published code forgets it.
// It returns nil when there are too many pairs for it, or when ctx ends.
func SmartPool(ctx context.Context, blocks []Block) *Layout {
	return smartPool(ctx, blocks, newOrder(blocks))
}

func smartPool(ctx context.Context, blocks []Block, o *order) *Layout {
	if o.overlappingPairs() > maxSmartPoolPairs {
		return nil
	}
	bySize := make([]keyed, 0, len(blocks))
	for _, e := range o.events {
		if e >= 0 {
			bySize = append(bySize, keyed{^blocks[e].SizeBytes, e})
		}
	}
	l := &Layout{Offsets: make([]uint64, len(blocks)), Method: "SmartPool"}
	index, addresses := newIntervalIndex(o), newAddressOrder(blocks)
	var near []span
	for _, next := range sorted(bySize) {
		if ctx.Err() != nil {
			return nil
		}
		i, size := next.item, blocks[next.item].SizeBytes
		near = index.overlapping(o.lives[i], near[:0])
		var top, at uint64
		gap, found := ^uint64(0), false
		for _, r := range addresses.sort(near) {
			if r.from > top && r.from-top >= size && r.from-top < gap {
				gap, at, found = r.from-top, top, true
			}
			top = max(top, r.to)
		}
		if !found {
			at = top
		}
		l.Offsets[i] = at
		if size > 0 {
			index.add(i, span{at, at + size})
		}
	}
	l.HeightBytes = height(blocks, l.Offsets)
	return l
}

type span struct{ from, to uint64 }

// addressOrder sorts spans by where they begin. An address, without the low bits that are zero in all sizes, and a place in the list share a word: words sort quickly.
type addressOrder struct {
	low, place int // bits; no place: there is no room for it
	words      []uint64
	spans      []span
}

func newAddressOrder(blocks []Block) *addressOrder {
	all, sum := uint64(0), uint64(0)
	for _, b := range blocks {
		all |= b.SizeBytes
		sum += b.SizeBytes
	}
	a := &addressOrder{}
	if place := bits.Len(uint(len(blocks))); all > 0 && bits.Len64(sum)-bits.TrailingZeros64(all)+place <= 64 {
		a.low, a.place = bits.TrailingZeros64(all), place
	}
	return a
}

// sort gives the spans in order, in a list that the next call uses again.
func (a *addressOrder) sort(spans []span) []span {
	if a.place == 0 {
		slices.SortFunc(spans, func(x, y span) int { return cmp.Compare(x.from, y.from) })
		return spans
	}
	a.words, a.spans = a.words[:0], a.spans[:0]
	for i, s := range spans {
		a.words = append(a.words, s.from>>a.low<<a.place|uint64(i))
	}
	slices.Sort(a.words)
	for _, w := range a.words {
		a.spans = append(a.spans, spans[w&(1<<a.place-1)])
	}
	return a.spans
}

// intervalIndex answers which of the blocks added so far live at some time of an interval: a segment tree over the starts.
type intervalIndex struct {
	lives  []life
	begun  []int32 // by moment: how many blocks start before it
	place  []int32 // by block: how many start before it does
	spans  []span  // by place: where it was put
	latest []int32 // by node: the latest end of those added below it
	leaves int
}

// intervalLeaf is how many blocks are looked at one after the other.
const intervalLeaf = 8

func newIntervalIndex(o *order) *intervalIndex {
	n := len(o.lives)
	x := &intervalIndex{lives: o.lives, begun: make([]int32, o.moments+1), place: make([]int32, n), spans: make([]span, n), leaves: intervalLeaf}
	at := int32(0)
	for _, e := range o.events {
		if e >= 0 {
			x.place[e] = at
			at++
			x.begun[o.lives[e].from+1] = at
		}
	}
	for m := 1; m < len(x.begun); m++ {
		x.begun[m] = max(x.begun[m], x.begun[m-1])
	}
	for x.leaves < n {
		x.leaves *= 2
	}
	x.latest = make([]int32, 2*x.leaves)
	for i := range x.latest {
		x.latest[i] = -1
	}
	return x
}

func (x *intervalIndex) add(b int32, where span) {
	x.spans[x.place[b]] = where
	for n := x.leaves + int(x.place[b]); n > 0 && x.latest[n] < x.lives[b].to; n /= 2 {
		x.latest[n] = x.lives[b].to
	}
}

// overlapping appends where each added block with a moment of a life is: those that start before it ends and end after it begins.
func (x *intervalIndex) overlapping(l life, near []span) []span {
	return x.walk(1, 0, x.leaves, int(x.begun[l.to]), l.from, near)
}

func (x *intervalIndex) walk(node, low, high, before int, from int32, near []span) []span {
	if low >= before || x.latest[node] <= from {
		return near
	}
	if high-low == intervalLeaf {
		for at := low; at < min(high, before); at++ {
			if x.latest[x.leaves+at] > from {
				near = append(near, x.spans[at])
			}
		}
		return near
	}
	middle := (low + high) / 2
	near = x.walk(2*node, low, middle, before, from, near)
	return x.walk(2*node+1, middle, high, before, from, near)
}
