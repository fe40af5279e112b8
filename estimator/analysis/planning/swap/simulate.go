package swap

import (
	"context"
	"slices"
)

// machine carries a job out on a card of target bytes: one thread of steps, one copy engine for each direction. A step begins when what it uses is there and
// what it makes has room; waiting moves everything after it.
type machine struct {
	*course
	link   Link
	target uint64
	plan   *Plan

	now             int64
	used            uint64 // on the card, transfers under way included
	host            uint64
	outFree, inFree int64
	leaving         []int32    // blocks on their way out, in order
	away            heap[trip] // blocks that are out, by the step that wants them back
	state           []state
	far             heap[use] // uses to come; a block that has left or was used since has an entry that says nothing any more
	next            []int32   // by block: index of the next access
	planned         *loadTree
}

type state struct {
	on, leaving bool
	move        int32 // the current trip, or -1
	last        int32 // the last trip
	since       int64
	arrives     int64
}

// use is a block on the card and when it is used next.
type use struct {
	step, block int32
	bytes       uint64
}

// before: the farthest ahead first, and the largest block of those.
func (a use) before(b use) bool {
	return a.step > b.step || a.step == b.step && (a.bytes > b.bytes || a.bytes == b.bytes && a.block < b.block)
}

// trip is a move of a block that is out, and the step that wants it back.
type trip struct{ step, block, move int32 }

func (a trip) before(b trip) bool {
	return a.step < b.step || a.step == b.step && a.block < b.block
}

// ordered is what knows whether it comes before another.
type ordered[T any] interface{ before(T) bool }

var (
	_ ordered[trip] = trip{}
	_ ordered[use]  = use{}
)

// heap has at its top what comes before all others.
type heap[T ordered[T]] []T

func (h *heap[T]) push(x T) {
	all := append(*h, x)
	i := len(all) - 1
	for ; i > 0 && x.before(all[(i-1)/2]); i = (i - 1) / 2 {
		all[i] = all[(i-1)/2]
	}
	all[i], *h = x, all
}

func (h *heap[T]) pop() {
	last := (*h)[len(*h)-1]
	all := (*h)[:len(*h)-1]
	if *h = all; len(all) > 0 {
		all[0] = last
		all.sink()
	}
}

// sink puts the first where it belongs.
func (h heap[T]) sink() {
	x, i := h[0], 0
	for next := 1; next < len(h); next = 2*i + 1 {
		if next+1 < len(h) && h[next+1].before(h[next]) {
			next++
		}
		if !h[next].before(x) {
			break
		}
		h[i] = h[next]
		i = next
	}
	h[i] = x
}

// simulate runs the job with the chosen absences, or until ctx ends.
func simulate(ctx context.Context, c *course, chosen []Absence, target uint64, link Link) (*Plan, error) {
	j := c.job
	m := &machine{course: c, link: link, target: target, plan: &Plan{TargetBytes: target}, state: make([]state, len(j.Blocks)), next: slices.Clone(c.first)}
	m.plan.Begins = make([]int64, 0, len(j.StepNanos))
	m.plan.Pieces = make([]Piece, 0, len(j.Blocks)+len(chosen))
	leave := newBuckets(len(j.StepNanos))
	for pass := range 2 {
		for k, a := range chosen {
			leave.add(pass, a.From, int32(k))
		}
		leave.turn(pass)
	}
	planned := slices.Clone(c.load)
	for _, a := range chosen {
		for i := a.From + 1; i < a.To; i++ {
			planned[i] -= int64(j.Blocks[a.Block].SizeBytes)
		}
	}
	m.planned = newLoadTree(planned)
	for i := range m.state {
		m.state[i].move = -1
	}
	for i, nanos := range j.StepNanos {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		step := int32(i)
		for _, b := range m.ends.at(step) {
			m.free(b)
		}
		m.settle()
		for _, b := range m.uses.at(step) {
			if err := m.fetch(b, step); err != nil {
				return nil, err
			}
		}
		for _, b := range m.starts.at(step) {
			if _, err := m.room(j.Blocks[b].SizeBytes, step); err != nil {
				return nil, err
			}
			m.arrive(b, m.now)
		}
		for _, b := range m.uses.at(step) {
			m.next[b]++
			m.expect(b)
		}
		m.prefetch(step)
		m.plan.Begins = append(m.plan.Begins, m.now)
		m.plan.BaseNanos += nanos
		m.now += nanos
		for _, k := range leave.at(step) {
			if b := chosen[k].Block; m.state[b].on && m.state[b].move < 0 {
				m.send(b, step, chosen[k].To)
			}
		}
	}
	for b := range m.state {
		if m.state[b].on {
			m.free(int32(b))
		}
	}
	m.plan.TotalNanos = m.now
	sortMoves(m.plan.Moves)
	return m.plan, nil
}

