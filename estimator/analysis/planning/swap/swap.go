// Package swap plans which blocks of a job go to host memory and when, so that the job fits a smaller card, and what that costs in time.
package swap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"

	"github.com/gresize/gresize/estimator/analysis/planning/layout"
)

// Job is what runs: steps one after the other, and the blocks that they make, use and free.
type Job struct {
	// Blocks live from step Start until before step End.
	Blocks []layout.Block
	// Accesses are, by block, the steps that read or write it, ascending. A block without is never moved.
	Accesses [][]int32
	// StepNanos is how long each step takes when nothing is in its way.
	StepNanos []int64
}

// Link is the transfer model: a latency and a rate for each direction. Both directions run at once, each one transfer at a time.
type Link struct {
	OutLatencyNanos, InLatencyNanos     int64
	OutBytesPerSecond, InBytesPerSecond float64
}

// PublishedLink is AutoSwap's: pinned memory over PCIe 3.0 x16.
var PublishedLink = Link{OutLatencyNanos: 47_200, InLatencyNanos: 9_700, OutBytesPerSecond: 1e9 / 0.0756, InBytesPerSecond: 1e9 / 0.0823}

func (l Link) outNanos(bytes uint64) int64 {
	return l.OutLatencyNanos + int64(float64(bytes)*1e9/l.OutBytesPerSecond)
}

func (l Link) inNanos(bytes uint64) int64 {
	return l.InLatencyNanos + int64(float64(bytes)*1e9/l.InBytesPerSecond)
}

// MinBytes is the size of the smallest block that is moved, as AutoSwap has it.
const MinBytes = 1 << 20

const (
	maxSteps     = 1 << 28
	maxStepNanos = 1 << 40
)

// ErrInvalid is returned for a job that cannot run.
var ErrInvalid = errors.New("invalid job")

// Check refuses jobs whose blocks, accesses or times make no sense.
func (j *Job) Check() error {
	if err := layout.Check(j.Blocks); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(j.StepNanos) > maxSteps {
		return fmt.Errorf("%w: %d steps", ErrInvalid, len(j.StepNanos))
	}
	if len(j.Accesses) != len(j.Blocks) {
		return fmt.Errorf("%w: %d blocks, accesses of %d", ErrInvalid, len(j.Blocks), len(j.Accesses))
	}
	for i, n := range j.StepNanos {
		if n < 1 || n > maxStepNanos {
			return fmt.Errorf("%w: step %d takes %d ns", ErrInvalid, i, n)
		}
	}
	for i, b := range j.Blocks {
		if b.Start < 0 || b.End > int64(len(j.StepNanos)) {
			return fmt.Errorf("%w: block %d lives from step %d to %d of %d", ErrInvalid, i, b.Start, b.End, len(j.StepNanos))
		}
		before := b.Start - 1
		for _, a := range j.Accesses[i] {
			if int64(a) <= before || int64(a) >= b.End {
				return fmt.Errorf("%w: block %d lives from step %d to %d and is used at step %d, after step %d", ErrInvalid, i, b.Start, b.End, a, before)
			}
			before = int64(a)
		}
	}
	return nil
}

func (l Link) check() error {
	if l.OutLatencyNanos < 0 || l.InLatencyNanos < 0 || l.OutLatencyNanos > maxStepNanos || l.InLatencyNanos > maxStepNanos ||
		!(l.OutBytesPerSecond >= 1) || !(l.InBytesPerSecond >= 1) || l.OutBytesPerSecond > 1e15 || l.InBytesPerSecond > 1e15 {
		return fmt.Errorf("%w: link %+v", ErrInvalid, l)
	}
	return nil
}

// Absence is a stretch of steps between two accesses during which a block could be away: after From, and back for To.
type Absence struct {
	Block    int32
	From, To int32
}

// absences lists all that are long enough to be worth a look.
func (j *Job) absences() (all []Absence) {
	for i, accesses := range j.Accesses {
		if j.Blocks[i].SizeBytes < MinBytes {
			continue
		}
		for k := 1; k < len(accesses); k++ {
			if accesses[k]-accesses[k-1] > 1 {
				all = append(all, Absence{int32(i), accesses[k-1], accesses[k]})
			}
		}
	}
	return all
}

