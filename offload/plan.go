package offload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/planning"
	"github.com/gresize/gresize/estimator/planning/layout"
	"github.com/gresize/gresize/estimator/planning/swap"
	"github.com/gresize/gresize/estimator/trace"
)

// Schema names the form of a plan's file. It changes when a key changes its meaning.
const Schema = "gresize.offload/1"

// Plan is what a job's Python layer carries out. docs/run.md describes the file.
type Plan struct {
	Schema       string `json:"schema"`
	TorchVersion string `json:"torch_version"`
	// TargetBytes is the card's memory that the job may take, all in all; AllocatorBytes what of it the plan was made for: live blocks of PyTorch's allocator.
	TargetBytes    int64 `json:"target_bytes"`
	AllocatorBytes int64 `json:"allocator_bytes"`
	// HostBytes is the pinned host memory that is taken at most.
	HostBytes int64 `json:"host_bytes"`
	// BaseNanos is the time of the largest iteration without moves, TotalNanos with them; MovedBytes its traffic in both directions.
	BaseNanos  int64       `json:"base_ns"`
	TotalNanos int64       `json:"total_ns"`
	MovedBytes int64       `json:"moved_bytes"`
	Iterations []Iteration `json:"iterations"`
}

// Iteration is one sequence of saved tensors.
type Iteration struct {
	// Prefixes name each saved tensor by all up to it.
	Prefixes []uint32 `json:"prefixes"`
	Moves    []Move   `json:"moves"`
}

// Move is a storage that goes to the host when tensor Save is saved. It has left by event Gone, and begins to come back at event Back.
type Move struct {
	Save  int    `json:"save"`
	Bytes uint64 `json:"bytes"`
	Gone  int    `json:"gone"`
	Back  int    `json:"back"`
}

// NeedError says that no plan exists: so much has to be on the card at once.
type NeedError struct {
	NeedBytes, AllocatorBytes int64
	// Outside: it is needed outside of the iterations, where nothing can be moved.
	Outside bool
}

func (e *NeedError) Error() string {
	where := "at one moment of an iteration"
	if e.Outside {
		where = "outside of forward and backward passes"
	}
	return fmt.Sprintf("%d bytes have to be on the card %s, the plan may use %d", e.NeedBytes, where, e.AllocatorBytes)
}

// minMoveBytes is the smallest storage that is moved.
const minMoveBytes = swap.MinBytes

// record is what a run on the virtual GPU told about one process.
type record struct {
	program *replay.Program
	lives   *planning.Lifetimes
	saved   *saved
	torch   string
	// ops is how many requests come before a place, by blocks handed out.
	opAfterAlloc []int32
	frees        []int32 // by request: blocks given back before it
	blockOf      []int32 // by request: 1 more than the block that it made
}

// read takes the parts of a bundle that a plan is made from.
func read(b *trace.Bundle) (*record, error) {
	if len(b.Ranks) != 1 {
		return nil, fmt.Errorf("the program ran as %d processes with a GPU; a plan is for one", len(b.Ranks))
	}
	p, err := replay.FromBundle(b, replay.OpenOptions{}, "the recorded run")
	if err != nil {
		return nil, err
	}
	if len(p.Start) > 0 {
		return nil, errors.New("the record begins in mid-run")
	}
	lives, err := planning.OfProgram(p)
	if err != nil {
		return nil, err
	}
	data := b.Ranks[0].Parts[trace.PartSaved]
	if len(data) == 0 {
		return nil, errors.New("autograd saved no tensor on the card: there is no backward pass to plan for, or torch was there before gresize")
	}
	s, err := readSaved(data)
	if err != nil {
		return nil, err
	}
	r := &record{program: p, lives: lives, saved: s, torch: b.Manifest.Versions.Torch, opAfterAlloc: []int32{0}, frees: make([]int32, len(p.Ops)+1), blockOf: make([]int32, len(p.Ops))}
	for i := range p.Ops {
		r.frees[i+1] = r.frees[i]
		switch op := &p.Ops[i]; {
		case op.Kind == replay.OpAlloc && !(i < len(p.Answers) && p.Answers[i].OOM):
			r.opAfterAlloc = append(r.opAfterAlloc, int32(i)+1)
		case op.Kind == replay.OpFree:
			r.frees[i+1]++
		}
	}
	for i, block := range lives.Blocks {
		if block.Start > 0 {
			r.blockOf[block.Start-1] = int32(i) + 1
		}
	}
	return r, nil
}

