package offload

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gresize/gresize/estimator/analysis/planning"
	"github.com/gresize/gresize/estimator/analysis/planning/layout"
	"github.com/gresize/gresize/estimator/analysis/planning/swap"
	"github.com/gresize/gresize/internal/quantity"
)

// minMoveBytes is the smallest storage that is moved.
const minMoveBytes = swap.MinBytes

// window is one iteration of the record, as something that can be swapped.
type window struct {
	it       *iteration
	from, to int // requests
	steps    []int
	blocks   []layout.Block // those that live in it, from step 0
	of       []int          // by block: its number in the record
	storages []storage
	peak     int64
	// states are the blocks of the optimizer's state, by their number in it; updates is the step before which they are wanted.
	states  map[int]int
	updates int
}

// storage is a block that autograd saved: step and event of its last save and of its first take.
type storage struct {
	block int // in blocks
	save  int // the tensor that it was saved with first
	bytes uint64
	// alone is the event from which on autograd alone holds it; -1: somebody else holds it to the end.
	lastSave, firstTake, alone int // events
	saveStep, takeStep         int
}

// window cuts an iteration out of the record.
func (r *record) window(it *iteration) (*window, error) {
	w := &window{it: it}
	var err error
	if w.from, err = r.places.Request(it.from); err != nil {
		return nil, err
	}
	if w.to, err = r.places.Request(it.to); err != nil {
		return nil, err
	}
	if !it.whole {
		w.to = len(r.program.Ops)
	}
	n := int64(w.to-w.from) + 2
	at := map[uint64]int{}      // address -> block of the window
	place := map[int]int{}      // block of the record -> block of the window
	lasting := map[uint64]int{} // address -> block that lives from the beginning to the end
	load := make([]int64, n+1)
	for i, b := range r.lives.Blocks {
		start, end := max(b.Start-int64(w.from), 0), min(b.End-int64(w.from), n)
		if end <= 0 || start >= n {
			continue
		}
		place[i] = len(w.blocks)
		w.blocks = append(w.blocks, layout.Block{Start: start, End: end, SizeBytes: b.SizeBytes})
		w.of = append(w.of, i)
		load[start] += int64(b.SizeBytes)
		load[end] -= int64(b.SizeBytes)
		if start == 0 && end >= n-1 && b.Start > 0 && int(b.Start-1) < len(r.program.Answers) {
			lasting[r.program.Answers[b.Start-1].Addr] = place[i]
		}
	}
	if err := w.findState(r, lasting); err != nil {
		return nil, err
	}
	sum := int64(0)
	for _, l := range load {
		sum += l
		w.peak = max(w.peak, sum)
	}
	made := func(request int) {
		if r.blockOf[request] > 0 && request < len(r.program.Answers) {
			at[r.program.Answers[request].Addr] = place[int(r.blockOf[request]-1)]
		}
	}
	byBlock := map[int]int{} // block of the window -> storage
	byOrdinal := make([]int, it.saves())
	next := w.from
	for i := range it.events {
		e := &it.events[i]
		step, err := r.places.Request(e.at)
		if err != nil {
			return nil, err
		}
		for ; next < step; next++ {
			made(next)
		}
		step = max(min(step, w.to)-w.from, 0)
		w.steps = append(w.steps, step)
		if e.take {
			if e.of == it.number && e.ordinal >= 0 && e.ordinal < len(byOrdinal) {
				if s := byOrdinal[e.ordinal] - 1; s >= 0 && w.storages[s].firstTake == 0 {
					w.storages[s].firstTake, w.storages[s].takeStep = i, step
				}
			}
			continue
		}
		block, known := at[e.address]
		if !known || w.blocks[block].End <= int64(step) || e.bytes < minMoveBytes || w.blocks[block].SizeBytes < e.bytes {
			continue // it lived before, or is small
		}
		s, seen := byBlock[block]
		if !seen {
			s = len(w.storages)
			byBlock[block] = s
			alone, ok := it.alone[e.ordinal]
			if !ok {
				alone = -1
			}
			w.storages = append(w.storages, storage{block: block, save: e.ordinal, bytes: e.bytes, alone: alone})
		}
		byOrdinal[e.ordinal] = s + 1
		if w.storages[s].firstTake == 0 {
			w.storages[s].lastSave, w.storages[s].saveStep = i, step
		}
	}
	return w, nil
}

// stays says what of an optimizer's state is not moved, and why; empty where nothing is known to stay.
func (r *record) stays() string {
	if n := r.saved.optimizers; n > 1 {
		return fmt.Sprintf("the state of %d optimizers: only that of a single one leaves between its steps", n)
	}
	var bytes uint64
	for _, tensor := range r.saved.state {
		if tensor.bytes >= minMoveBytes {
			bytes += tensor.bytes
		}
	}
	without := slices.IndexFunc(r.saved.iterations, func(it *iteration) bool { return it.whole && it.saves() > 0 && it.updates == nil })
	if bytes == 0 || without < 0 {
		return ""
	}
	return fmt.Sprintf("%s of the optimizer's state: not every iteration is followed by a step of it, iteration %d for one", quantity.Size(bytes), without+1)
}

// findState finds the optimizer's state, where each iteration of this name is followed by a step: with accumulated gradients, it is not known which one is.
func (w *window) findState(r *record, lasting map[uint64]int) error {
	for _, it := range r.saved.iterations {
		if it.whole && it.last() == w.it.last() && it.updates == nil {
			return nil
		}
	}
	updates := w.to // where the record ends before
	if w.it.updates != nil {
		var err error
		if updates, err = r.places.Request(*w.it.updates); err != nil {
			return err
		}
	}
	w.updates, w.states = max(min(updates, w.to)-w.from, 0), map[int]int{}
	for number, tensor := range r.saved.state {
		if block, ok := lasting[tensor.address]; ok && tensor.bytes >= minMoveBytes && w.blocks[block].SizeBytes >= tensor.bytes {
			w.states[number] = block
		}
	}
	return nil
}