func (m *machine) arrive(b int32, since int64) {
	s := &m.state[b]
	s.on, s.since, s.move, s.arrives = true, since, -1, 0
	if m.job.Blocks[b].SizeBytes >= MinBytes {
		m.expect(b)
	}
	m.used += m.job.Blocks[b].SizeBytes
	m.plan.PeakBytes = max(m.plan.PeakBytes, m.used)
}

// expect notes the next use of a block that may be moved.
func (m *machine) expect(b int32) {
	if accesses := m.job.Accesses[b]; m.state[b].on && int(m.next[b]) < len(accesses) && m.job.Blocks[b].SizeBytes >= MinBytes {
		m.far.push(use{accesses[m.next[b]], b, m.job.Blocks[b].SizeBytes})
	}
}

// depart ends a stay on the card.
func (m *machine) depart(b int32, at int64) {
	s := &m.state[b]
	m.plan.Pieces = append(m.plan.Pieces, Piece{Block: b, From: s.since, To: at})
	m.used -= m.job.Blocks[b].SizeBytes
	s.on, s.leaving = false, false
}

func (m *machine) free(b int32) {
	if m.state[b].on {
		m.now = max(m.now, m.state[b].arrives)
		m.depart(b, m.now)
	}
}

// settle takes off the card what has left by now.
func (m *machine) settle() {
	for len(m.leaving) > 0 && m.plan.Moves[m.state[m.leaving[0]].move].OutEnd <= m.now {
		b := m.leaving[0]
		m.leaving = m.leaving[1:]
		move := m.state[b].move
		m.depart(b, m.plan.Moves[move].OutEnd)
		m.away.push(trip{m.plan.Moves[move].ForStep, b, move})
	}
}

// send puts a block on its way out.
func (m *machine) send(b, after, back int32) {
	size := m.job.Blocks[b].SizeBytes
	start := max(m.now, m.outFree)
	m.outFree = start + m.link.outNanos(size)
	m.state[b].leaving, m.state[b].move = true, int32(len(m.plan.Moves))
	m.plan.Moves = append(m.plan.Moves, Move{Block: b, SizeBytes: size, AfterStep: after, ForStep: back, OutStart: start, OutEnd: m.outFree})
	m.leaving = append(m.leaving, b)
	m.host += size
	m.plan.HostBytes = max(m.plan.HostBytes, m.host)
}

// room waits, and sends blocks away, until size bytes fit. It returns the trip that was waited for last, or -1.
func (m *machine) room(size uint64, step int32) (waited int32, err error) {
	waited = -1
	for m.settle(); m.used+size > m.target; m.settle() {
		if len(m.leaving) == 0 {
			b := m.victim(step)
			if b < 0 {
				return -1, &NeedError{Step: int(step), NeedBytes: m.used + size, TargetBytes: m.target}
			}
			m.now = max(m.now, m.state[b].arrives)
			back := m.job.Accesses[b][m.next[b]]
			m.planned.add(int(step), int(back), -int64(m.job.Blocks[b].SizeBytes))
			m.send(b, step, back)
		}
		waited = m.state[m.leaving[0]].move
		move := &m.plan.Moves[waited]
		if move.OutEnd > m.now {
			move.StallNanos += move.OutEnd - m.now
			m.now = move.OutEnd
		}
	}
	return waited, nil
}

