package layout

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
)

// Options bound the work. Work is counted, not timed: the same blocks always get the same layout, unless a context ends the work first.
type Options struct {
	// MaxNodes bounds the nodes of all exact searches together, for 200 blocks; of more blocks it is proportionally fewer, as each costs more. 0 means
	// DefaultMaxNodes, a negative number means no search.
	MaxNodes int64
	// GoalBytes is a height that would do; it is searched first. 0 means none.
	GoalBytes uint64
	// OnlyGoal ends the work where a layout of GoalBytes is known, and searches for nothing lower: that is harder.
	OnlyGoal bool
	// OnePass is the first method alone, the quickest.
	OnePass bool
	// AfterOnePass leaves that method out: it was tried, and its layout is not wanted.
	AfterOnePass bool
}

// DefaultMaxNodes is the default of Options.MaxNodes.
const DefaultMaxNodes = 1_500_000

// maxSearchBlocks is the largest problem that is searched.
const maxSearchBlocks = 4_000

// Result is the best layout that was found, and what is known of better ones.
type Result struct {
	Layout
	// LiveBoundBytes is the largest sum of live blocks. BoundBytes is the height below which nothing was proven to fit, at least that.
	LiveBoundBytes, BoundBytes uint64
	// SmartPoolBytes is the height of the published method; 0 when it was too much work.
	SmartPoolBytes uint64
	// Nodes counts what the searches looked at.
	Nodes int64
	// Cut: the context ended before the work was done.
	Cut bool
}

// Optimal tells that no layout is lower.
func (r *Result) Optimal() bool { return r.HeightBytes == r.BoundBytes }

// Plan looks for the lowest layout: one-pass methods first, then a search for a layout at the lower bound, then between the bound and the best. When ctx ends,
// the best so far is the answer; where there is none yet, the error of ctx.
func Plan(ctx context.Context, blocks []Block, o Options) (*Result, error) {
	if err := Check(blocks); err != nil {
		return nil, err
	}
	inTime := newOrder(blocks)
	r := &Result{LiveBoundBytes: liveBound(blocks, inTime.events)}
	r.BoundBytes = r.LiveBoundBytes
	r.Layout = Layout{Offsets: make([]uint64, len(blocks)), Method: "empty"}
	if len(blocks) == 0 || r.BoundBytes == 0 {
		return r, nil
	}
	r.HeightBytes = math.MaxUint64
	// The published method takes longer than a pass. Of many blocks both run at once, since where a pass is not enough the other is wanted, too.
	poolCtx, end := context.WithCancel(ctx)
	defer end()
	pool := sync.OnceValue(func() *Layout { return smartPool(poolCtx, blocks, inTime) })
	keepSmartPool := func() {
		if l := pool(); l != nil {
			r.SmartPoolBytes = l.HeightBytes
			r.keep(l)
		}
	}
	switch {
	case o.OnePass:
	case !o.OnlyGoal:
		keepSmartPool()
	case len(blocks) > maxSearchBlocks:
		go pool()
	}
	orders := []string{"WA", "AW"}
	if o.AfterOnePass {
		orders = orders[1:]
	}
	for _, order := range orders {
		if r.Optimal() || r.enough(o) || len(blocks) > maxSearchBlocks && r.HeightBytes-r.BoundBytes < r.BoundBytes/1000 {
			break
		}
		if l := skyline(ctx, blocks, inTime, ranks(blocks, nil, order, nil)); l != nil {
			r.keep(l)
		}
		if o.OnePass {
			break
		}
	}
	if o.OnePass {
		o.MaxNodes = -1
	} else if o.OnlyGoal && !r.enough(o) {
		keepSmartPool()
	}
	if o.MaxNodes == 0 {
		o.MaxNodes = DefaultMaxNodes
	}
	if !r.Optimal() && !r.enough(o) && o.MaxNodes > 0 && len(blocks) <= maxSearchBlocks {
		if p := newProblem(ctx, blocks); p != nil {
			r.improve(blocks, p, o)
		}
	}
	if r.Cut = !r.Optimal() && !r.enough(o) && ctx.Err() != nil; r.Method == "empty" {
		return nil, fmt.Errorf("no layout yet: %w", ctx.Err())
	}
	return r, nil
}

// enough tells that nothing better is wanted.
func (r *Result) enough(o Options) bool { return o.OnlyGoal && r.HeightBytes <= o.GoalBytes }

func (r *Result) keep(l *Layout) {
	if l.HeightBytes < r.HeightBytes {
		r.Layout = *l
	}
}

