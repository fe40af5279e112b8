package replay

import "slices"

// Insertion is a request that comes before the request At of a program.
type Insertion struct {
	At int
	Op Op
}

// Spliced is the program with other requests between its own, and with ops in the place of those. Insertions are in order; blocks is how many blocks there are then.
// Nothing is known of the answers.
func (p *Program) Spliced(ops []Op, insertions []Insertion, blocks int) *Program {
	q := *p
	q.Ops, q.Blocks, q.Answers, q.Final, q.fed = make([]Op, 0, len(ops)+len(insertions)), blocks, nil, nil, false
	moved := make([]int, len(ops)+1) // by request: its new place
	for i := range len(ops) + 1 {
		for len(insertions) > 0 && insertions[0].At <= i {
			q.Ops = append(q.Ops, insertions[0].Op)
			insertions = insertions[1:]
		}
		if moved[i] = len(q.Ops); i < len(ops) {
			q.Ops = append(q.Ops, ops[i])
		}
	}
	q.Steps = make([]int, len(p.Steps))
	for i, step := range p.Steps {
		q.Steps[i] = moved[min(step, len(ops))]
	}
	q.pendingUntil = make(map[uint64]int, len(p.pendingUntil))
	for stream, until := range p.pendingUntil {
		q.pendingUntil[stream] = moved[min(until, len(ops))]
	}
	q.Start = slices.Clone(p.Start)
	return &q
}
