package offload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gresize/gresize/estimator/analysis/planning"
	"github.com/gresize/gresize/estimator/analysis/planning/swap"
	"github.com/gresize/gresize/estimator/analysis/utilization"
)

// Schema names the form of a plan's file. It changes when a key changes its meaning.
const Schema = "gresize.offload/1"

// Plan is what a job's Python layer carries out. docs/run.md describes the file.
type Plan struct {
	Schema       string `json:"schema"`
	TorchVersion string `json:"torch_version"`
	// GPU is the name of the card that it was made for.
	GPU string `json:"gpu,omitempty"`
	// TargetBytes is the card's memory that the job may take, all in all; AllocatorBytes what of it the plan was made for: live blocks of PyTorch's allocator.
	TargetBytes    int64 `json:"target_bytes"`
	AllocatorBytes int64 `json:"allocator_bytes"`
	// HostBytes is the pinned host memory that is taken at most.
	HostBytes int64 `json:"host_bytes"`
	// ExpandableSegments: the job's allocator is told to use them.
	ExpandableSegments bool `json:"expandable_segments,omitempty"`
	// Regions are the sizes of the pieces that the job asks its allocator for before all else.
	Regions []int64 `json:"regions,omitempty"`
	// BaseNanos is the card's time of the largest iteration without moves, TotalNanos with them; MovedBytes its traffic in both directions.
	BaseNanos  int64 `json:"base_ns"`
	TotalNanos int64 `json:"total_ns"`
	MovedBytes int64 `json:"moved_bytes"`
	// Slowdown is the time that the moves add, as a share of BaseNanos; left out where the time of kernels is not known.
	Slowdown   *utilization.Interval `json:"slowdown,omitempty"`
	Iterations []Iteration           `json:"iterations"`
	// State are the tensors of the optimizer's state that leave after each of its steps.
	State []StateMove `json:"state,omitempty"`
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

// StateMove is a tensor of the optimizer's state, by its number, that leaves the card after a step. It has left by event Gone of the iteration that follows, and begins to
// come back at event Back; -1: before the next step.
type StateMove struct {
	State int    `json:"state"`
	Bytes uint64 `json:"bytes"`
	Gone  int    `json:"gone"`
	Back  int    `json:"back"`
}

// NeedError says that no plan exists: so much has to be on the card at once.
type NeedError struct {
	NeedBytes, AllocatorBytes int64
	// Outside: it is needed outside of the iterations, where nothing can be moved. Segments: the blocks would fit, and PyTorch's segments for them take so much.
	Outside, Segments bool
}

func (e *NeedError) Error() string {
	where := "at one moment of an iteration"
	if e.Outside {
		where = "outside of forward and backward passes"
	}
	if e.Segments {
		where = "in the segments of PyTorch's allocator"
	}
	return fmt.Sprintf("%d bytes have to be on the card %s, the plan may use %d", e.NeedBytes, where, e.AllocatorBytes)
}

const hostAlignBytes = 512

// Options are what a plan is made for.
type Options struct {
	// TargetBytes is for the plan's own record; AllocatorBytes is what live blocks of PyTorch's allocator may take.
	TargetBytes, AllocatorBytes int64
	Link                        swap.Link
}

// sequences are the iterations of the record, one of each name: a whole one where there is, and none that was looked at more closely, which takes memory of its own.
func (r *record) sequences() (order []*iteration) {
	at := map[uint32]int{}
	rank := func(it *iteration) int {
		switch {
		case !it.whole:
			return 0 // it may have been cut off
		case slices.ContainsFunc(it.events, func(e event) bool { return e.calls >= 0 }):
			return 1
		}
		return 2
	}
	for _, it := range r.saved.iterations {
		if it.saves() == 0 {
			continue
		}
		k, seen := at[it.last()]
		if !seen {
			at[it.last()] = len(order)
			order = append(order, it)
		} else if rank(it) >= rank(order[k]) {
			order[k] = it
		}
	}
	return order
}

// nothing is the plan that moves nothing.
func (r *record) nothing(q Request) *Plan {
	p := &Plan{Schema: Schema, TorchVersion: r.torch, GPU: r.gpu, TargetBytes: q.TargetBytes, ExpandableSegments: q.Expandable}
	for _, it := range r.sequences() {
		p.Iterations = append(p.Iterations, Iteration{Prefixes: it.prefixes(), Moves: []Move{}})
	}
	return p
}

// Moves is how many storages are moved in all its iterations and between them.
func (p *Plan) Moves() (n int) {
	n = len(p.State)
	for _, it := range p.Iterations {
		n += len(it.Moves)
	}
	return n
}

// plan plans the recorded run.
func (r *record) plan(ctx context.Context, o Options) (*Plan, error) {
	p := &Plan{Schema: Schema, TorchVersion: r.torch, GPU: r.gpu, TargetBytes: o.TargetBytes, AllocatorBytes: o.AllocatorBytes}
	order := r.sequences()
	if len(order) == 0 {
		return nil, errors.New("autograd saved no tensor on the card")
	}
	if outside := r.outside(); outside > o.AllocatorBytes {
		return nil, &NeedError{NeedBytes: outside, AllocatorBytes: o.AllocatorBytes, Outside: true}
	}
	clock := planning.DefaultClock
	clock.StepNanos = int64(r.times.step.Value * 1e9)
	bySize := map[uint64]int64{}
	statePeak := int64(0)
	for _, it := range order {
		w, err := r.window(it)
		if err != nil {
			return nil, err
		}
		out := Iteration{Prefixes: it.prefixes(), Moves: []Move{}}
		if w.peak > o.AllocatorBytes {
			j, err := w.job(clock, r.times.gaps[it.last()])
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
			if state := w.stateMoves(s); w.peak > statePeak {
				statePeak, p.State = w.peak, state
			}
			if s.BaseNanos > p.BaseNanos {
				p.BaseNanos, p.TotalNanos, p.MovedBytes = s.BaseNanos, s.TotalNanos, int64(s.MovedBytes())
				if p.Slowdown, err = r.slowdown(ctx, j, s, o.Link); err != nil {
					return nil, err
				}
			}
		}
		p.Iterations = append(p.Iterations, out)
	}
	for _, m := range p.State {
		bySize[m.Bytes]++
	}
	for size, count := range bySize {
		p.HostBytes += int64((size+hostAlignBytes-1)/hostAlignBytes*hostAlignBytes) * count
	}
	return p, nil
}

// slowdown is what a plan's moves cost, and what they do where the card and the host are as fast, or as slow, as is possible; nil where that is not known.
func (r *record) slowdown(ctx context.Context, j *swap.Job, s *swap.Plan, link swap.Link) (*utilization.Interval, error) {
	step := r.times.step
	if step.Value <= 0 {
		return nil, nil
	}
	share := func(s *swap.Plan) float64 { return float64(s.StallNanos()) / float64(s.BaseNanos) }
	out := &utilization.Interval{Value: share(s), Low: share(s), High: share(s)}
	for _, seconds := range []float64{step.Low, step.High} {
		other := *j
		other.StepNanos = slices.Clone(j.StepNanos)
		for i := range other.StepNanos {
			other.StepNanos[i] = max(int64(float64(other.StepNanos[i])*seconds/step.Value), 1)
		}
		again, err := swap.Again(ctx, &other, s, link)
		if err != nil {
			return nil, err
		}
		out.Low, out.High = min(out.Low, share(again)), max(out.High, share(again))
	}
	return out, nil
}

// RegionBytes is the sum of its regions.
func (p *Plan) RegionBytes() (sum int64) {
	for _, bytes := range p.Regions {
		sum += bytes
	}
	return sum
}
