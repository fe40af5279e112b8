package offload

import (
	"cmp"
	"slices"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
)

// foreseen is what PyTorch's allocator would do with a plan.
type foreseen struct {
	// fits: no request was refused. roomy: nor had the allocator to give back what it kept, which stops the card.
	fits, roomy bool
	// peakBytes is the most that it took from the card.
	peakBytes int64
	// ops is how many requests were simulated for it.
	ops int
}

// with is the recorded program with a plan carried out: what leaves is freed at its event, and asked for again when it comes back.
func (r *record) with(p *Plan) (*replay.Program, error) {
	type change struct {
		event, order int
		replay.Insertion
	}
	ops := slices.Clone(r.program.Ops)
	blocks := r.program.Blocks
	var changes []change
	state := map[int]int32{} // number of a tensor of the state -> the block that it is in
	for _, it := range r.saved.iterations {
		moves := p.movesOf(it)
		if len(moves) == 0 && len(p.State) == 0 {
			continue
		}
		w, err := r.window(it)
		if err != nil {
			return nil, err
		}
		for _, m := range p.State {
			block, ok := w.states[m.State]
			if !ok || m.Gone >= len(w.steps) {
				continue
			}
			life := r.lives.Blocks[w.of[block]]
			made := &r.program.Ops[life.Start-1]
			if _, moved := state[m.State]; !moved {
				state[m.State] = made.Block
			}
			back, order := w.updates, len(w.steps)
			if m.Back >= 0 && m.Back < len(w.steps) {
				back, order = w.steps[m.Back], m.Back
			}
			again := replay.Op{Kind: replay.OpAlloc, Block: int32(blocks), Bytes: made.Bytes, Stream: made.Stream}
			changes = append(changes, change{m.Gone, 0, replay.Insertion{At: w.from + w.steps[m.Gone], Op: replay.Op{Kind: replay.OpFree, Block: state[m.State]}}},
				change{order, 1, replay.Insertion{At: w.from + back, Op: again}})
			state[m.State] = int32(blocks)
			if freed := int(life.End - 1); freed < len(ops) {
				ops[freed].Block = int32(blocks)
			}
			blocks++
		}
		bySave := map[int]*storage{}
		for i := range w.storages {
			bySave[w.storages[i].save] = &w.storages[i]
		}
		for _, m := range moves {
			s := bySave[m.Save]
			if s == nil || m.Gone >= len(w.steps) || s.alone < 0 {
				continue // it is another block, stays or ends before
			}
			block := r.lives.Blocks[w.of[s.block]]
			made, freed := &r.program.Ops[block.Start-1], int(block.End-1)
			gone, back := max(m.Gone, s.alone), max(m.Back, m.Gone, s.alone)
			leaves := w.from + w.steps[min(gone, len(w.steps)-1)]
			if freed >= len(ops) || leaves > freed {
				continue
			}
			changes = append(changes, change{gone, 0, replay.Insertion{At: leaves, Op: replay.Op{Kind: replay.OpFree, Block: made.Block}}})
			if back >= len(w.steps) || w.from+w.steps[back] > freed {
				ops[freed] = replay.Op{Kind: replay.OpStats} // nobody wants it again
				continue
			}
			again := replay.Op{Kind: replay.OpAlloc, Block: int32(blocks), Bytes: made.Bytes, Stream: made.Stream}
			changes = append(changes, change{back, 1, replay.Insertion{At: w.from + w.steps[back], Op: again}})
			ops[freed].Block = int32(blocks)
			blocks++
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.event, b.event), cmp.Compare(a.order, b.order))
	})
	insertions := make([]replay.Insertion, len(changes))
	for i, c := range changes {
		insertions[i] = c.Insertion
	}
	return r.program.Spliced(ops, insertions, blocks), nil
}

// foresee runs the program with a plan on a card that leaves the allocator so much, and gives the plan regions where they help.
func (r *record) foresee(p *Plan, config allocator.Config, allocatorBytes int64) (f foreseen, err error) {
	program, err := r.with(p)
	if err != nil {
		return f, err
	}
	p.Regions, f, err = fitRegions(program, config, allocatorBytes)
	return f, err
}

// movesOf are the moves of a plan in an iteration.
func (p *Plan) movesOf(it *iteration) []Move {
	for _, planned := range p.Iterations {
		if len(planned.Prefixes) == it.saves() && planned.Prefixes[len(planned.Prefixes)-1] == it.last() {
			return planned.Moves
		}
	}
	return nil
}
