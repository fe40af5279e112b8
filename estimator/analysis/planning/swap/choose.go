package swap

import (
	"context"
	"slices"

	"github.com/gresize/gresize/estimator/analysis/planning/layout"
)

// chooser takes absences one after the other: at the highest load, the one with the best score of those that lower it. The cost of a choice grows with the
// logarithm of the steps: absences hang at the nodes of a tree over the steps that they cover whole, the best first, and loads are kept in a second tree.
type chooser struct {
	all   []Absence
	load  *overTree
	size  int         // leaves of the tree of absences
	from  []int32     // by node: where its heap begins
	end   []int32     // by node: where what is left of it ends
	heap  heap[entry] // absences by node
	score []float64   // by absence: its score when it was last looked at; it never rises
	round []int32     // by absence: the choice for which it was last looked at
	taken []bool
}

// newChooser hangs absences up by their scores.
func newChooser(s *situation, scores []float64) *chooser {
	all := s.absences
	c := &chooser{all: all, load: newOverTree(s.load, s.job.StepNanos, s.target), size: 1, score: scores, round: make([]int32, len(all)), taken: make([]bool, len(all))}
	for c.size < len(s.load) {
		c.size *= 2
	}
	order := layout.ByFalling(scores)
	c.from = make([]int32, 2*c.size+1)
	for _, i := range order {
		c.nodes(all[i], func(node int) { c.from[node+1]++ })
	}
	for n := 1; n < len(c.from); n++ {
		c.from[n] += c.from[n-1]
	}
	c.end = slices.Clone(c.from[:2*c.size])
	c.heap = make(heap[entry], c.from[2*c.size])
	for _, i := range order { // in order, so that each part is a heap
		c.nodes(all[i], func(node int) {
			c.heap[c.end[node]] = entry{scores[i], i}
			c.end[node]++
		})
	}
	return c
}

// nodes are those that an absence covers whole, the largest.
func (c *chooser) nodes(a Absence, see func(node int)) {
	for low, high := int(a.From)+1+c.size, int(a.To)+c.size; low < high; low, high = low/2, high/2 {
		if low&1 == 1 {
			see(low)
			low++
		}
		if high&1 == 1 {
			high--
			see(high)
		}
	}
}

// entry is an absence at a node, with its score when the node's heap last saw it.
type entry struct {
	score   float64
	absence int32
}

func (e entry) before(other entry) bool {
	return e.score > other.score || e.score == other.score && e.absence < other.absence
}

// best is the absence at a step that comes first, by the scores as they were when they were last looked at; -1 without any.
func (c *chooser) best(step int32) int32 {
	found := entry{absence: -1}
	for node := int(step) + c.size; node > 0; node /= 2 {
		first, ok := c.first(node)
		if ok && (found.absence < 0 || first.before(found)) {
			found = first
		}
	}
	return found.absence
}

// first is what leads a node's heap, once what was taken has left it and what has fallen since has gone down.
func (c *chooser) first(node int) (entry, bool) {
	for c.end[node] > c.from[node] {
		first := &c.heap[c.from[node]]
		switch {
		case c.taken[first.absence]:
			c.end[node]--
			*first = c.heap[c.end[node]]
		case first.score != c.score[first.absence]:
			first.score = c.score[first.absence]
		default:
			return *first, true
		}
		if c.end[node] > c.from[node] {
			c.heap[c.from[node]:c.end[node]].sink()
		}
	}
	return entry{}, false
}

// take chooses until the load is nowhere above the target, nothing lowers its peak, or ctx ends. rescore, where it is not nil, is the score of an absence with
// the load that is left.
func (c *chooser) take(ctx context.Context, s *situation, rescore func(a Absence, weight float64) float64) (chosen []Absence) {
	for round := int32(1); ctx.Err() == nil && len(s.load) > 0; round++ {
		peak, load := c.load.peak()
		if load <= s.target {
			break
		}
		best := c.best(peak)
		for ; best >= 0 && rescore != nil && c.round[best] != round; best = c.best(peak) {
			a := c.all[best]
			c.round[best] = round
			c.score[best] = min(c.score[best], rescore(a, c.load.weight(int(a.From)+1, int(a.To))))
		}
		if best < 0 {
			break
		}
		a := c.all[best]
		c.taken[best] = true
		chosen = append(chosen, a)
		c.load.lower(int(a.From)+1, int(a.To), int64(s.job.Blocks[a.Block].SizeBytes))
	}
	return chosen
}

