package planning

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/gresize/gresize/estimator/allocator/replay"
)

// Use is an operator of the one step that was looked at: from where to where in the allocator's record it ran, what it read and wrote, and how long it takes.
type Use struct {
	From, To  Place
	Addresses []uint64
	Seconds   float64
}

// Seen are the uses of a whole run: those of the step that was looked at, and the same of the steps that are like it.
type Seen struct {
	// Operators is how many were looked at, Steps in how many steps they were found again.
	Operators, Steps int
	accesses         [][]int32 // by block, ascending; nil where it is not known
	stepNanos        []int64   // by step; -1 where it is not known
	timed            bool      // whether the operators' times are known
}

const (
	// mostAhead is how many blocks more the step that was looked at may make in a row than the others do: what looks at an operator holds what it works on, so that
	// PyTorch adds into a new block where it would else add in place.
	mostAhead = 64
	// mostStrange is the share of a step's blocks that may be none of the step that was looked at.
	mostStrange = 0.05
	// mostDense bounds the accesses that stand for "it may be used at any time", mostNoted all of them: a bundle comes from a stranger.
	mostDense = 1 << 22
	mostNoted = 1 << 25
)

// span is a step of training, or what lies before the first or after the last: its requests, and those of its allocations.
type span struct {
	from, to int
	made     []int32
}

// See lays the uses of one step on a trace. Blocks are followed by their addresses within the step; in the others, they are found by their place in the sequence of
// allocations. A block that lives on through steps that are not like it counts as used throughout them.
func (l *Lifetimes) See(p *replay.Program, uses []Use) (*Seen, error) {
	if len(p.Start) > 0 || len(p.Answers) != len(p.Ops) {
		return nil, errors.New("the record does not begin with the first request")
	}
	if len(uses) == 0 {
		return nil, errors.New("no use was recorded")
	}
	if int64(len(uses))*int64(len(p.Steps)+1) > mostNoted {
		return nil, fmt.Errorf("%w: %d uses of a step, and %d steps", ErrInvalid, len(uses), len(p.Steps))
	}
	v := &viewer{l: l, p: p, blockOf: l.MadeBy(), seen: &Seen{Operators: len(uses), accesses: make([][]int32, len(l.Blocks)), stepNanos: make([]int64, l.Requests+2)}}
	if err := v.place(uses); err != nil {
		return nil, err
	}
	if v.spread(); v.noted > mostNoted {
		return nil, fmt.Errorf("%w: the uses are of more than %d requests", ErrInvalid, mostNoted)
	}
	for i, a := range v.seen.accesses {
		if a == nil {
			continue
		}
		b := l.Blocks[i]
		a = append(a, int32(b.Start))
		slices.Sort(a)
		v.seen.accesses[i] = slices.Compact(a)
	}
	return v.seen, nil
}

type viewer struct {
	l       *Lifetimes
	p       *replay.Program
	blockOf []int32 // by request: 1 more than the block that it made
	spans   []span
	looked  int // the span that was looked at
	uses    []placed
	seen    *Seen
	noted   int64 // accesses so far
}

// placed is a use by steps of the trace and blocks.
type placed struct {
	from, to int32
	blocks   []int32
	nanos    int64
}

// place finds the requests and the blocks of the uses, and the step that they are of.
func (v *viewer) place(uses []Use) error {
	places := NewPlaces(v.p)
	at := map[uint64]int32{} // address -> block that lives there
	next := 0
	first, last := len(v.p.Ops), 0
	for n := range uses {
		u := &uses[n]
		from, err := places.Request(u.From)
		if err != nil {
			return err
		}
		to, err := places.Request(u.To)
		if err != nil {
			return err
		}
		if from > to || to < last {
			return fmt.Errorf("%w: use %d is before the one before it", ErrInvalid, n)
		}
		for ; next < to; next++ {
			if v.blockOf[next] > 0 {
				at[v.p.Answers[next].Addr] = v.blockOf[next] - 1
			}
		}
		first, last = min(first, from), to
		v.seen.timed = v.seen.timed || u.Seconds > 0
		here := placed{from: int32(from), to: int32(to), nanos: int64(u.Seconds * 1e9)}
		for _, address := range u.Addresses {
			if b, ok := at[address]; ok && v.l.Blocks[b].Start <= int64(to) && v.l.Blocks[b].End > int64(from) {
				here.blocks = append(here.blocks, b)
			}
		}
		slices.Sort(here.blocks)
		here.blocks = slices.Compact(here.blocks)
		v.uses = append(v.uses, here)
	}
	begin := 0
	v.looked = -1
	for _, end := range append(slices.Clone(v.p.Steps), len(v.p.Ops)) {
		s := span{from: begin, to: end}
		for i := begin; i < end; i++ {
			if v.blockOf[i] > 0 {
				s.made = append(s.made, int32(i))
			}
		}
		if first >= begin && last <= end {
			v.looked = len(v.spans)
		}
		v.spans = append(v.spans, s)
		begin = end
	}
	if v.looked < 0 {
		return errors.New("the uses are not those of one step")
	}
	return nil
}

