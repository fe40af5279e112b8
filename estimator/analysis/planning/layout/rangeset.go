package layout

// rangeSet is an ordered set of address ranges that do not overlap: a treap by address.
type rangeSet struct {
	nodes []rangeNode
	free  []int32
	root  int32 // 1 more than the index; 0 is none
	seed  uint32
}

type rangeNode struct {
	from, to    uint64
	priority    uint32
	left, right int32
	id          int32
}

func (r *rangeSet) node(i int32) *rangeNode { return &r.nodes[i-1] }

// split parts a tree into ranges that begin below addr and those that begin at it or above.
func (r *rangeSet) split(t int32, addr uint64) (low, high int32) {
	if t == 0 {
		return 0, 0
	}
	n := r.node(t)
	if n.from < addr {
		l, h := r.split(n.right, addr)
		r.node(t).right = l
		return t, h
	}
	l, h := r.split(n.left, addr)
	r.node(t).left = h
	return l, t
}

func (r *rangeSet) join(a, b int32) int32 {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	case r.node(a).priority > r.node(b).priority:
		r.node(a).right = r.join(r.node(a).right, b)
		return a
	}
	r.node(b).left = r.join(a, r.node(b).left)
	return b
}

// insert adds a range. When it overlaps one that is there, nothing is added and that one is returned.
func (r *rangeSet) insert(from, to uint64, id int32) (other int32, ok bool) {
	for t := r.root; t != 0; {
		n := r.node(t)
		switch {
		case from < n.to && n.from < to:
			return n.id, false
		case from < n.from:
			t = n.left
		default:
			t = n.right
		}
	}
	r.seed = r.seed*1664525 + 1013904223
	n := rangeNode{from: from, to: to, id: id, priority: r.seed}
	var at int32
	if last := len(r.free) - 1; last >= 0 {
		at = r.free[last]
		r.free = r.free[:last]
		*r.node(at) = n
	} else {
		r.nodes = append(r.nodes, n)
		at = int32(len(r.nodes))
	}
	low, high := r.split(r.root, from)
	r.root = r.join(r.join(low, at), high)
	return 0, true
}

// remove takes the range out that begins at from.
func (r *rangeSet) remove(from uint64) {
	low, rest := r.split(r.root, from)
	one, high := r.split(rest, from+1)
	if one != 0 {
		r.free = append(r.free, one)
	}
	r.root = r.join(low, high)
}
