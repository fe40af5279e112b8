package swap

import (
	"container/heap"
	"context"
)

// machine carries a job out on a card of target bytes: one thread of steps, one copy engine for each direction. A step begins when what it uses is there and
// what it makes has room; waiting moves everything after it.
type machine struct {
	job    *Job
	link   Link
	target uint64
	plan   *Plan

	now             int64
	used            uint64 // on the card, transfers under way included
	host            uint64
	outFree, inFree int64
	leaving         []int32 // blocks on their way out, in order
	away            returns // blocks that are out, by the step that wants them back
	state           []state
	far             farthest
	next            []int32 // by block: index of the next access
	planned         *loadTree
}

type state struct {
	on, leaving bool
	move        int32 // the current trip, or -1
	last        int32 // the last trip
	since       int64
	arrives     int64
}

// farthest is a heap of uses to come, the farthest ahead first, and the largest block of those. A block that has left or was used since has an entry that says
// nothing any more.
type farthest []use

type use struct {
	step, block int32
	bytes       uint64
}

func (f farthest) Len() int { return len(f) }
func (f farthest) Less(i, j int) bool {
	a, b := &f[i], &f[j]
	if a.step != b.step {
		return a.step > b.step
	}
	return a.bytes > b.bytes || a.bytes == b.bytes && a.block < b.block
}
func (f farthest) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *farthest) Push(x any)   { *f = append(*f, x.(use)) }
func (f *farthest) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}

// returns is a heap of trips by the step that wants them.
type returns struct {
	moves *[]Move
	heap  []int32
}

func (r *returns) Len() int { return len(r.heap) }
func (r *returns) Less(i, j int) bool {
	a, b := (*r.moves)[r.heap[i]], (*r.moves)[r.heap[j]]
	return a.ForStep < b.ForStep || a.ForStep == b.ForStep && a.Block < b.Block
}
func (r *returns) Swap(i, j int) { r.heap[i], r.heap[j] = r.heap[j], r.heap[i] }
func (r *returns) Push(x any)    { r.heap = append(r.heap, x.(int32)) }
func (r *returns) Pop() any {
	last := r.heap[len(r.heap)-1]
	r.heap = r.heap[:len(r.heap)-1]
	return last
}

// simulate runs the job with the chosen absences, or until ctx ends.
func simulate(ctx context.Context, j *Job, chosen []Absence, target uint64, link Link) (*Plan, error) {
	m := &machine{job: j, link: link, target: target, plan: &Plan{TargetBytes: target}, state: make([]state, len(j.Blocks)), next: make([]int32, len(j.Blocks))}
	m.away.moves = &m.plan.Moves
	starts, ends, uses, leave := m.schedule(chosen)
	for i := range m.state {
		m.state[i].move = -1
	}
	for i, nanos := range j.StepNanos {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		step := int32(i)
		for _, b := range ends.at(step) {
			m.free(b)
		}
		m.settle()
		for _, b := range uses.at(step) {
			if err := m.fetch(b, step); err != nil {
				return nil, err
			}
		}
		for _, b := range starts.at(step) {
			if _, err := m.room(j.Blocks[b].SizeBytes, step); err != nil {
				return nil, err
			}
			m.arrive(b, m.now)
		}
		for _, b := range uses.at(step) {
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

// schedule sorts by step what happens to blocks.
func (m *machine) schedule(chosen []Absence) (starts, ends, uses, leave buckets) {
	j := m.job
	n := len(j.StepNanos)
	starts, ends, uses, leave = newBuckets(n), newBuckets(n), newBuckets(n), newBuckets(n)
	for pass := range 2 {
		for i, b := range j.Blocks {
			starts.add(pass, int32(b.Start), int32(i))
			if b.End < int64(n) {
				ends.add(pass, int32(b.End), int32(i))
			}
			for _, a := range j.Accesses[i] {
				if int64(a) > b.Start {
					uses.add(pass, a, int32(i))
				}
			}
		}
		for k, a := range chosen {
			leave.add(pass, a.From, int32(k))
		}
		for _, b := range []*buckets{&starts, &ends, &uses, &leave} {
			b.turn(pass)
		}
	}
	for i, b := range j.Blocks {
		if a := j.Accesses[i]; len(a) > 0 && int64(a[0]) == b.Start {
			m.next[i] = 1
		}
	}
	load := j.load()
	for _, a := range chosen {
		for i := a.From + 1; i < a.To; i++ {
			load[i] -= int64(j.Blocks[a.Block].SizeBytes)
		}
	}
	m.planned = newLoadTree(load)
	return starts, ends, uses, leave
}

// buckets hold numbers by step, in two passes: count, then fill.
type buckets struct {
	from  []int32
	items []int32
}

func newBuckets(steps int) buckets { return buckets{from: make([]int32, steps+2)} }

func (b *buckets) add(pass int, step, item int32) {
	if pass == 0 {
		b.from[step+2]++
		return
	}
	b.items[b.from[step+1]] = item
	b.from[step+1]++
}

func (b *buckets) turn(pass int) {
	if pass == 0 {
		for i := 1; i < len(b.from); i++ {
			b.from[i] += b.from[i-1]
		}
		b.items = make([]int32, b.from[len(b.from)-1])
	}
}

func (b *buckets) at(step int32) []int32 { return b.items[b.from[step]:b.from[step+1]] }

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
		heap.Push(&m.far, use{accesses[m.next[b]], b, m.job.Blocks[b].SizeBytes})
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
		heap.Push(&m.away, move)
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
		heap.Pop(&m.far)
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
	for len(m.away.heap) > 0 && m.inFree <= m.now {
		k := m.away.heap[0]
		move := &m.plan.Moves[k]
		if m.state[move.Block].move != k {
			heap.Pop(&m.away) // it was wanted before its turn
			continue
		}
		if m.used+move.SizeBytes > m.target || m.planned.max(int(step), int(move.ForStep))+int64(move.SizeBytes) > int64(m.target) {
			return
		}
		heap.Pop(&m.away)
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