// match pairs a span's allocations with those of the span that was looked at: by allocation of the latter, the request of the former, or -1; nil where the two are not alike.
func (v *viewer) match(s *span) []int32 {
	looked := v.spans[v.looked].made
	pairs := make([]int32, len(looked))
	for i := range pairs {
		pairs[i] = -1
	}
	next, strange := 0, 0
	for _, request := range s.made {
		ahead := slices.IndexFunc(looked[next:min(next+mostAhead, len(looked))], func(other int32) bool { return v.p.Ops[other].Bytes == v.p.Ops[request].Bytes })
		if ahead < 0 {
			strange++
			continue
		}
		pairs[next+ahead] = request
		next += ahead + 1
	}
	if float64(strange) > mostStrange*float64(len(s.made)) || next == 0 {
		return nil
	}
	return pairs
}

// spread lays the uses on each span that is like the one that was looked at.
func (v *viewer) spread() {
	home := &v.spans[v.looked]
	matches := make([][]int32, len(v.spans))
	for k := range v.spans {
		if matches[k] = v.match(&v.spans[k]); matches[k] != nil {
			v.seen.Steps++
		}
	}
	role := map[int32]int{} // block -> its allocation in the step that was looked at
	for n, request := range home.made {
		role[v.blockOf[request]-1] = n
	}
	carried := map[int32]int{} // block of the step before -> its allocation, in terms of the step that was looked at
	if v.looked > 0 && matches[v.looked-1] != nil {
		for n, request := range matches[v.looked-1] {
			if request >= 0 {
				carried[v.blockOf[request]-1] = n
			}
		}
	}
	lasting := map[int32]bool{}
	for k := range v.spans {
		pairs := matches[k]
		if pairs == nil {
			for i := v.spans[k].from; i < v.spans[k].to; i++ {
				v.seen.stepNanos[i+1] = -1
			}
			continue
		}
		moved := v.clock(&v.spans[k], pairs)
		for _, u := range v.uses {
			from, to := moved(u.from), moved(u.to)
			if u.nanos > 0 && int(to) < len(v.seen.stepNanos) {
				v.seen.stepNanos[to] += u.nanos
			}
			for _, b := range u.blocks {
				block := b
				if n, made := role[b]; made {
					if pairs[n] < 0 {
						continue
					}
					block = v.blockOf[pairs[n]] - 1
				} else if n, from := carried[b]; from {
					if k == 0 || matches[k-1] == nil || matches[k-1][n] < 0 {
						continue
					}
					block = v.blockOf[matches[k-1][n]] - 1
				} else {
					lasting[b] = true
				}
				v.use(block, from, to)
			}
		}
	}
	v.throughout(lasting, matches)
}

// clock turns steps of the span that was looked at into those of another: by the allocation before, and the distance to it.
func (v *viewer) clock(s *span, pairs []int32) func(int32) int32 {
	home := &v.spans[v.looked]
	type anchor struct{ here, there int32 }
	anchors := []anchor{{int32(home.from), int32(s.from)}}
	more := make([]int32, home.to-home.from+2) // by step: how many requests before it make or free a block that the other has not
	for n, request := range pairs {
		if request >= 0 {
			anchors = append(anchors, anchor{home.made[n] + 1, request + 1})
			continue
		}
		more[home.made[n]-int32(home.from)+1]++
		if freed := v.l.Blocks[v.blockOf[home.made[n]]-1].End - int64(home.from); freed < int64(len(more)) {
			more[freed]++
		}
	}
	for i := 1; i < len(more); i++ {
		more[i] += more[i-1]
	}
	beyond := func(step int32) int32 { return more[min(max(step-int32(home.from), 0), int32(len(more)-1))] }
	return func(step int32) int32 {
		n := max(sort.Search(len(anchors), func(i int) bool { return anchors[i].here > step })-1, 0)
		end := int32(s.to)
		if n+1 < len(anchors) {
			end = anchors[n+1].there - 1
		}
		here := anchors[n].here
		return max(min(anchors[n].there+step-here-beyond(step)+beyond(here), end), anchors[n].there)
	}
}

// use notes that a block is used from one step to another. It lives then: the clock may be a few requests off.
func (v *viewer) use(block, from, to int32) {
	b := v.l.Blocks[block]
	within := func(step int32) int64 { return min(max(int64(step), b.Start), b.End-1) }
	if v.noted += within(to) - within(from) + 1; v.noted > mostNoted {
		return
	}
	for step := within(from); step <= within(to); step++ {
		if a := v.seen.accesses[block]; len(a) == 0 || int64(a[len(a)-1]) != step {
			v.seen.accesses[block] = append(a, int32(step))
		}
	}
}

// throughout has blocks that live on through spans that were not like the one that was looked at used at each step of them.
func (v *viewer) throughout(lasting map[int32]bool, matches [][]int32) {
	dense := 0
	for block := range lasting {
		b := v.l.Blocks[block]
		for k, s := range v.spans {
			if from, to := max(int64(s.from), b.Start), min(int64(s.to), b.End-1); matches[k] == nil && from <= to {
				if dense += int(to - from); dense > mostDense {
					v.seen.accesses[block] = nil
					break
				}
				v.use(block, int32(from), int32(to))
			}
		}
	}
}

// Timed says whether it is known how long the operators take.
func (s *Seen) Timed() bool { return s.timed }
