package replay

import (
	"slices"
	"testing"
)

// TestSpliced: requests come where they are told to, others are exchanged, and the moment until which a block waits for a stream moves with them.
func TestSpliced(t *testing.T) {
	alloc := func(block int32) Op { return Op{Kind: OpAlloc, Block: block, Bytes: 512} }
	free := func(block int32) Op { return Op{Kind: OpFree, Block: block} }
	p := &Program{Ops: []Op{alloc(0), alloc(1), free(0), free(1)}, Blocks: 2, Answers: make([]Answer, 4), Steps: []int{1, 4}, pendingUntil: map[uint64]int{7: 2}, fed: true}
	ops := slices.Clone(p.Ops)
	ops[3].Block = 2
	q := p.Spliced(ops, []Insertion{{At: 2, Op: free(1)}, {At: 2, Op: alloc(2)}, {At: 4, Op: Op{Kind: OpStats}}}, 3)
	want := []Op{alloc(0), alloc(1), free(1), alloc(2), free(0), free(2), {Kind: OpStats}}
	if !slices.Equal(q.Ops, want) || q.Blocks != 3 || q.Answers != nil || q.pendingUntil[7] != 4 || !slices.Equal(q.Steps, []int{1, 7}) || q.fed {
		t.Errorf("%+v", q)
	}
	if r, err := q.Run(RunOptions{}); err != nil || r.Stats.AllocatedBytes.All.Current != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if p.Ops[3].Block != 1 || p.pendingUntil[7] != 2 {
		t.Error("the program itself has changed")
	}
}
