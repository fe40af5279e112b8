package layout

import (
	"cmp"
	"slices"
)

// search is a depth-first search for a layout of at most capacity. Blocks are placed from the bottom up, each at the lowest address that what is
// placed below it allows, so every layout in which no block could sink is reached by exactly one path. A branch ends when a section of time cannot
// hold what is left, when a block would float above a gap that another fits in, and when a placement that restricts nobody has failed.
type search struct {
	p        *problem
	capacity int64
	rank     []int32 // by block: its place in the static order

	offset   []int64 // the lowest address that is still allowed, or the address when placed
	placed   []bool
	solution []int64
	total    []int64 // by section: what is left to place
	lowest   []int64 // by section: the lowest offset of those left
	cross    []int32 // by section: blocks left that live here and in the section before
	trail    []change
	lows     []change // the same for lowest, by section
	jump     bool
	release  []int64
	because  []int32    // by block: the placed block that its offset rests on, or -1
	chain    [][]uint64 // by placed block: itself and all that its offset rests on
	blame    []uint64   // what the last failure rests on
	arena    []int32
	nodes    int64
	limit    int64
	stopped  bool
}

type change struct {
	block   int32
	offset  int64
	because int32
}

// problem is a set of blocks in small numbers: time in sections, sizes divided by their greatest common divisor.
type problem struct {
	size        []int64
	first, last []int32 // sections, last exclusive
	overlaps    [][]int32
	section     [][]int32 // blocks by section
	unit        uint64
	bound       int64
}

// maxOverlaps bounds the pairs that a problem may hold.
const maxOverlaps = 1 << 25