// request is how many requests were made before a place.
func (r *record) request(at place) (int, error) {
	if at[0] >= int64(len(r.opAfterAlloc)) {
		return 0, fmt.Errorf("%w: %d blocks handed out, the allocator's record has %d", ErrInvalid, at[0], len(r.opAfterAlloc)-1)
	}
	from, to := int(r.opAfterAlloc[at[0]]), len(r.program.Ops)
	if at[0]+1 < int64(len(r.opAfterAlloc)) {
		to = int(r.opAfterAlloc[at[0]+1]) - 1
	}
	return from + sort.Search(to-from, func(i int) bool { return int64(r.frees[from+i]) >= at[1] }), nil
}

// window is one iteration of the record, as something that can be swapped.
type window struct {
	it       *iteration
	from, to int // requests
	steps    []int
	blocks   []layout.Block // those that live in it, from step 0
	storages []storage
	peak     int64
}

// storage is a block that autograd saved: step and event of its last save and of its first take.
type storage struct {
	block               int // in blocks
	save                int // the tensor that it was saved with first
	bytes               uint64
	lastSave, firstTake int // events
	saveStep, takeStep  int
}

// window cuts an iteration out of the record.
func (r *record) window(it *iteration) (*window, error) {
	w := &window{it: it}
	var err error
	if w.from, err = r.request(it.from); err != nil {
		return nil, err
	}
	if w.to, err = r.request(it.to); err != nil {
		return nil, err
	}
	if !it.whole {
		w.to = len(r.program.Ops)
	}
	n := int64(w.to-w.from) + 2
	at := map[uint64]int{} // address -> block of the window
	place := map[int]int{} // block of the record -> block of the window
	load := make([]int64, n+1)
	for i, b := range r.lives.Blocks {
		start, end := max(b.Start-int64(w.from), 0), min(b.End-int64(w.from), n)
		if end <= 0 || start >= n {
			continue
		}
		place[i] = len(w.blocks)
		w.blocks = append(w.blocks, layout.Block{Start: start, End: end, SizeBytes: b.SizeBytes})
		load[start] += int64(b.SizeBytes)
		load[end] -= int64(b.SizeBytes)
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
		step, err := r.request(e.at)
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
			w.storages = append(w.storages, storage{block: block, save: e.ordinal, bytes: e.bytes})
		}
		byOrdinal[e.ordinal] = s + 1
		if w.storages[s].firstTake == 0 {
			w.storages[s].lastSave, w.storages[s].saveStep = i, step
		}
	}
	return w, nil
}

// job is the window with the storages that may be moved.
func (w *window) job(clock planning.Clock) (*swap.Job, error) {
	lives := &planning.Lifetimes{Blocks: w.blocks, Permanent: make([]bool, len(w.blocks)), Requests: w.to - w.from}
	for i := range lives.Permanent {
		lives.Permanent[i] = true
	}
	j, err := lives.Job(clock, nil)
	if err != nil {
		return nil, err
	}
	for _, s := range w.storages {
		if s.firstTake > s.lastSave+1 && s.takeStep > s.saveStep+1 && int64(s.takeStep) < w.blocks[s.block].End && int64(s.saveStep) >= w.blocks[s.block].Start {
			j.Accesses[s.block] = []int32{int32(s.saveStep), int32(s.takeStep)}
		}
	}
	return j, nil
}

