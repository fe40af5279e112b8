package layout

import (
	"cmp"
	"context"
	"math/bits"
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
	left     bitSet // blocks that are not placed
	solution []int64
	total    []int64 // by section: what is left to place
	lowest   []int64 // by section: the lowest offset of those left
	cross    []int32 // by section: blocks left that live here and in the section before
	trail    []change
	lows     []change // the same for lowest, by section
	jump     bool
	release  []int64
	fresh    bitSet     // blocks whose release is computed for this node
	late     []uint64   // scratch: releases and blocks
	because  []int32    // by block: the placed block that its offset rests on, or -1
	chain    [][]uint64 // by placed block: itself and all that its offset rests on
	blame    []uint64   // what the last failure rests on
	arena    []int32
	failed   []float64 // by section: how many branches ended there
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
	overlapSet  []bitSet  // the same as overlaps
	sectionSet  []bitSet  // the same as section
	unit        uint64
	done        <-chan struct{} // closed when no more is to be searched
	bound       int64
}

// Limits of a problem: the pairs that overlap, and the sum of all sizes, in units. An address and a block share a word in the search.
const (
	maxOverlaps = 1 << 25
	maxUnits    = 1 << 47
)

// ended tells that the caller's context has ended.
func (p *problem) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// newProblem returns nil for blocks beyond the limits of a search, and when ctx ends.
func newProblem(ctx context.Context, blocks []Block) *problem {
	n := len(blocks)
	p := &problem{done: ctx.Done(), size: make([]int64, n), first: make([]int32, n), last: make([]int32, n)}
	for _, b := range blocks {
		p.unit = gcd(p.unit, b.SizeBytes)
	}
	if p.unit == 0 {
		p.unit = 1
	}
	// A section begins where a block begins after another has ended: between two such points the set of live blocks only grows, then shrinks.
	section, ended := int32(0), false
	for _, e := range inTime(blocks) {
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
	units := int64(0)
	for i, b := range blocks {
		p.size[i] = int64(b.SizeBytes / p.unit)
		if units += p.size[i]; units > maxUnits || i >= maxSearchBlocks {
			return nil
		}
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
		if p.ended() {
			return nil
		}
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
	p.overlapSet, p.sectionSet = bitSets(p.overlaps, n), bitSets(p.section, n)
	return p
}

// bitSet is a set of blocks.
type bitSet []uint64

func (s bitSet) has(b int32) bool { return s[b/64]>>(b%64)&1 != 0 }
func (s bitSet) add(b int32)      { s[b/64] |= 1 << (b % 64) }
func (s bitSet) remove(b int32)   { s[b/64] &^= 1 << (b % 64) }

func bitSets(lists [][]int32, n int) []bitSet {
	words := (n + 63) / 64
	all := make(bitSet, words*len(lists))
	sets := make([]bitSet, len(lists))
	for i, list := range lists {
		sets[i] = all[i*words : (i+1)*words]
		for _, b := range list {
			sets[i].add(b)
		}
	}
	return sets
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
		left: make(bitSet, words), fresh: make(bitSet, words), total: make([]int64, len(p.section)), lowest: make([]int64, len(p.section)), failed: make([]float64, len(p.section)), cross: make([]int32, len(p.section))}
	for i, size := range p.size {
		s.because[i] = -1
		s.left.add(int32(i))
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
	p := s.p
	if s.nodes++; s.nodes > s.limit || p.ended() {
		s.stopped = true
		return false
	}
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
		fits, free, low, high := s.put(b, from, to)
		if fits && !s.schedulable(low, high, b) {
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
			if !bitSet(s.blame).has(b) {
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
	for w, set := range s.chain[b] {
		blame[w] |= set
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

// put places b at its offset. fits is false when some section cannot hold the rest any more; free tells that no other block had to give way. Nothing
// has changed outside the sections from low to high.
func (s *search) put(b, from, to int32) (fits, free bool, low, high int32) {
	p := s.p
	s.placed[b] = true
	s.left.remove(b)
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
	low, high = p.first[b], p.last[b]
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
	for w, set := range p.overlapSet[b] {
		for set &= s.left[w]; set != 0; set &= set - 1 {
			o := int32(w*64 + bits.TrailingZeros64(set))
			old := s.offset[o]
			if old >= top {
				continue
			}
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
		if s.lowest[t] < 0 {
			lowest := int64(1) << 62
			for w, set := range p.sectionSet[t] {
				for set &= s.left[w]; set != 0; set &= set - 1 {
					lowest = min(lowest, s.offset[w*64+bits.TrailingZeros64(set)])
				}
			}
			s.lowest[t] = lowest
		}
	}
	for t := from; t < to; t++ {
		if s.total[t] > 0 && max(s.lowest[t], offset)+s.total[t] > s.capacity {
			s.blameSection(t, s.lowest[t] < offset, b)
			return false, free, low, high
		}
	}
	return true, free, low, high
}

// blameSection makes a failure rest on all that a section holds, and on b when and is set.
func (s *search) blameSection(t int32, and bool, b int32) {
	s.failed[t]++
	if s.jump {
		clear(s.blame)
		for _, o := range s.p.section[t] {
			s.addBlame(s.blame, o)
		}
		if and {
			s.addBlame(s.blame, b)
		}
	}
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
	s.left.add(b)
}

// schedulable looks harder at the sections from low to high. A block that was passed over at its offset can only be placed after another has come
// below it; with the earliest offsets that follow, each section is a machine with release times, and its last block must end below the capacity.
func (s *search) schedulable(low, high, b int32) bool {
	p := s.p
	clear(s.fresh)
	for t := low; t < high; t++ {
		slack := s.capacity - s.total[t] // what is released by then cannot be the reason
		late := s.late[:0]
		for w, set := range p.sectionSet[t] {
			for set &= s.left[w]; set != 0; set &= set - 1 {
				o := int32(w*64 + bits.TrailingZeros64(set))
				if !s.fresh.has(o) {
					s.fresh.add(o)
					if s.release[o] = s.earliest(o, b); s.release[o]+p.size[o] > s.capacity {
						s.blameStuck(o, b)
						return false
					}
				}
				if s.release[o] > slack {
					late = append(late, uint64(s.release[o])<<16|uint64(o))
				}
			}
		}
		s.late = late
		if len(late) == 0 {
			continue
		}
		slices.Sort(late)
		end := int64(0)
		for _, o := range late {
			end = max(end, int64(o>>16)) + p.size[o&0xffff]
		}
		if end > s.capacity {
			s.blameSection(t, true, b)
			return false
		}
	}
	return true
}

// earliest is the lowest offset that a block left can still get after b was placed.
func (s *search) earliest(o, b int32) int64 {
	p, at, floor := s.p, s.offset[o], s.offset[b]
	if at > floor || at == floor && s.rank[o] >= s.rank[b] {
		return at
	}
	at = int64(1) << 61
	for w, set := range p.overlapSet[o] {
		for set &= s.left[w]; set != 0; set &= set - 1 {
			if below := int32(w*64 + bits.TrailingZeros64(set)); below != o {
				at = min(at, max(s.offset[below], floor)+p.size[below])
			}
		}
	}
	return at
}

// blameStuck makes a failure rest on a block that no other can come below any more.
func (s *search) blameStuck(o, b int32) {
	for t := s.p.first[o]; t < s.p.last[o]; t++ {
		s.failed[t] += 1 / float64(s.p.last[o]-s.p.first[o])
	}
	if s.jump {
		clear(s.blame)
		s.addBlame(s.blame, o)
		s.addBlame(s.blame, b)
	}
}