// load is what lives at each step.
func (j *Job) load() []int64 {
	load := make([]int64, len(j.StepNanos)+1)
	for _, b := range j.Blocks {
		load[b.Start] += int64(b.SizeBytes)
		load[b.End] -= int64(b.SizeBytes)
	}
	for i := 1; i < len(load); i++ {
		load[i] += load[i-1]
	}
	return load[:len(j.StepNanos)]
}

// Plan is the answer: what moves when, what it costs, and where everything lies.
type Plan struct {
	TargetBytes uint64 `json:"target_bytes"`
	// Policy names the score that chose.
	Policy string `json:"policy"`
	// BaseNanos is the time without swapping; TotalNanos with it.
	BaseNanos  int64 `json:"base_ns"`
	TotalNanos int64 `json:"total_ns"`
	// PeakBytes is the largest sum of what is on the card, transfers under way included; PoolBytes the pool that holds it.
	PeakBytes uint64 `json:"peak_bytes"`
	PoolBytes uint64 `json:"pool_bytes"`
	// HostBytes is the largest sum of what lies in host memory.
	HostBytes uint64  `json:"host_bytes"`
	Moves     []Move  `json:"moves"`
	Pieces    []Piece `json:"pieces"`
	// Begins is when each step begins, stalls included.
	Begins []int64 `json:"-"`
	// tightened: what was chosen leaves less on the card than the target, so that addresses were found.
	tightened bool
}

// StallNanos is what swapping costs.
func (p *Plan) StallNanos() int64 { return p.TotalNanos - p.BaseNanos }

// MovedBytes is the traffic of both directions.
func (p *Plan) MovedBytes() (sum uint64) {
	for _, m := range p.Moves {
		sum += 2 * m.SizeBytes
	}
	return sum
}

// Move is one trip to host memory and back. Times count from the start of the job, stalls included.
type Move struct {
	Block     int32  `json:"block"`
	SizeBytes uint64 `json:"size_bytes"`
	AfterStep int32  `json:"after_step"`
	ForStep   int32  `json:"for_step"`
	OutStart  int64  `json:"out_start_ns"`
	OutEnd    int64  `json:"out_end_ns"`
	InStart   int64  `json:"in_start_ns"`
	InEnd     int64  `json:"in_end_ns"`
	// StallNanos is how long the job waited for this trip, for the room or for the block.
	StallNanos int64 `json:"stall_ns"`
}

// Piece is a stay of a block on the card, at one address.
type Piece struct {
	Block   int32  `json:"block"`
	From    int64  `json:"from_ns"`
	To      int64  `json:"to_ns"`
	Address uint64 `json:"address"`
}

// NeedError says that no plan exists: at one step, more must be on the card than it holds.
type NeedError struct {
	Step                   int
	NeedBytes, TargetBytes uint64
}

func (e *NeedError) Error() string {
	return fmt.Sprintf("step %d needs %d bytes on the card at once, the target is %d: what it uses and what cannot be moved is more", e.Step, e.NeedBytes, e.TargetBytes)
}

// Outcome is one policy tried.
type Outcome struct {
	Policy     string `json:"policy"`
	StallNanos int64  `json:"stall_ns"`
	MovedBytes uint64 `json:"moved_bytes"`
	Err        string `json:"error,omitempty"`
}

// Limits on the search for the smallest target: tries, and how much more is tried where what is on the card at once would fit but was given no addresses.
const (
	maxSmallestTries = 64
	smallestGrowth   = 64 // one part in so many
)

// Smallest is about the smallest target, above one that there is no plan for, for which a plan is found; false where none is found. A target that is refused
// names what one request needs at least, which is the next that is tried: so what is found is the need of the worst request, or that and what addresses lose. When ctx ends, none is found.
func Smallest(ctx context.Context, j *Job, above uint64, link Link, layoutNodes int64) (uint64, bool) {
	target := above
	for range maxSmallestTries {
		_, _, err := Make(ctx, j, target, link, layoutNodes)
		if err == nil {
			return target, target > above
		}
		if ctx.Err() != nil {
			break
		}
		if need := (*NeedError)(nil); errors.As(err, &need) && need.NeedBytes > target {
			target = need.NeedBytes
			continue
		}
		if target > math.MaxUint64/2 {
			break
		}
		target += max(1, target/smallestGrowth)
	}
	return 0, false
}

