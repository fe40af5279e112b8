package layout

import (
	"container/heap"
	"context"
	"slices"
)

// skyline fills the pool from the bottom up. At the lowest stretch of the outline, the block first in order among those that live within the stretch
// is put down; when there is none, the stretch is raised to its lower neighbour. Each block costs one question to a tree over (start, end), so a million
// blocks take seconds. It returns nil when ctx ends.
func skyline(ctx context.Context, blocks []Block, rank []int32) *Layout {
	l := &Layout{Offsets: make([]uint64, len(blocks)), Method: "skyline"}
	if len(blocks) == 0 {
		return l
	}
	tree := newPointTree(blocks, rank)
	first := stretch{from: blocks[0].Start, to: blocks[0].End, prev: -1, next: -1}
	for _, b := range blocks {
		first.from, first.to = min(first.from, b.Start), max(first.to, b.End)
	}
	o := outline{parts: []stretch{first}}
	heap.Push(&o, int32(0))
	for left := len(blocks); left > 0; {
		if ctx.Err() != nil {
			return nil
		}
		at := heap.Pop(&o).(int32)
		s := o.parts[at]
		if s.gone {
			continue
		}
		b := tree.take(s.from, s.to)
		if b < 0 {
			o.raise(at)
			continue
		}
		left--
		l.Offsets[b] = s.height
		o.put(at, blocks[b].Start, blocks[b].End, s.height+blocks[b].SizeBytes)
	}
	l.HeightBytes = height(blocks, l.Offsets)
	return l
}

// stretch is a part of the outline: the pool is filled to height from one time to another.
type stretch struct {
	from, to   int64
	height     uint64
	prev, next int32
	gone       bool
}

// outline is a heap of stretches, the lowest first.
type outline struct {
	parts []stretch
	heap  []int32
}

func (o *outline) Len() int { return len(o.heap) }
func (o *outline) Less(i, j int) bool {
	a, b := &o.parts[o.heap[i]], &o.parts[o.heap[j]]
	return a.height < b.height || a.height == b.height && a.from < b.from
}
func (o *outline) Swap(i, j int) { o.heap[i], o.heap[j] = o.heap[j], o.heap[i] }
func (o *outline) Push(x any)    { o.heap = append(o.heap, x.(int32)) }
func (o *outline) Pop() any {
	last := o.heap[len(o.heap)-1]
	o.heap = o.heap[:len(o.heap)-1]
	return last
}

// replace puts new stretches where one was.
func (o *outline) replace(at int32, parts ...stretch) {
	prev, next := o.parts[at].prev, o.parts[at].next
	o.parts[at].gone = true
	for _, s := range parts {
		if s.from >= s.to {
			continue
		}
		if prev >= 0 && o.parts[prev].height == s.height { // the heap holds stretches by number: a longer one is a new one
			s.from = o.parts[prev].from
			o.parts[prev].gone = true
			prev = o.parts[prev].prev
		}
		prev = o.link(s, prev)
	}
	if next >= 0 && prev >= 0 && o.parts[prev].height == o.parts[next].height {
		s := o.parts[prev]
		s.to = o.parts[next].to
		o.parts[prev].gone, o.parts[next].gone = true, true
		prev, next = o.link(s, s.prev), o.parts[next].next
	}
	if prev >= 0 {
		o.parts[prev].next = next
	}
	if next >= 0 {
		o.parts[next].prev = prev
	}
}

func (o *outline) link(s stretch, prev int32) int32 {
	s.prev, s.next, s.gone = prev, -1, false
	o.parts = append(o.parts, s)
	at := int32(len(o.parts) - 1)
	if prev >= 0 {
		o.parts[prev].next = at
	}
	heap.Push(o, at)
	return at
}

func (o *outline) raise(at int32) {
	s := o.parts[at]
	lower := ^uint64(0)
	if s.prev >= 0 {
		lower = min(lower, o.parts[s.prev].height)
	}
	if s.next >= 0 {
		lower = min(lower, o.parts[s.next].height)
	}
	s.height = lower
	o.replace(at, s)
}

func (o *outline) put(at int32, from, to int64, height uint64) {
	s := o.parts[at]
	left, middle, right := s, s, s
	left.to, right.from = from, to
	middle.from, middle.to, middle.height = from, to, height
	o.replace(at, left, middle, right)
}

// pointTree finds the block first in order among those whose life lies within a stretch of time: a k-d tree over (start, end).
type pointTree struct {
	blocks []Block
	rank   []int32
	items  []int32 // by place in the tree
	nodes  []pointNode
}

