// Package replay holds recorded sequences of allocator requests: it reads them, runs them on the simulator, and compares the simulator's answers with
// the recorded ones.
package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gresize/gresize/estimator/allocator"
)

// OpKind is what one step of a Program asks.
type OpKind uint8

// The steps of a Program.
const (
	OpAlloc OpKind = iota
	OpFree
	OpRecordStream
	OpClock
	OpEmptyCache
	OpFraction
	OpBeginPool
	OpEndPool
	OpReleasePool
	OpStats
)

// Op is one request. Block numbers count from 0 to Program.Blocks-1.
type Op struct {
	Kind  OpKind
	Block int32
	// Bytes is the request of an OpAlloc, the new time of an OpClock, the number of a private pool.
	Bytes uint64
	// Stream is the stream of an OpAlloc or OpRecordStream. On an OpFree that is not 0, it is a stream that the block waits for.
	Stream   uint64
	Fraction float64
}

// StartSegment is a segment that was there before the first Op.
type StartSegment struct {
	Addr, SizeBytes uint64
	Stream          uint64
	Small           bool
	Expandable      bool
	Blocks          []StartBlock
}

// StartBlock is one live block of a StartSegment; what lies between them is free.
type StartBlock struct {
	Addr, SizeBytes, RequestedBytes uint64
	Block                           int32
	// Pending marks a block that was freed already and waits for another stream.
	Pending bool
}

// Program is a sequence of requests, and what is known of the allocator that answered them.
type Program struct {
	Name     string
	Version  allocator.Version
	ConfText string
	Config   allocator.Config
	// TotalBytes is the card's memory for this process, 0 when it is not known.
	TotalBytes uint64
	// TotalKnown is false when TotalBytes is only an assumption.
	TotalKnown bool
	Start      []StartSegment
	Ops        []Op
	Blocks     int
	// Steps are how many requests come before the end of each training step, where the record says.
	Steps []int
	// Answers, when the program was recorded, has one entry per Op.
	Answers []Answer
	// Final is the recorded state at the end; nil when it was not recorded.
	Final []allocator.SegmentState
	// pendingUntil holds, by pseudo stream, the Op during which a pending free was seen to complete.
	pendingUntil map[uint64]int
	// fed is set when the addresses of segments come from the record.
	fed bool
}

// Answer is what the real allocator did for one Op.
type Answer struct {
	Events []allocator.Event
	// HasAddr is set when the returned address was recorded.
	HasAddr bool
	Addr    uint64
	OOM     bool
	Stats   []string
}

// Limits on what a file may ask for.
const (
	maxOps    = 1 << 28
	maxBlocks = 1 << 30
)

// RunOptions say on what the program is run. Zero fields mean: as recorded.
type RunOptions struct {
	Version       allocator.Version
	Config        *allocator.Config
	CapacityBytes uint64
	Policy        allocator.AddressPolicy
	// StopAtOOM ends the run at the first out of memory.
	StopAtOOM bool
	// OnEvent sees the events with the index of the Op that caused them.
	OnEvent func(op int, e allocator.Event)
}

// RunResult is the outcome of one run.
type RunResult struct {
	Stats allocator.Stats
	// FirstOOM is the first failure and FirstOOMOp its Op; nil and -1 without one.
	FirstOOM   *allocator.OOMError
	FirstOOMOp int
	// Card is what the run was made on.
	Card *allocator.Card
	// Allocator is left as it was at the end of the run.
	Allocator *allocator.Allocator
	// OpsDone counts the requests that were run.
	OpsDone int

	runner *runner
}

// LiveBlock is a block that is in use when a run ends.
type LiveBlock struct {
	// Op is the request that made it, -1 for one of the start state.
	Op int
	allocator.BlockState
}

// Live returns the blocks in use at the end of the run, the largest first.
func (r *RunResult) Live() []LiveBlock {
	madeBy := make([]int, r.runner.program.Blocks)
	for i := range madeBy {
		madeBy[i] = -1
	}
	for i := range r.OpsDone {
		if op := &r.runner.program.Ops[i]; op.Kind == OpAlloc {
			madeBy[op.Block] = i
		}
	}
	var live []LiveBlock
	for block, id := range r.runner.ids {
		if state, ok := r.Allocator.Block(id); ok {
			live = append(live, LiveBlock{madeBy[block], state})
		}
	}
	slices.SortStableFunc(live, func(x, y LiveBlock) int { return cmp.Compare(y.SizeBytes, x.SizeBytes) })
	return live
}

// runner carries out one program on one allocator.
type runner struct {
	program *Program
	a       *allocator.Allocator
	ids     []allocator.BlockID
	clock   int64
	op      int
}

// Unlimited is the capacity of a card on which nothing ever fails.
const Unlimited = 1 << 52