// overTree holds a load by step that only falls, and how far it is over a target: the sum over steps of what is above, times the time of the step.
type overTree struct {
	size   int
	target int64
	nodes  []overNode
	nanos  []int64
}

// overNode sums up the steps below it.
type overNode struct {
	most, fallen int64 // the highest load; what is still to be taken off below
	least        int64 // the lowest load that is over the target
	over, nanos  float64
}

const nothingOver = int64(1)<<62 - 1

func newOverTree(load, nanos []int64, target int64) *overTree {
	t := &overTree{size: 1, target: target, nanos: nanos}
	for t.size < len(load) {
		t.size *= 2
	}
	t.nodes = make([]overNode, 2*t.size)
	for i := range t.nodes {
		t.nodes[i] = overNode{most: -nothingOver, least: nothingOver}
	}
	for i, l := range load {
		n := &t.nodes[t.size+i]
		n.most = l
		if l > target {
			n.least, n.over, n.nanos = l, float64(l-target)*float64(nanos[i]), float64(nanos[i])
		}
	}
	for i := t.size - 1; i > 0; i-- {
		t.pull(i)
	}
	return t
}

func (t *overTree) pull(node int) {
	a, b, n := &t.nodes[2*node], &t.nodes[2*node+1], &t.nodes[node]
	n.most, n.least, n.over, n.nanos = max(a.most, b.most), min(a.least, b.least), a.over+b.over, a.nanos+b.nanos
}

// fall takes bytes off a node of which no step comes to the target by that, or has been there before.
func (n *overNode) fall(bytes int64) {
	n.most -= bytes
	n.fallen += bytes
	if n.least != nothingOver {
		n.least -= bytes
		n.over -= float64(bytes) * n.nanos
	}
}

func (t *overTree) push(node int) {
	if n := &t.nodes[node]; n.fallen != 0 {
		t.nodes[2*node].fall(n.fallen)
		t.nodes[2*node+1].fall(n.fallen)
		n.fallen = 0
	}
}

// peak is the first step of the highest load.
func (t *overTree) peak() (step int32, load int64) {
	node := 1
	for node < t.size {
		t.push(node)
		if node *= 2; t.nodes[node].most < t.nodes[node+1].most {
			node++
		}
	}
	return int32(node - t.size), t.nodes[node].most
}

// lower takes bytes off steps from one to before another.
func (t *overTree) lower(from, to int, bytes int64) { t.lowerAt(1, 0, t.size, from, to, bytes) }

func (t *overTree) lowerAt(node, low, high, from, to int, bytes int64) {
	n := &t.nodes[node]
	if to <= low || high <= from {
		return
	}
	if from <= low && high <= to && (n.least == nothingOver || n.least-bytes > t.target) {
		n.fall(bytes)
		return
	}
	if high-low == 1 {
		*n = overNode{most: n.most - bytes, least: nothingOver} // each step once
		return
	}
	t.push(node)
	middle := (low + high) / 2
	t.lowerAt(2*node, low, middle, from, to, bytes)
	t.lowerAt(2*node+1, middle, high, from, to, bytes)
	t.pull(node)
}

// weight is how far steps from one to before another are over the target.
func (t *overTree) weight(from, to int) float64 { return t.weightAt(1, 0, t.size, from, to) }

func (t *overTree) weightAt(node, low, high, from, to int) float64 {
	n := &t.nodes[node]
	if to <= low || high <= from || n.least == nothingOver {
		return 0
	}
	if from <= low && high <= to {
		return n.over
	}
	t.push(node)
	middle := (low + high) / 2
	return t.weightAt(2*node, low, middle, from, to) + t.weightAt(2*node+1, middle, high, from, to)
}