// movable says whether there is a time for which a storage could be away.
func (w *window) movable(s *storage) bool {
	b := w.blocks[s.block]
	return s.alone >= 0 && s.firstTake > max(s.lastSave+1, s.alone) && s.takeStep > s.saveStep+1 && int64(s.takeStep) < b.End && int64(s.saveStep) >= b.Start
}

// job is the window with the storages that may be moved. gaps are the seconds between its events, or nil.
func (w *window) job(clock planning.Clock, gaps []float64) (*swap.Job, error) {
	lives := &planning.Lifetimes{Blocks: w.blocks, Permanent: make([]bool, len(w.blocks)), Requests: w.to - w.from}
	for i := range lives.Permanent {
		lives.Permanent[i] = true
	}
	j, err := lives.Job(clock, nil, nil)
	if err != nil {
		return nil, err
	}
	if len(gaps) == len(w.steps)+1 {
		w.lay(gaps, j.StepNanos)
	}
	for i := range w.storages {
		if s := &w.storages[i]; w.movable(s) {
			j.Accesses[s.block] = []int32{int32(s.saveStep), int32(s.takeStep)}
		}
	}
	for _, block := range w.states {
		if w.updates > 1 {
			j.Accesses[block] = []int32{0, int32(w.updates)}
		}
	}
	return j, nil
}

// lay spreads the time between two events evenly over the requests between them.
func (w *window) lay(gaps []float64, stepNanos []int64) {
	for i := range stepNanos {
		stepNanos[i] = 0
	}
	from := 0
	for i, seconds := range gaps {
		to := w.to - w.from
		if i < len(w.steps) {
			to = w.steps[i]
		}
		first, last := min(from+1, to), to // step n is request n-1
		each := int64(seconds * 1e9 / float64(last-first+1))
		for k := first; k <= last; k++ {
			stepNanos[k] += each
		}
		from = to
	}
	for i := range stepNanos {
		stepNanos[i] = max(stepNanos[i], 1)
	}
}

// An event lies behind the request before it: begins and ends say when that begins, and when it has ended.
func (w *window) begins(p *swap.Plan, event int) int64 {
	return p.Begins[min(w.steps[event], len(p.Begins)-1)]
}

func (w *window) ends(p *swap.Plan, event int) int64 {
	return p.Begins[min(w.steps[event]+1, len(p.Begins)-1)]
}

// stateMoves are the trips of the optimizer's state, by events.
func (w *window) stateMoves(p *swap.Plan) (moves []StateMove) {
	byBlock := map[int32]int{}
	for number, block := range w.states {
		byBlock[int32(block)] = number
	}
	for _, m := range p.Moves {
		number, ok := byBlock[m.Block]
		if !ok {
			continue
		}
		// The step that relies on its memory may come right behind: the last event before it.
		gone, back := len(w.steps), len(w.steps)
		for gone > 0 && (gone == len(w.steps) || w.ends(p, gone) >= m.OutEnd) {
			gone--
		}
		if back--; back >= 0 && w.ends(p, back) <= m.InStart {
			back = -1 // behind the last event
		}
		for back > gone && w.begins(p, back) > m.InStart {
			back--
		}
		if gone < len(w.steps) {
			moves = append(moves, StateMove{State: number, Bytes: m.SizeBytes, Gone: gone, Back: back})
		}
	}
	slices.SortFunc(moves, func(a, b StateMove) int { return cmp.Compare(a.State, b.State) })
	return moves
}

// moves turns trips by time into trips by events. What leaves is copied when it is saved first, so that a trip that was planned for later has left earlier.
func (w *window) moves(p *swap.Plan) []Move {
	moves := []Move{} // the layer wants a list
	byBlock := map[int32]*storage{}
	for i := range w.storages {
		byBlock[int32(w.storages[i].block)] = &w.storages[i]
	}
	for _, m := range p.Moves {
		s := byBlock[m.Block]
		if s == nil {
			continue // of the optimizer's state
		}
		gone := max(s.lastSave+1, s.alone)
		for gone < s.firstTake && w.ends(p, gone) < m.OutEnd {
			gone++
		}
		back := s.firstTake
		for back > gone && w.begins(p, back) > m.InStart {
			back--
		}
		if gone < s.firstTake {
			moves = append(moves, Move{Save: s.save, Bytes: s.bytes, Gone: gone, Back: back})
		}
	}
	slices.SortFunc(moves, func(a, b Move) int { return cmp.Compare(a.Save, b.Save) })
	return moves
}

// hostBytes is what a pool takes that gives buffers out again for the same size only, by size.
func (w *window) hostBytes(moves []Move, bySize map[uint64]int64) {
	type edge struct {
		step  int64
		bytes uint64
		by    int64
	}
	var edges []edge
	byBlock := map[int]*storage{}
	for i := range w.storages {
		byBlock[w.storages[i].save] = &w.storages[i]
	}
	for _, m := range moves {
		b := w.blocks[byBlock[m.Save].block]
		edges = append(edges, edge{b.Start, m.Bytes, 1}, edge{b.End + 1, m.Bytes, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(b.by, a.by)) })
	now := map[uint64]int64{}
	for _, e := range edges {
		now[e.bytes] += e.by
		bySize[e.bytes] = max(bySize[e.bytes], now[e.bytes])
	}
}
