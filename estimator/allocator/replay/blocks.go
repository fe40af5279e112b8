package replay

import (
	"errors"
	"fmt"

	"github.com/gresize/gresize/estimator/allocator"
)

// BlockBytes runs the program as recorded and returns the size of the block that served each OpAlloc, in their order: a block may be larger than its
// request, by rounding or because its rest was too small to be cut off. A request that failed has 0.
func (p *Program) BlockBytes() ([]uint64, error) {
	capacity := p.TotalBytes
	if capacity == 0 {
		capacity = Unlimited
	}
	card, err := allocator.NewCard(capacity, RunOptions{}.Policy)
	if err != nil {
		return nil, err
	}
	r := &runner{program: p}
	if err := r.open(RunOptions{}, card, nil); err != nil {
		return nil, err
	}
	for _, s := range p.Start {
		if !card.Occupy(s.Addr, s.SizeBytes) {
			return nil, fmt.Errorf("%s: %w: %d bytes", p.Name, ErrTooSmall, p.StartBytes())
		}
	}
	if err := r.adopt(p.Start); err != nil {
		return nil, err
	}
	var sizes []uint64
	for i := range p.Ops {
		op := &p.Ops[i]
		r.op = i
		_, err := r.step(op)
		var oom *allocator.OOMError
		if err != nil && !errors.As(err, &oom) {
			return nil, fmt.Errorf("%s: request %d: %w", p.Name, i, err)
		}
		if op.Kind == OpAlloc {
			state, _ := r.a.Block(r.ids[op.Block])
			sizes = append(sizes, state.SizeBytes)
		}
	}
	return sizes, nil
}