// Least is about the smallest target for which a plan makes the job at most so many times slower, addresses in one pass included; false where none does, or
// when ctx ends before one was found. Targets are halved, then those just below what was found are tried: a smaller one may wait less.
func Least(ctx context.Context, j *Job, slowdown float64, link Link) (targetBytes uint64, ok bool, err error) {
	if err := errors.Join(j.Check(), link.check()); err != nil {
		return 0, false, err
	}
	c, levels := newCourse(j), j.levels()
	within := func(at int) bool {
		s := newSearch(c, levels, levels[at], link)
		p, _, err := s.within(ctx, hurried, layout.Options{MaxNodes: -1, OnePass: len(j.Blocks) > largeJob})
		if err == nil && float64(p.TotalNanos) <= slowdown*float64(p.BaseNanos) {
			targetBytes, ok = levels[at], true
			return true
		}
		return false
	}
	// What is proven to be too little is below low, what is enough from high on.
	low, high := 0, len(levels)
	for low < high && ctx.Err() == nil {
		if middle := (low + high) / 2; within(middle) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	for at := high - 1; at >= max(high-leastMore, 0) && ctx.Err() == nil; at-- {
		within(at)
	}
	return targetBytes, ok, nil
}

// leastMore is how many levels below the one that was found Least tries.
const leastMore = 8

// Make looks for the plan with the least stall: every score chooses, every choice is simulated, and the best is given addresses. When ctx ends
// before all were simulated, the best so far is given addresses; without any that have room, the error is that of ctx.
func Make(ctx context.Context, j *Job, targetBytes uint64, link Link, layoutNodes int64) (*Plan, []Outcome, error) {
	if err := j.Check(); err != nil {
		return nil, nil, err
	}
	if err := link.check(); err != nil {
		return nil, nil, err
	}
	// Addresses in one pass take a moment, a search for them minutes: what the pass finds is the answer where the search finds nothing, or has no time to.
	s := newSearch(newCourse(j), j.levels(), targetBytes, link)
	var quick *Plan
	var quickOutcomes []Outcome
	var err error
	if len(j.Blocks) > largeJob {
		quick, quickOutcomes, err = s.within(ctx, hurried, layout.Options{OnePass: true})
	}
	if quick == nil && ctx.Err() == nil {
		quick, quickOutcomes, err = s.within(ctx, patient, layout.Options{MaxNodes: -1})
	}
	if need := (*NeedError)(nil); layoutNodes < 0 || errors.As(err, &need) && need.TargetBytes == targetBytes {
		return quick, quickOutcomes, err
	}
	if quick != nil && (quick.StallNanos() == 0 || !quick.tightened) {
		return quick, quickOutcomes, nil // a search gives the same choice other addresses
	}
	p, outcomes, err := s.within(ctx, patient, layout.Options{MaxNodes: layoutNodes})
	if quick != nil && (p == nil || p.StallNanos() > quick.StallNanos()) {
		return quick, quickOutcomes, nil
	}
	return p, outcomes, err
}

// search is what is known of one target while plans for it are looked for.
type search struct {
	course *course
	link   Link
	target uint64
	levels []uint64
	// passed are the choices by level that the pass in a hurry found no addresses for: neither they nor its one pass are to be tried again.
	passed map[int]choice
	// found is the level of a plan that there is already; -1: none.
	found int
}

type choice struct {
	plan     *Plan
	outcomes []Outcome
	err      error
}

// newSearch begins one; levels are the job's, which do not depend on the target.
func newSearch(c *course, levels []uint64, targetBytes uint64, link Link) *search {
	return &search{course: c, link: link, target: targetBytes, levels: levels, passed: map[int]choice{}, found: -1}
}

// within is Make with one effort for addresses. The card is planned for a level, as if it were no larger, until what is on it at once is given addresses within the
// target. Levels do not depend on the target, and all up to it are tried before one is refused, with patience: a target above one that there is a plan for has a plan, too.
// From the level of a plan that there is already, nothing is tried: there, the choice is the same.
func (s *search) within(ctx context.Context, how patience, effort layout.Options) (*Plan, []Outcome, error) {
	top, _ := slices.BinarySearch(s.levels, s.target+1)
	if top--; top < 0 {
		// One step needs more: what it is says whoever plans for it.
		_, outcomes, err := choose(ctx, s.course, s.target, s.link)
		return nil, outcomes, cmp.Or(err, errNoAddresses(s.target))
	}
	var outcomes []Outcome
	tried := make([]bool, top+1)
	for at := top; at > s.found; {
		tried[at] = true
		effort, placing := effort, ctx
		c, again := s.passed[at]
		if effort.AfterOnePass = again; !again {
			c.plan, c.outcomes, c.err = choose(ctx, s.course, s.levels[at], s.link)
		}
		outcomes = c.outcomes
		if need := (*NeedError)(nil); errors.As(c.err, &need) {
			at = how.next(s.levels, tried, at, 0)
			continue
		}
		if c.err != nil {
			return nil, outcomes, c.err
		}
		if ctx.Err() != nil { // what there is gets its addresses all the same, without a search
			effort, placing = layout.Options{MaxNodes: -1}, context.WithoutCancel(ctx)
		}
		c.plan.TargetBytes, c.plan.tightened = s.target, at < top
		height, err := c.plan.place(placing, s.course.job, effort)
		if err != nil {
			return nil, outcomes, err
		}
		if height <= s.target {
			s.found = at
			return c.plan, outcomes, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, outcomes, err // with more time, it might have been given addresses
		}
		if how == hurried {
			s.passed[at] = c
		}
		at = how.next(s.levels, tried, at, height-s.target)
	}
	return nil, outcomes, errNoAddresses(s.target)
}

func errNoAddresses(targetBytes uint64) error {
	return fmt.Errorf("no addresses were found within %d bytes for what is on the card at once", targetBytes)
}

// patience says what is done once a level that is lower by what was too much is not there: the levels that were passed over are tried, the highest first, or none.
type patience bool

const (
	patient patience = true
	hurried patience = false
)

// next is the level to try after one; -1: none.
func (how patience) next(levels []uint64, tried []bool, at int, over uint64) int {
	if levels[at] > over {
		next, found := slices.BinarySearch(levels[:at], levels[at]-over)
		if !found {
			next--
		}
		if next >= 0 && !tried[next] {
			return next
		}
	}
	for next := len(tried) - 1; next >= 0 && how == patient; next-- {
		if !tried[next] {
			return next
		}
	}
	return -1
}

// largeJob is how many blocks a job has from where on the other methods of one pass are left out where the first finds addresses for a level.
const largeJob = 10_000

// maxLevels is how many levels there are between the least that a step needs and the most that lives at once.
const maxLevels = 256

// Floor is what one step needs at least on the card: what it uses, and what cannot be moved.
func (j *Job) Floor() uint64 {
	need := make([]int64, len(j.StepNanos)+1)
	stay := func(from, to int64, size uint64) {
		need[from] += int64(size)
		need[to] -= int64(size)
	}
	for i, b := range j.Blocks {
		accesses := j.Accesses[i]
		if len(accesses) == 0 || b.SizeBytes < MinBytes {
			stay(b.Start, b.End, b.SizeBytes)
			continue
		}
		last := int64(accesses[len(accesses)-1])
		if b.Start < last {
			stay(b.Start, b.Start+1, b.SizeBytes)
		}
		for _, a := range accesses[:len(accesses)-1] {
			if int64(a) > b.Start {
				stay(int64(a), int64(a)+1, b.SizeBytes)
			}
		}
		stay(last, b.End, b.SizeBytes)
	}
	floor, sum := int64(0), int64(0)
	for _, n := range need {
		sum += n
		floor = max(floor, sum)
	}
	return uint64(floor)
}

// levels are what the card is planned for, ascending: from what one step needs at least to what it needs without swapping.
func (j *Job) levels() []uint64 {
	floor, bound := j.Floor(), layout.LiveBound(j.Blocks)
	levels := make([]uint64, 0, maxLevels+1)
	for k := range uint64(maxLevels + 1) {
		high, low := bits.Mul64(bound-floor, k)
		step, _ := bits.Div64(high, low, maxLevels)
		levels = append(levels, floor+step)
	}
	return slices.Compact(levels)
}

// Choose is Make without addresses, for a card whose memory an allocator hands out: the sum of what is on the card stays within the target.
func Choose(ctx context.Context, j *Job, targetBytes uint64, link Link) (*Plan, []Outcome, error) {
	if err := j.Check(); err != nil {
		return nil, nil, err
	}
	if err := link.check(); err != nil {
		return nil, nil, err
	}
	return choose(ctx, newCourse(j), targetBytes, link)
}

// Again carries the trips of a plan out in a job that takes other times, without addresses.
func Again(ctx context.Context, j *Job, p *Plan, link Link) (*Plan, error) {
	if err := j.Check(); err != nil {
		return nil, err
	}
	if err := link.check(); err != nil {
		return nil, err
	}
	chosen := make([]Absence, len(p.Moves))
	for i, m := range p.Moves {
		chosen[i] = Absence{Block: m.Block, From: m.AfterStep, To: m.ForStep}
	}
	return simulate(ctx, newCourse(j), chosen, p.TargetBytes, link)
}

// choose has every score choose, simulates each choice, and takes the one that waits least.
func choose(ctx context.Context, c *course, targetBytes uint64, link Link) (best *Plan, outcomes []Outcome, err error) {
	type tried struct {
		plan *Plan
		err  error
		cut  bool
	}
	tries, s := make([]tried, len(Policies)), look(c, targetBytes, link)
	var group sync.WaitGroup
	slots := make(chan struct{}, max(runtime.GOMAXPROCS(0), 1))
	for i, policy := range Policies {
		group.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() {
				<-slots
				group.Done()
			}()
			t := &tries[i]
			t.plan, t.err = simulate(ctx, c, policy.choose(ctx, s), targetBytes, link)
			t.cut = ctx.Err() != nil // what was chosen or simulated may be half done
		}()
	}
	group.Wait()
	var firstErr error
	for i, t := range tries {
		name := Policies[i].Name
		switch p := t.plan; {
		case t.cut:
		case t.err != nil:
			firstErr = errors.Join(firstErr, t.err)
			outcomes = append(outcomes, Outcome{Policy: name, Err: t.err.Error()})
		default:
			p.Policy = name
			outcomes = append(outcomes, Outcome{Policy: name, StallNanos: p.StallNanos(), MovedBytes: p.MovedBytes()})
			if best == nil || p.StallNanos() < best.StallNanos() || p.StallNanos() == best.StallNanos() && p.MovedBytes() < best.MovedBytes() {
				best = p
			}
		}
	}
	if best == nil && ctx.Err() != nil {
		return nil, outcomes, ctx.Err()
	}
	if best == nil {
		var need *NeedError
		errors.As(firstErr, &need)
		return nil, outcomes, need
	}
	return best, outcomes, nil
}

// place gives the pieces addresses.
func (p *Plan) place(ctx context.Context, j *Job, effort layout.Options) (height uint64, err error) {
	blocks := make([]layout.Block, len(p.Pieces))
	for i, piece := range p.Pieces {
		blocks[i] = layout.Block{Start: piece.From, End: piece.To, SizeBytes: j.Blocks[piece.Block].SizeBytes}
	}
	effort.GoalBytes, effort.OnlyGoal = p.TargetBytes, true
	r, err := layout.Plan(ctx, blocks, effort)
	if err != nil {
		return 0, err
	}
	for i := range p.Pieces {
		p.Pieces[i].Address = r.Offsets[i]
	}
	p.PoolBytes = r.HeightBytes
	return r.HeightBytes, nil
}

func sortMoves(moves []Move) {
	slices.SortStableFunc(moves, func(a, b Move) int {
		switch {
		case a.OutStart < b.OutStart:
			return -1
		case a.OutStart > b.OutStart:
			return 1
		}
		return int(a.Block) - int(b.Block)
	})
}