// moves turns trips by time into trips by events.
func (w *window) moves(p *swap.Plan) (moves []Move) {
	byBlock := map[int32]*storage{}
	for i := range w.storages {
		byBlock[int32(w.storages[i].block)] = &w.storages[i]
	}
	begins := func(event int) int64 { return p.Begins[min(w.steps[event], len(p.Begins)-1)] }
	for _, m := range p.Moves {
		s := byBlock[m.Block]
		if s == nil || int(m.AfterStep) != s.saveStep || int(m.ForStep) != s.takeStep {
			continue // a trip before the last save cannot be made
		}
		gone := s.lastSave + 1
		for gone < s.firstTake && begins(gone) < m.OutEnd {
			gone++
		}
		back := s.firstTake
		for back > gone && begins(back) > m.InStart {
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

const hostAlignBytes = 512

// Options are what a plan is made for.
type Options struct {
	// TargetBytes is for the plan's own record; AllocatorBytes is what live blocks of PyTorch's allocator may take.
	TargetBytes, AllocatorBytes int64
	Link                        swap.Link
	// StepSeconds is the time of one iteration, 0 when it is not known.
	StepSeconds float64
}

// plan plans the recorded run.
func (r *record) plan(ctx context.Context, o Options) (*Plan, error) {
	p := &Plan{Schema: Schema, TorchVersion: r.torch, TargetBytes: o.TargetBytes, AllocatorBytes: o.AllocatorBytes}
	chosen := map[uint32]*iteration{}
	var order []uint32
	for _, it := range r.saved.iterations {
		if it.saves() == 0 {
			continue
		}
		name := it.last()
		if before := chosen[name]; before == nil {
			order = append(order, name)
		} else if before.whole && !it.whole {
			continue // the last one may have been cut off
		}
		chosen[name] = it
	}
	if len(order) == 0 {
		return nil, errors.New("autograd saved no tensor on the card")
	}
	if outside := r.outside(); outside > o.AllocatorBytes {
		return nil, &NeedError{NeedBytes: outside, AllocatorBytes: o.AllocatorBytes, Outside: true}
	}
	clock := planning.DefaultClock
	clock.StepNanos = int64(o.StepSeconds * 1e9)
	bySize := map[uint64]int64{}
	for _, name := range order {
		it := chosen[name]
		w, err := r.window(it)
		if err != nil {
			return nil, err
		}
		out := Iteration{Prefixes: it.prefixes(), Moves: []Move{}}
		if w.peak > o.AllocatorBytes {
			j, err := w.job(clock)
			if err != nil {
				return nil, err
			}
			s, _, err := swap.Choose(ctx, j, uint64(o.AllocatorBytes), o.Link)
			if need := (*swap.NeedError)(nil); errors.As(err, &need) {
				return nil, &NeedError{NeedBytes: int64(need.NeedBytes), AllocatorBytes: o.AllocatorBytes}
			}
			if err != nil {
				return nil, err
			}
			out.Moves = w.moves(s)
			w.hostBytes(out.Moves, bySize)
			if s.BaseNanos > p.BaseNanos {
				p.BaseNanos, p.TotalNanos, p.MovedBytes = s.BaseNanos, s.TotalNanos, int64(s.MovedBytes())
			}
		}
		p.Iterations = append(p.Iterations, out)
	}
	for size, count := range bySize {
		p.HostBytes += int64((size+hostAlignBytes-1)/hostAlignBytes*hostAlignBytes) * count
	}
	return p, nil
}

// outside is the largest sum of live blocks before the first iteration: what no plan lowers.
func (r *record) outside() int64 {
	to, err := r.request(r.saved.iterations[0].from)
	if err != nil {
		return 0
	}
	load := make([]int64, to+2)
	for _, b := range r.lives.Blocks {
		if b.Start <= int64(to) {
			load[b.Start] += int64(b.SizeBytes)
			load[min(b.End, int64(to)+1)] -= int64(b.SizeBytes)
		}
	}
	sum, most := int64(0), int64(0)
	for _, l := range load {
		sum += l
		most = max(most, sum)
	}
	return most
}

func (it *iteration) prefixes() (names []uint32) {
	for _, e := range it.events {
		if !e.take {
			names = append(names, e.prefix)
		}
	}
	return names
}