type pointNode struct {
	minStart, maxStart, minEnd, maxEnd int64
	best                               int32 // lowest rank left below
}

const (
	leafSize = 8
	noRank   = int32(1<<31 - 1)
)

func newPointTree(blocks []Block, rank []int32) *pointTree {
	t := &pointTree{blocks: blocks, rank: slices.Clone(rank), items: make([]int32, len(blocks))}
	for i := range t.items {
		t.items[i] = int32(i)
	}
	size := 1
	for leaves := (len(blocks) + leafSize - 1) / leafSize; size < leaves; size *= 2 {
	}
	t.nodes = make([]pointNode, 2*size)
	t.build(1, 0, len(blocks), true)
	return t
}

func (t *pointTree) build(node, from, to int, byStart bool) {
	n := pointNode{minStart: 1<<63 - 1, maxStart: -1 << 63, minEnd: 1<<63 - 1, maxEnd: -1 << 63, best: noRank}
	for _, i := range t.items[from:to] {
		b := &t.blocks[i]
		n.minStart, n.maxStart = min(n.minStart, b.Start), max(n.maxStart, b.Start)
		n.minEnd, n.maxEnd = min(n.minEnd, b.End), max(n.maxEnd, b.End)
		n.best = min(n.best, t.rank[i])
	}
	t.nodes[node] = n
	if 2*node >= len(t.nodes) {
		return
	}
	middle := (from + to) / 2
	divide(t.items[from:to], middle-from, func(i int32) int64 {
		if byStart {
			return t.blocks[i].Start
		}
		return t.blocks[i].End
	})
	t.build(2*node, from, middle, !byStart)
	t.build(2*node+1, middle, to, !byStart)
}

// divide puts the first items by a key before the others; equal ones may come on either side.
func divide(items []int32, first int, key func(int32) int64) {
	for low, high := 0, len(items)-1; low < high; {
		pivot := key(items[(low+high)/2])
		i, j := low, high
		for i <= j {
			for key(items[i]) < pivot {
				i++
			}
			for key(items[j]) > pivot {
				j--
			}
			if i <= j {
				items[i], items[j] = items[j], items[i]
				i++
				j--
			}
		}
		switch {
		case first <= j:
			high = j
		case first >= i:
			low = i
		default:
			return
		}
	}
}

// take removes the block first in order that lives within [from, to), or returns -1.
func (t *pointTree) take(from, to int64) int32 {
	best := noRank
	t.find(1, from, to, &best)
	if best == noRank {
		return -1
	}
	return t.remove(1, 0, len(t.items), from, to, best)
}

func (t *pointTree) find(node int, from, to int64, best *int32) {
	n := &t.nodes[node]
	if n.best >= *best || n.maxStart < from || n.minEnd > to {
		return
	}
	if n.minStart >= from && n.maxEnd <= to {
		*best = n.best
		return
	}
	if 2*node >= len(t.nodes) {
		low, high := t.leaf(node)
		for _, i := range t.items[low:high] {
			if t.rank[i] < *best && t.blocks[i].Start >= from && t.blocks[i].End <= to {
				*best = t.rank[i]
			}
		}
		return
	}
	a, b := 2*node, 2*node+1
	if t.nodes[b].best < t.nodes[a].best {
		a, b = b, a
	}
	t.find(a, from, to, best)
	t.find(b, from, to, best)
}

// leaf gives the items of a leaf, by walking the halvings that made it.
func (t *pointTree) leaf(node int) (low, high int) {
	low, high = 0, len(t.items)
	depth := 0
	for n := node; n > 1; n /= 2 {
		depth++
	}
	for d := depth - 1; d >= 0; d-- {
		middle := (low + high) / 2
		if node>>d&1 == 0 {
			high = middle
		} else {
			low = middle
		}
	}
	return low, high
}

func (t *pointTree) remove(node, low, high int, from, to int64, rank int32) int32 {
	n := &t.nodes[node]
	if n.best > rank || n.maxStart < from || n.minEnd > to {
		return -1
	}
	if 2*node >= len(t.nodes) {
		found := int32(-1)
		n.best = noRank
		for _, i := range t.items[low:high] {
			if t.rank[i] == rank && found < 0 {
				found, t.rank[i] = i, noRank
			}
			n.best = min(n.best, t.rank[i])
		}
		return found
	}
	middle := (low + high) / 2
	found := t.remove(2*node, low, middle, from, to, rank)
	if found < 0 {
		found = t.remove(2*node+1, middle, high, from, to, rank)
	}
	n.best = min(t.nodes[2*node].best, t.nodes[2*node+1].best)
	return found
}
