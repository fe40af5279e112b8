package layout

import "context"

// skyline fills the pool from the bottom up. At the lowest stretch of the outline, the block first in order among those that live within the stretch
// is put down; when there is none, the stretch is raised to its lower neighbour. Each block costs one question to a tree over (start, end), so a million
// blocks take seconds. It returns nil when ctx ends.
func skyline(ctx context.Context, blocks []Block, o *order, rank []int32) *Layout {
	l := &Layout{Offsets: make([]uint64, len(blocks)), Method: "skyline"}
	if len(blocks) == 0 {
		return l
	}
	tree := newPointTree(o.lives, rank)
	line := outline{parts: make([]stretch, 0, 4*len(blocks))}
	line.link(stretch{from: 0, to: int32(o.moments - 1), next: -1}, -1)
	for left := len(blocks); left > 0; {
		if ctx.Err() != nil {
			return nil
		}
		at := line.pop()
		s := &line.parts[at]
		if s.gone {
			continue
		}
		b := tree.take(s.from, s.to)
		if b < 0 {
			line.raise(at)
			continue
		}
		left--
		l.Offsets[b] = s.height
		line.put(at, o.lives[b], s.height+blocks[b].SizeBytes)
	}
	l.HeightBytes = height(blocks, l.Offsets)
	return l
}

// stretch is a part of the outline: the pool is filled to height from one moment to another.
type stretch struct {
	height     uint64
	from, to   int32
	prev, next int32
	gone       bool
}

// outline is a line of stretches, and a heap of them, the lowest first.
type outline struct {
	parts []stretch
	heap  []low
}

// low is a stretch in the heap.
type low struct {
	height   uint64
	from, at int32
}

func (a low) before(b low) bool {
	return a.height < b.height || a.height == b.height && a.from < b.from
}

func (o *outline) push(l low) {
	o.heap = append(o.heap, l)
	i := len(o.heap) - 1
	for ; i > 0 && l.before(o.heap[(i-1)/2]); i = (i - 1) / 2 {
		o.heap[i] = o.heap[(i-1)/2]
	}
	o.heap[i] = l
}

func (o *outline) pop() (at int32) {
	first, last := o.heap[0], o.heap[len(o.heap)-1]
	o.heap = o.heap[:len(o.heap)-1]
	i := 0
	for {
		next := 2*i + 1
		if next >= len(o.heap) {
			break
		}
		if next+1 < len(o.heap) && o.heap[next+1].before(o.heap[next]) {
			next++
		}
		if !o.heap[next].before(last) {
			break
		}
		o.heap[i] = o.heap[next]
		i = next
	}
	if i < len(o.heap) {
		o.heap[i] = last
	}
	return first.at
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
	o.push(low{s.height, s.from, at})
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

func (o *outline) put(at int32, l life, height uint64) {
	s := o.parts[at]
	left, middle, right := s, s, s
	left.to, right.from = l.from, l.to
	middle.from, middle.to, middle.height = l.from, l.to, height
	o.replace(at, left, middle, right)
}

// pointTree finds the block first in order among those whose life lies within a stretch of time: a k-d tree over (from, to).
type pointTree struct {
	points []point // by place in the tree
	place  []int32 // by rank
	leaf   []int32 // by place: the node that it is in
	first  []int32 // by leaf: the place that it begins with
	nodes  []pointNode
}

type point struct {
	life
	rank, block int32
}

type pointNode struct {
	minFrom, maxFrom, minTo, maxTo int32
	best                           int32 // lowest rank left below
}

const (
	leafSize = 8
	noRank   = int32(1<<31 - 1)
)

func newPointTree(lives []life, rank []int32) *pointTree {
	n := len(lives)
	size := 1
	for leaves := (n + leafSize - 1) / leafSize; size < leaves; size *= 2 {
	}
	t := &pointTree{points: make([]point, n), place: make([]int32, n), leaf: make([]int32, n), first: make([]int32, size+1), nodes: make([]pointNode, 2*size)}
	for i, l := range lives {
		t.points[i] = point{l, rank[i], int32(i)}
	}
	t.build(1, 0, n, true)
	t.first[size] = int32(n)
	for at := range t.points {
		t.place[t.points[at].rank] = int32(at)
	}
	return t
}

func (t *pointTree) build(node, low, high int, byFrom bool) {
	size := len(t.nodes) / 2
	if node >= size {
		n := pointNode{minFrom: noRank, maxFrom: -1, minTo: noRank, maxTo: -1, best: noRank}
		for at := low; at < high; at++ {
			p := &t.points[at]
			n.minFrom, n.maxFrom = min(n.minFrom, p.from), max(n.maxFrom, p.from)
			n.minTo, n.maxTo = min(n.minTo, p.to), max(n.maxTo, p.to)
			n.best = min(n.best, p.rank)
			t.leaf[at] = int32(node)
		}
		t.nodes[node], t.first[node-size] = n, int32(low)
		return
	}
	middle := (low + high) / 2
	divide(t.points[low:high], middle-low, byFrom)
	t.build(2*node, low, middle, !byFrom)
	t.build(2*node+1, middle, high, !byFrom)
	a, b := &t.nodes[2*node], &t.nodes[2*node+1]
	t.nodes[node] = pointNode{min(a.minFrom, b.minFrom), max(a.maxFrom, b.maxFrom), min(a.minTo, b.minTo), max(a.maxTo, b.maxTo), min(a.best, b.best)}
}

// divide puts the points that come first by from, or by to, before the others; equal ones may come on either side.
func divide(points []point, first int, byFrom bool) {
	key := func(p *point) int32 {
		if byFrom {
			return p.from
		}
		return p.to
	}
	for low, high := 0, len(points)-1; low < high; {
		pivot := key(&points[(low+high)/2])
		i, j := low, high
		for i <= j {
			for key(&points[i]) < pivot {
				i++
			}
			for key(&points[j]) > pivot {
				j--
			}
			if i <= j {
				points[i], points[j] = points[j], points[i]
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
func (t *pointTree) take(from, to int32) (block int32) {
	best := noRank
	t.find(1, from, to, &best)
	if best == noRank {
		return -1
	}
	at := t.place[best]
	t.points[at].rank = noRank
	node := t.leaf[at]
	leaf := int(node) - len(t.nodes)/2
	left := noRank
	for _, p := range t.points[t.first[leaf]:t.first[leaf+1]] {
		left = min(left, p.rank)
	}
	t.nodes[node].best = left
	for node /= 2; node > 0 && t.nodes[node].best == best; node /= 2 {
		t.nodes[node].best = min(t.nodes[2*node].best, t.nodes[2*node+1].best)
	}
	return t.points[at].block
}

func (t *pointTree) find(node int, from, to int32, best *int32) {
	n := &t.nodes[node]
	if n.best >= *best || n.maxFrom < from || n.minTo > to {
		return
	}
	if n.minFrom >= from && n.maxTo <= to {
		*best = n.best
		return
	}
	if size := len(t.nodes) / 2; node >= size {
		for _, p := range t.points[t.first[node-size]:t.first[node-size+1]] {
			if p.rank < *best && p.from >= from && p.to <= to {
				*best = p.rank
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
