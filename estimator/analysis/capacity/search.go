// Package capacity finds the smallest card on which a recorded sequence of allocator requests still succeeds, and says what stands in the way of a
// smaller one.
package capacity

import (
	"errors"
	"fmt"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
)

// Options say what is searched. Zero fields mean: as recorded.
type Options struct {
	Version allocator.Version
	Config  *allocator.Config
	Policy  allocator.AddressPolicy
	// MaxOps bounds the work: requests simulated, over all runs. 0 means DefaultMaxOps. The answer does not depend on the speed of the machine.
	MaxOps int64
}

// DefaultMaxOps is the default of Options.MaxOps. Finding the boundary comes first, and is never cut short; the rest goes into the proof.
const DefaultMaxOps = 30_000_000

// Result is the answer. Sizes are bytes of allocator segments: the context and other memory outside the allocator come on top.
type Result struct {
	// ComfortableBytes is the peak of segments on a card with room to spare.
	ComfortableBytes uint64
	// MinimumBytes is a capacity from which on every larger one succeeds too, as far as it was proven; it is a multiple of 2 MiB.
	MinimumBytes uint64
	// LowestBytes is the smallest capacity that was seen to succeed. It lies below MinimumBytes when some capacity between them fails: the answer is
	// not monotone in theory, and such a card would be a matter of luck.
	LowestBytes uint64
	// BoundBytes is a capacity below which nothing can succeed: live blocks alone are larger.
	BoundBytes uint64
	// ProvenAbove tells that every capacity from MinimumBytes up was decided; ProvenBelow that every one below LowestBytes was shown to fail.
	ProvenAbove, ProvenBelow bool
	// Retries counts how often the run at MinimumBytes has to give cached memory back and try again; a job pays for each with a synchronization.
	Retries int64
	// Runs and Ops count the work done.
	Runs int
	Ops  int64
	// Limit says what fails on the next smaller card; nil when MinimumBytes is BoundBytes or the trace needs nothing.
	Limit *Failure
}

// Failure is the state in which a request fails.
type Failure struct {
	CapacityBytes uint64
	Op            int
	OOM           *allocator.OOMError
	// LiveBytes is in use, SlackBytes of it beyond what was requested. FragmentedBytes is free between live blocks, in segments that cannot be given
	// back. CachedBytes is free in whole segments.
	LiveBytes, SlackBytes, FragmentedBytes, CachedBytes uint64
	// Largest are the ten largest live blocks.
	Largest []replay.LiveBlock
}

// ErrFails is returned when the requests fail on the largest card already.
var ErrFails = errors.New("the requests fail even on a card without a limit")

const page = allocator.Page

type search struct {
	program *replay.Program
	options Options
	result  Result
	// byIntervals is false when the capacity itself enters the allocator's arithmetic, so that each capacity must be tried for itself.
	byIntervals bool
}

// run is one simulated capacity: all capacities from lo to hi, exclusive, behave the same.
type run struct {
	ok     bool
	lo, hi uint64
	res    *replay.RunResult
}

// Search finds the minimum.
func Search(p *replay.Program, o Options) (*Result, error) {
	if o.MaxOps == 0 {
		o.MaxOps = DefaultMaxOps
	}
	s := &search{program: p, options: o, byIntervals: true}
	config := p.Config
	if o.Config != nil {
		config = *o.Config
	}
	if config.MemoryFraction > 0 || config.GCThreshold > 0 {
		s.byIntervals = false
	}
	for i := range p.Ops {
		if p.Ops[i].Kind == replay.OpFraction {
			s.byIntervals = false
		}
	}
	top, err := s.try(replay.Unlimited)
	if err != nil {
		return nil, err
	}
	if !top.ok {
		return nil, fmt.Errorf("%s: %w: %v", p.Name, ErrFails, top.res.FirstOOM)
	}
	r := &s.result
	r.ComfortableBytes = top.res.Card.PeakBytes()
	if r.ComfortableBytes == 0 {
		r.ProvenAbove, r.ProvenBelow = true, true
		return r, nil
	}
	r.BoundBytes = max(s.liveBound(config), roundUp(p.StartInUseBytes()))
	if err := s.find(top); err != nil {
		return nil, err
	}
	return r, nil
}

func roundUp(n uint64) uint64 { return (n + page - 1) / page * page }

func (s *search) try(capacity uint64) (*run, error) {
	res, err := s.program.Run(replay.RunOptions{Version: s.options.Version, Config: s.options.Config, Policy: s.options.Policy, CapacityBytes: capacity, StopAtOOM: true})
	if err != nil {
		return nil, err
	}
	s.result.Runs++
	s.result.Ops += int64(res.OpsDone)
	r := &run{ok: res.FirstOOM == nil, res: res, lo: capacity, hi: capacity + page}
	if s.byIntervals && !res.Allocator.AddressSpaceExhausted() {
		r.lo, r.hi = max(roundUp(res.Card.PeakBytes()), page), min(res.Card.FirstRefusedBytes(), replay.Unlimited)
		r.lo, r.hi = min(r.lo, capacity), max(r.hi, capacity+1)
		if start := s.program.StartBytes(); capacity < start { // it began without the cached segments
			r.hi = min(r.hi, start)
		}
	}
	return r, nil
}

func (s *search) spent() bool { return s.result.Ops >= s.options.MaxOps }