// Run runs the program on a card.
func (p *Program) Run(o RunOptions) (*RunResult, error) {
	capacity := o.CapacityBytes
	if capacity == 0 {
		capacity = p.TotalBytes
	}
	if capacity == 0 {
		capacity = Unlimited
	}
	card, err := allocator.NewCard(capacity, o.Policy)
	if err != nil {
		return nil, err
	}
	r := &runner{program: p}
	var onEvent func(allocator.Event)
	if o.OnEvent != nil {
		onEvent = func(e allocator.Event) { o.OnEvent(r.op, e) }
	}
	if err := r.open(o, card, onEvent); err != nil {
		return nil, err
	}
	start := p.Start
	if p.StartBytes() > capacity {
		start = p.startInUse()
	}
	for _, s := range start {
		if !card.Occupy(s.Addr, s.SizeBytes) {
			return nil, fmt.Errorf("%s: %w: a card of %d bytes, %d bytes of segments with live blocks at the start of the record", p.Name, ErrTooSmall, capacity, p.StartInUseBytes())
		}
	}
	if err := r.adopt(start); err != nil {
		return nil, err
	}
	res := &RunResult{FirstOOMOp: -1, Card: card, Allocator: r.a, runner: r}
	for i := range p.Ops {
		r.op = i
		_, err := r.step(&p.Ops[i])
		res.OpsDone++
		if err != nil {
			var oom *allocator.OOMError
			if !errors.As(err, &oom) {
				return nil, fmt.Errorf("%s: request %d: %w", p.Name, i, err)
			}
			if res.FirstOOM == nil {
				res.FirstOOM, res.FirstOOMOp = oom, i
			}
			if o.StopAtOOM {
				break
			}
		}
	}
	res.Stats = *r.a.Stats()
	return res, nil
}

// ErrTooSmall is returned for a card that cannot hold what was live before the first request.
var ErrTooSmall = errors.New("the card is too small for what was live at the start")

// StartBytes is the sum of all segments of the start state.
func (p *Program) StartBytes() uint64 { return sumSegments(p.Start) }

// StartInUseBytes is the sum of those with a live block. On a card smaller than StartBytes the others would have been given back before, so a
// run on one begins without them.
func (p *Program) StartInUseBytes() uint64 { return sumSegments(p.startInUse()) }

func (p *Program) startInUse() []StartSegment {
	return slices.DeleteFunc(slices.Clone(p.Start), func(s StartSegment) bool { return len(s.Blocks) == 0 })
}

func sumSegments(segments []StartSegment) (sum uint64) {
	for _, s := range segments {
		sum += s.SizeBytes
	}
	return sum
}

func (r *runner) open(o RunOptions, device allocator.Device, onEvent func(allocator.Event)) error {
	version, config := r.program.Version, r.program.Config
	if o.Version != (allocator.Version{}) {
		version = o.Version
	}
	if o.Config != nil {
		config = *o.Config
	}
	a, err := allocator.New(allocator.Options{
		Version: version, Config: config, Device: device, OnEvent: onEvent,
		Now: func() int64 { return r.clock },
		EventDone: func(recordedAt int64, stream uint64) bool {
			if until, ok := r.program.pendingUntil[stream]; ok {
				return r.op >= until
			}
			return r.clock > recordedAt
		},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", r.program.Name, err)
	}
	r.a = a
	r.ids = make([]allocator.BlockID, r.program.Blocks)
	return nil
}

// adopt puts the start state into the allocator.
func (r *runner) adopt(start []StartSegment) error {
	for _, s := range start {
		blocks := make([]allocator.AdoptedBlock, len(s.Blocks))
		for i, b := range s.Blocks {
			blocks[i] = allocator.AdoptedBlock{Addr: b.Addr, SizeBytes: b.SizeBytes, RequestedBytes: b.RequestedBytes}
		}
		ids, err := r.a.Adopt(allocator.AdoptedSegment{Addr: s.Addr, SizeBytes: s.SizeBytes, Stream: s.Stream, Small: s.Small, Expandable: s.Expandable, Blocks: blocks})
		if err != nil {
			return fmt.Errorf("%s: start state: %w", r.program.Name, err)
		}
		for i, b := range s.Blocks {
			r.ids[b.Block] = ids[i]
		}
	}
	return nil
}

// step carries out one Op and returns the address of an OpAlloc.
func (r *runner) step(op *Op) (uint64, error) {
	switch op.Kind {
	case OpAlloc:
		id, addr, err := r.a.Malloc(op.Bytes, op.Stream)
		r.ids[op.Block] = id
		return addr, err
	case OpFree:
		id := r.ids[op.Block]
		r.ids[op.Block] = allocator.NoBlock
		if op.Stream != 0 {
			if err := r.a.RecordStream(id, op.Stream); err != nil {
				return 0, err
			}
		}
		return 0, r.a.Free(id)
	case OpRecordStream:
		return 0, r.a.RecordStream(r.ids[op.Block], op.Stream)
	case OpClock:
		r.clock = int64(op.Bytes)
	case OpEmptyCache:
		r.a.EmptyCache()
	case OpFraction:
		return 0, r.a.SetMemoryFraction(op.Fraction)
	case OpBeginPool:
		return 0, r.a.BeginPool(int64(op.Bytes), allocator.PoolOptions{Capture: true})
	case OpEndPool:
		return 0, r.a.EndPool(int64(op.Bytes))
	case OpReleasePool:
		return 0, r.a.ReleasePool(int64(op.Bytes))
	case OpStats:
	default:
		return 0, fmt.Errorf("unknown request kind %d", op.Kind)
	}
	return 0, nil
}