// victim is the block on the card whose next use is farthest away, and the largest of those.
func (m *machine) victim(step int32) int32 {
	for len(m.far) > 0 {
		u := m.far[0]
		s := &m.state[u.block]
		if stays := s.on && !s.leaving && int(m.next[u.block]) < len(m.job.Accesses[u.block]) && m.job.Accesses[u.block][m.next[u.block]] == u.step; stays {
			if u.step <= step {
				return -1
			}
			return u.block
		}
		m.far.pop()
	}
	return -1
}

// fetch makes sure that a block is on the card for a step.
func (m *machine) fetch(b, step int32) error {
	s := &m.state[b]
	if s.leaving {
		// It is wanted before it is gone: the trip is finished first.
		move := &m.plan.Moves[s.move]
		if move.OutEnd > m.now {
			move.StallNanos += move.OutEnd - m.now
			m.now = move.OutEnd
		}
		m.settle()
	}
	if !s.on {
		move := s.move
		if _, err := m.room(m.job.Blocks[b].SizeBytes, step); err != nil {
			return err
		}
		m.bring(move) // its entry in away is passed over
	}
	if s.arrives > m.now {
		m.plan.Moves[s.last].StallNanos += s.arrives - m.now
		m.now = s.arrives
	}
	return nil
}

// bring starts the transfer back of a trip.
func (m *machine) bring(k int32) {
	move := &m.plan.Moves[k]
	start := max(m.now, m.inFree, move.OutEnd)
	m.inFree = start + m.link.inNanos(move.SizeBytes)
	move.InStart, move.InEnd = start, m.inFree
	m.host -= move.SizeBytes
	m.arrive(move.Block, m.now)
	m.state[move.Block].arrives, m.state[move.Block].last = m.inFree, k
}

// prefetch brings back what is wanted next, as long as it fits until it is used and the engine is idle.
func (m *machine) prefetch(step int32) {
	for len(m.away) > 0 && m.inFree <= m.now {
		k := m.away[0].move
		move := &m.plan.Moves[k]
		if m.state[move.Block].move != k {
			m.away.pop() // it was wanted before its turn
			continue
		}
		if m.used+move.SizeBytes > m.target || m.planned.max(int(step), int(move.ForStep))+int64(move.SizeBytes) > int64(m.target) {
			return
		}
		m.away.pop()
		m.planned.add(int(step), int(move.ForStep), int64(move.SizeBytes))
		m.bring(k)
	}
}

// loadTree holds a load by step, with sums over ranges added and maxima asked.
type loadTree struct {
	size      int
	top, more []int64
}

func newLoadTree(load []int64) *loadTree {
	t := &loadTree{size: 1}
	for t.size < len(load) {
		t.size *= 2
	}
	t.top, t.more = make([]int64, 2*t.size), make([]int64, 2*t.size)
	copy(t.top[t.size:], load)
	for i := t.size - 1; i > 0; i-- {
		t.top[i] = max(t.top[2*i], t.top[2*i+1])
	}
	return t
}

func (t *loadTree) add(from, to int, bytes int64) { t.addAt(1, 0, t.size, from, to, bytes) }

func (t *loadTree) addAt(node, low, high, from, to int, bytes int64) {
	if to <= low || high <= from {
		return
	}
	if from <= low && high <= to {
		t.top[node] += bytes
		t.more[node] += bytes
		return
	}
	middle := (low + high) / 2
	t.addAt(2*node, low, middle, from, to, bytes)
	t.addAt(2*node+1, middle, high, from, to, bytes)
	t.top[node] = max(t.top[2*node], t.top[2*node+1]) + t.more[node]
}

func (t *loadTree) max(from, to int) int64 { return t.maxAt(1, 0, t.size, from, to) }

func (t *loadTree) maxAt(node, low, high, from, to int) int64 {
	if to <= low || high <= from {
		return 0
	}
	if from <= low && high <= to {
		return t.top[node]
	}
	middle := (low + high) / 2
	return max(t.maxAt(2*node, low, middle, from, to), t.maxAt(2*node+1, middle, high, from, to)) + t.more[node]
}