// improve searches for the goal, at the bound with half of the nodes, and where that leaves it open between the bound and the best, by halving.
func (r *Result) improve(blocks []Block, p *problem, o Options) {
	maxNodes := max(o.MaxNodes*200/int64(max(len(blocks), 200)), min(o.MaxNodes, 4*int64(len(blocks))))
	low, high := p.bound, int64(r.HeightBytes/p.unit) // high is reached; what is below low is given up or proven impossible
	proven := low
	at := func(target, share int64) (found bool) {
		offsets, final, nodes := attempt(blocks, p, target, min(share, maxNodes-r.Nodes))
		r.Nodes += nodes
		if offsets == nil {
			if final && target >= proven {
				proven = target + 1
				r.BoundBytes = uint64(proven) * p.unit
			}
			return false
		}
		l := Layout{Offsets: make([]uint64, len(blocks)), Method: "search"}
		for i := range blocks {
			l.Offsets[i] = uint64(offsets[i]) * p.unit
		}
		l.HeightBytes = height(blocks, l.Offsets)
		r.keep(&l)
		high = int64(r.HeightBytes / p.unit)
		return true
	}
	// Without OnlyGoal the bound is searched below, with more nodes.
	if goal := int64(min(o.GoalBytes, MaxTotalBytes) / p.unit); goal < high && (low < goal || low == goal && o.OnlyGoal) {
		at(goal, maxNodes/4+1)
	}
	if o.OnlyGoal {
		return
	}
	for target, share := low, maxNodes/2+1; low < high && r.Nodes < maxNodes && !p.ended(); target, share = low+(high-low)/2, maxNodes/8+1 {
		if !at(target, share) {
			low = max(target+1, proven)
		}
	}
}

// attempt looks for a layout of one height with a portfolio: several orders, each with and without jumping over choices that have nothing to do with a
// failure, again and again with twice the nodes, slightly disturbed orders, and many short tries that learn from each other. Luck decides between
// milliseconds and hours for one order; for many, it evens out.
func attempt(blocks []Block, p *problem, target, maxNodes int64) (offsets []int64, final bool, nodes int64) {
	orders := []string{"TWA", "TLA", "TAW", "WAT"}
	random := rand.New(rand.NewPCG(1, 2))
	short := int64(3 * len(blocks))
	under := make([]pressure, 3)
	for k := range under {
		under[k] = make(pressure, len(p.section))
	}
	for limit, learned := int64(2*len(blocks)), 0; ; limit *= 2 {
		try := func(rank []int32, jump bool, limit int64, learns pressure) bool {
			s := newSearch(p, target, rank)
			s.jump = jump
			var found bool
			found, final = s.run(min(limit, maxNodes-nodes))
			nodes += s.nodes
			if found {
				offsets = s.solution
			}
			if learns != nil {
				learns.learn(s.failed)
			}
			return found || final || nodes >= maxNodes || p.ended()
		}
		for _, order := range orders {
			if try(ranks(blocks, p, order, nil), true, limit, nil) {
				return offsets, final, nodes
			}
		}
		if try(ranks(blocks, p, orders[0], nil), false, limit, nil) {
			return offsets, final, nodes
		}
		for k := range 4 {
			if try(ranks(blocks, p, orders[k%2], random), k%4 == 3, limit, nil) {
				return offsets, final, nodes
			}
		}
		for begin := nodes; nodes-begin < 24*limit; learned++ {
			k := learned % len(under)
			if try(ranksUnder(blocks, p, orders[k], random, under[k]), true, short, under[k]) {
				return offsets, final, nodes
			}
		}
	}
}

// pressure is by section how much of what failed lately failed there.
type pressure []float64

func (u pressure) learn(failed []float64) {
	var sum float64
	for _, f := range failed {
		sum += math.Sqrt(f)
	}
	for t, f := range failed {
		u[t] *= 0.9
		if sum > 0 {
			u[t] += math.Sqrt(f) / sum
		}
	}
}

// ranks puts blocks in order by falling width of life (W), area (A), sections lived through (L), or load of the fullest section lived through (T).
// With random, widths and areas are disturbed a little.
func ranks(blocks []Block, p *problem, keys string, random *rand.Rand) []int32 {
	return ranksUnder(blocks, p, keys, random, nil)
}

// ranksUnder counts a section as fuller than it is by the pressure that it is under, so that blocks that live where earlier searches failed come first.
func ranksUnder(blocks []Block, p *problem, keys string, random *rand.Rand, under pressure) []int32 {
	var load []float64
	if p != nil {
		load = make([]float64, len(p.section))
		for t, live := range p.section {
			for _, b := range live {
				load[t] += float64(p.size[b])
			}
			if under != nil {
				load[t] += 0.3 * under[t] * float64(p.bound)
			}
		}
	}
	values := make([][3]float64, len(blocks))
	for i, b := range blocks {
		noise := 1.0
		if random != nil {
			noise = math.Exp(0.3 * random.NormFloat64())
		}
		width := float64(b.End) - float64(b.Start)
		for k, key := range keys {
			switch key {
			case 'W':
				values[i][k] = width * noise
			case 'A':
				values[i][k] = width * float64(b.SizeBytes) * noise
			case 'L':
				values[i][k] = float64(p.last[i]-p.first[i]) * noise
			case 'T':
				for t := p.first[i]; t < p.last[i]; t++ {
					values[i][k] = max(values[i][k], load[t])
				}
			}
		}
	}
	// The first key counts most: it is sorted by last.
	items := make([]keyed, len(blocks))
	for i := range items {
		items[i].item = int32(i)
	}
	for k := len(keys) - 1; k >= 0; k-- {
		for at, e := range items {
			items[at].key = falling(values[e.item][k])
		}
		items = sorted(items)
	}
	rank := make([]int32, len(blocks))
	for at, e := range items {
		rank[e.item] = int32(at)
	}
	return rank
}