// newProblem returns nil when there are too many overlapping pairs to hold.
func newProblem(blocks []Block) *problem {
	n := len(blocks)
	p := &problem{size: make([]int64, n), first: make([]int32, n), last: make([]int32, n)}
	for _, b := range blocks {
		p.unit = gcd(p.unit, b.SizeBytes)
	}
	if p.unit == 0 {
		p.unit = 1
	}
	// A section begins where a block begins after another has ended: between two such points the set of live blocks only grows, then shrinks.
	order := make([]int32, 0, 2*n)
	for i := range blocks {
		order = append(order, int32(i), ^int32(i))
	}
	at := func(e int32) int64 {
		if e < 0 {
			return blocks[^e].End
		}
		return blocks[e].Start
	}
	slices.SortFunc(order, func(a, b int32) int {
		if c := compare(at(a), at(b)); c != 0 {
			return c
		}
		return cmp.Compare(a, b) // ends first
	})
	section, ended := int32(0), false
	for _, e := range order {
		if e < 0 {
			p.last[^e] = section + 1
			ended = true
			continue
		}
		if ended {
			section++
			ended = false
		}
		p.first[e] = section
	}
	p.section = make([][]int32, section+1)
	pairs := 0
	for i, b := range blocks {
		p.size[i] = int64(b.SizeBytes / p.unit)
		if pairs += int(p.last[i] - p.first[i]); pairs > maxOverlaps {
			return nil
		}
		for s := p.first[i]; s < p.last[i]; s++ {
			p.section[s] = append(p.section[s], int32(i))
		}
	}
	for _, live := range p.section {
		var sum int64
		for _, b := range live {
			sum += p.size[b]
		}
		p.bound = max(p.bound, sum)
	}
	p.overlaps = make([][]int32, n)
	seen := make([]int32, n)
	pairs = 0
	for i := range blocks {
		seen[i] = int32(i) + 1
		for s := p.first[i]; s < p.last[i]; s++ {
			for _, o := range p.section[s] {
				if seen[o] != int32(i)+1 {
					seen[o] = int32(i) + 1
					p.overlaps[i] = append(p.overlaps[i], o)
				}
			}
		}
		if pairs += len(p.overlaps[i]); pairs > maxOverlaps {
			return nil
		}
	}
	return p
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func newSearch(p *problem, capacity int64, rank []int32) *search {
	n := len(p.size)
	words := (n + 63) / 64
	s := &search{p: p, because: make([]int32, n), release: make([]int64, n), chain: make([][]uint64, n), blame: make([]uint64, words), capacity: capacity, rank: rank, offset: make([]int64, n), solution: make([]int64, n), placed: make([]bool, n),
		total: make([]int64, len(p.section)), lowest: make([]int64, len(p.section)), cross: make([]int32, len(p.section))}
	for i, size := range p.size {
		s.because[i] = -1
		for t := p.first[i]; t < p.last[i]; t++ {
			s.total[t] += size
			if t > p.first[i] {
				s.cross[t]++
			}
		}
	}
	return s
}

// run looks at no more than limit nodes. It returns whether a layout was found, and whether the answer is final.
func (s *search) run(limit int64) (found, final bool) {
	s.limit = limit
	items := make([]int32, len(s.p.size))
	for i := range items {
		items[i] = int32(i)
	}
	slices.SortFunc(items, func(a, b int32) int { return cmp.Compare(s.rank[a], s.rank[b]) })
	found = s.split(items, 0, int32(len(s.p.section)), 0, -1, -1)
	return found, found || !s.stopped && !s.jump
}

// split solves what has no block in common one after the other.
func (s *search) split(items []int32, from, to int32, lastOffset int64, lastRank int32, last int32) bool {
	begin := from
	for t := from + 1; t <= to; t++ {
		if t < to && s.cross[t] > 0 {
			continue
		}
		mark := len(s.arena)
		for _, b := range items {
			if s.p.first[b] >= begin && s.p.last[b] <= t {
				s.arena = append(s.arena, b)
			}
		}
		part := s.arena[mark:len(s.arena):len(s.arena)]
		ok := s.place(part, begin, t, lastOffset, lastRank, last)
		s.arena = s.arena[:mark]
		if !ok {
			return false
		}
		begin = t
	}
	return true
}

func (s *search) place(items []int32, from, to int32, lastOffset int64, lastRank int32, last int32) bool {
	if len(items) == 0 {
		return true
	}
	if s.nodes++; s.nodes > s.limit {
		s.stopped = true
		return false
	}
	p := s.p
	// Above ceiling a block would float over a gap that another fits in.
	ceiling := int64(1) << 62
	lowestTop := items[0]
	for _, b := range items {
		if c := s.offset[b] + p.size[b]; c < ceiling {
			ceiling, lowestTop = c, b
		}
	}
	mark := len(s.arena)
	for _, b := range items {
		if o := s.offset[b]; o < ceiling && (o > lastOffset || o == lastOffset && s.rank[b] > lastRank) {
			s.arena = append(s.arena, b)
		}
	}
	candidates := s.arena[mark:len(s.arena):len(s.arena)]
	// items are in static order already: a stable sort by offset.
	for i := 1; i < len(candidates); i++ {
		for j := i; j > 0 && s.offset[candidates[j]] < s.offset[candidates[j-1]]; j-- {
			candidates[j], candidates[j-1] = candidates[j-1], candidates[j]
		}
	}
	var fullest int64
	for t := from; t < to; t++ {
		fullest = max(fullest, s.total[t])
	}
	var blame []uint64
	if s.jump {
		blame = make([]uint64, len(s.blame))
		s.addBlame(blame, lowestTop)
		if last >= 0 {
			s.addBlame(blame, last)
		}
	}
	for _, b := range candidates {
		if s.offset[b]+fullest > s.capacity {
			break
		}
		trail, lows, found := len(s.trail), len(s.lows), false
		fits, free := s.put(b, from, to)
		if fits && !s.schedulable(items, from, to, b) {
			fits = false
		}
		if fits {
			inner := len(s.arena)
			for _, o := range items {
				if o != b {
					s.arena = append(s.arena, o)
				}
			}
			rest := s.arena[inner:len(s.arena):len(s.arena)]
			if s.cut(b) {
				found = s.split(rest, from, to, s.offset[b], s.rank[b], b)
			} else {
				found = s.place(rest, from, to, s.offset[b], s.rank[b], b)
			}
			s.arena = s.arena[:inner]
		}
		if found {
			s.solution[b] = s.offset[b]
		}
		s.take(b, trail, lows)
		if found || s.stopped || free {
			s.arena = s.arena[:mark]
			return found
		}
		if s.jump {
			if s.blame[b/64]>>(b%64)&1 == 0 {
				s.arena = s.arena[:mark]
				return false // b has nothing to do with the failure
			}
			for w := range blame {
				blame[w] |= s.blame[w]
			}
			blame[b/64] &^= 1 << (b % 64)
		}
	}
	if s.jump {
		copy(s.blame, blame)
	}
	s.arena = s.arena[:mark]
	return false
}

// addBlame adds what the offset of b rests on.
func (s *search) addBlame(blame []uint64, b int32) {
	if !s.placed[b] {
		if b = s.because[b]; b < 0 {
			return
		}
	}
	for w, bits := range s.chain[b] {
		blame[w] |= bits
	}
}

// cut tells whether placing b has separated what is left.
func (s *search) cut(b int32) bool {
	for t := s.p.first[b] + 1; t < s.p.last[b]; t++ {
		if s.cross[t] == 0 {
			return true
		}
	}
	return false
}

// put places b at its offset. fits is false when some section cannot hold the rest any more; free tells that no other block had to give way.
func (s *search) put(b, from, to int32) (fits, free bool) {
	p := s.p
	s.placed[b] = true
	offset := s.offset[b]
	top := offset + p.size[b]
	if s.jump {
		if s.chain[b] == nil {
			s.chain[b] = make([]uint64, len(s.blame))
		}
		c := s.chain[b]
		if s.because[b] >= 0 {
			copy(c, s.chain[s.because[b]])
		} else {
			clear(c)
		}
		c[b/64] |= 1 << (b % 64)
	}
	low, high := p.first[b], p.last[b]
	for t := low; t < high; t++ {
		s.total[t] -= p.size[b]
		if t > low {
			s.cross[t]--
		}
		if s.lowest[t] == offset {
			s.lows = append(s.lows, change{t, offset, 0})
			s.lowest[t] = -1
		}
	}
	free = true
	for _, o := range p.overlaps[b] {
		if old := s.offset[o]; !s.placed[o] && old < top {
			s.trail = append(s.trail, change{o, old, s.because[o]})
			s.offset[o] = top
			s.because[o] = b
			free = false
			for t := p.first[o]; t < p.last[o]; t++ {
				if s.lowest[t] == old {
					s.lows = append(s.lows, change{t, old, 0})
					s.lowest[t] = -1
				}
			}
			low, high = min(low, p.first[o]), max(high, p.last[o])
		}
	}
	for t := low; t < high; t++ {
		if s.lowest[t] >= 0 {
			continue
		}
		lowest := int64(1) << 62
		for _, o := range p.section[t] {
			if !s.placed[o] {
				lowest = min(lowest, s.offset[o])
			}
		}
		s.lowest[t] = lowest
	}
	for t := from; t < to; t++ {
		if s.total[t] > 0 && max(s.lowest[t], offset)+s.total[t] > s.capacity {
			if s.jump {
				clear(s.blame)
				for _, o := range p.section[t] {
					s.addBlame(s.blame, o)
				}
				if s.lowest[t] < offset {
					s.addBlame(s.blame, b)
				}
			}
			return false, free
		}
	}
	return true, free
}

// take undoes put.
func (s *search) take(b int32, trail, lows int) {
	p := s.p
	for t := p.first[b]; t < p.last[b]; t++ {
		s.total[t] += p.size[b]
		if t > p.first[b] {
			s.cross[t]++
		}
	}
	for len(s.trail) > trail {
		c := s.trail[len(s.trail)-1]
		s.trail = s.trail[:len(s.trail)-1]
		s.offset[c.block], s.because[c.block] = c.offset, c.because
	}
	for len(s.lows) > lows {
		c := s.lows[len(s.lows)-1]
		s.lows = s.lows[:len(s.lows)-1]
		s.lowest[c.block] = c.offset
	}
	s.placed[b] = false
}

// schedulable looks harder at what is left. A block that was passed over at its offset can only be placed after another has come below it; with
// the earliest offsets that follow, each section is a machine with release times, and its last block must end below the capacity.
func (s *search) schedulable(items []int32, from, to, b int32) bool {
	p := s.p
	offset, rank := s.offset[b], s.rank[b]
	for _, o := range items {
		if o == b {
			continue
		}
		at := s.offset[o]
		if at < offset || at == offset && s.rank[o] < rank {
			at = int64(1) << 61
			for _, below := range p.overlaps[o] {
				if !s.placed[below] && below != o {
					at = min(at, max(s.offset[below], offset)+p.size[below])
				}
			}
			if at+p.size[o] > s.capacity {
				s.blameStuck(o, b)
				return false
			}
		}
		s.release[o] = at
	}
	var order [256]int32
	for t := from; t < to; t++ {
		left := order[:0]
		latest := int64(0)
		for _, o := range p.section[t] {
			if !s.placed[o] && len(left) < cap(left) {
				left = append(left, o)
				latest = max(latest, s.release[o])
			}
		}
		if latest+s.total[t] <= s.capacity {
			continue
		}
		for i := 1; i < len(left); i++ {
			for j := i; j > 0 && s.release[left[j]] < s.release[left[j-1]]; j-- {
				left[j], left[j-1] = left[j-1], left[j]
			}
		}
		end := int64(0)
		for _, o := range left {
			end = max(end, s.release[o]) + p.size[o]
		}
		if end > s.capacity {
			if s.jump {
				clear(s.blame)
				for _, o := range p.section[t] {
					s.addBlame(s.blame, o)
				}
				s.addBlame(s.blame, b)
			}
			return false
		}
	}
	return true
}

func (s *search) blameStuck(o, b int32) {
	if s.jump {
		clear(s.blame)
		s.addBlame(s.blame, o)
		s.addBlame(s.blame, b)
	}
}