// find looks for the boundary by halving, and then walks all capacities from the top down, a whole interval of equal behaviour at a time.
func (s *search) find(top *run) error {
	r := &s.result
	// The boundary between one success and one failure: good always succeeds, bad always fails.
	good, bad := max(roundUp(top.lo), r.BoundBytes), r.BoundBytes-min(page, r.BoundBytes)
	if !s.byIntervals {
		var err error
		if good, err = s.firstGood(max(roundUp(r.ComfortableBytes), r.BoundBytes)); err != nil {
			return err
		}
	}
	ceiling := good
	for good > bad+page {
		mid := bad + (good-bad)/2/page*page
		t, err := s.try(mid)
		if err != nil {
			return err
		}
		if t.ok {
			good = min(good, roundUp(t.lo))
		} else {
			bad = max(bad, (t.hi-1)/page*page)
		}
	}
	r.MinimumBytes, r.LowestBytes = good, good
	r.ProvenAbove, r.ProvenBelow = true, true

	// From the top down to good: a failure in between moves the safe minimum above it.
	for c := ceiling; c > good; {
		c -= page
		if c < good {
			break
		}
		if s.spent() {
			r.ProvenAbove = false
			break
		}
		t, err := s.try(c)
		if err != nil {
			return err
		}
		if !t.ok {
			r.MinimumBytes = roundUp(max(t.hi, c+page))
			break
		}
		c = min(c, roundUp(t.lo))
	}
	if r.MinimumBytes != good {
		// Below the failure nothing needs to be safe; what is left is whether a still smaller card happens to succeed.
		r.ProvenAbove = true
	}
	for c := good; c > r.BoundBytes; {
		c -= page
		if s.spent() {
			r.ProvenBelow = false
			break
		}
		t, err := s.try(c)
		if err != nil {
			return err
		}
		if t.ok {
			r.LowestBytes = min(r.LowestBytes, roundUp(t.lo))
		}
		c = min(c, roundUp(t.lo))
	}
	return s.explain()
}

// firstGood finds some capacity that succeeds, from a start upwards, when a fraction limit makes the comfortable one too small.
func (s *search) firstGood(start uint64) (uint64, error) {
	for c := start; c < replay.Unlimited; c = roundUp(c + c/8 + page) {
		t, err := s.try(c)
		if err != nil {
			return 0, err
		}
		if t.ok {
			return c, nil
		}
	}
	return 0, fmt.Errorf("%s: %w", s.program.Name, ErrFails)
}

// explain keeps the state of the failure on the next smaller card, and the retries at the minimum.
func (s *search) explain() error {
	r := &s.result
	at, err := s.try(r.MinimumBytes)
	if err != nil {
		return err
	}
	r.Retries = at.res.Stats.Retries
	if r.MinimumBytes <= page || r.MinimumBytes-page < s.program.StartInUseBytes() {
		return nil
	}
	below, err := s.try(r.MinimumBytes - page)
	if err != nil {
		return err
	}
	if below.ok {
		return nil
	}
	r.Limit = explainFailure(r.MinimumBytes-page, below.res)
	return nil
}

func explainFailure(capacity uint64, res *replay.RunResult) *Failure {
	f := &Failure{CapacityBytes: capacity, Op: res.FirstOOMOp, OOM: res.FirstOOM}
	for _, seg := range res.Allocator.Segments() {
		whole := len(seg.Blocks) == 1
		for _, b := range seg.Blocks {
			switch {
			case b.Live || b.Pending:
				f.LiveBytes += b.SizeBytes
				f.SlackBytes += b.SizeBytes - b.RequestedBytes
			case whole:
				f.CachedBytes += b.SizeBytes
			default:
				f.FragmentedBytes += b.SizeBytes
			}
		}
	}
	f.Largest = res.Live()
	f.Largest = f.Largest[:min(10, len(f.Largest))]
	return f
}

// liveBound is the largest sum of live blocks, rounded up to pages per stream and pool: segments hold the blocks of one stream and one pool only.
func (s *search) liveBound(config allocator.Config) uint64 {
	version := s.program.Version
	if s.options.Version != (allocator.Version{}) {
		version = s.options.Version
	}
	type owner struct {
		stream uint64
		small  bool
	}
	type block struct {
		owner owner
		size  uint64
	}
	live := map[owner]uint64{}
	blocks := make([]block, s.program.Blocks)
	var sum, peak uint64
	add := func(number int32, o owner, size uint64) {
		before := live[o]
		live[o] = before + size
		sum += roundUp(before+size) - roundUp(before)
		peak = max(peak, sum)
		blocks[number] = block{o, size}
	}
	for _, seg := range s.program.Start {
		for _, b := range seg.Blocks {
			add(b.Block, owner{seg.Stream, seg.Small}, b.SizeBytes)
		}
	}
	for i := range s.program.Ops {
		switch op := &s.program.Ops[i]; op.Kind {
		case replay.OpAlloc:
			if op.Bytes > 0 && op.Bytes < 1<<48 {
				size := config.RoundSize(op.Bytes, version)
				add(op.Block, owner{op.Stream, version.IsSmall(size)}, size)
			}
		case replay.OpFree:
			b := blocks[op.Block]
			before := live[b.owner]
			live[b.owner] = before - b.size
			sum -= roundUp(before) - roundUp(before-b.size)
			blocks[op.Block] = block{}
		}
	}
	return peak
}
