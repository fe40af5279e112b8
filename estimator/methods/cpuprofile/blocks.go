package cpuprofile

import (
	"fmt"
	"math"
)

// Never is the death of a block that is not freed in the trace.
const Never = math.MaxInt64

// Block is memory from its allocation to its free.
type Block struct {
	Bytes int64
	// Birth and Death are indices of Trace.Memory, Death -1 where no free was seen.
	Birth, Death int32
	BornNanos    int64
	DiedNanos    int64
}

// Alive says that the block was not freed in the trace.
func (b *Block) Alive() bool { return b.Death < 0 }

// Blocks pairs allocations with frees. freedBefore counts frees of what was allocated before the trace began. What cannot be paired, such as two
// allocations at one address without a free between them, is an error that names the events: the sum of such a trace would be a guess.
func (t *Trace) Blocks() (blocks []Block, freedBefore int, err error) {
	open := make(map[uint64]int32)
	for i := range t.Memory {
		m := &t.Memory[i]
		at, isOpen := open[m.Addr]
		switch {
		case m.Bytes > 0 && isOpen:
			return nil, 0, fmt.Errorf("%w: event %d: %d bytes are allocated at %#x, where the block of event %d was not freed: a free is missing",
				ErrTrace, m.Event, m.Bytes, m.Addr, t.Memory[blocks[at].Birth].Event)
		case m.Bytes > 0:
			open[m.Addr] = int32(len(blocks))
			blocks = append(blocks, Block{Bytes: m.Bytes, Birth: int32(i), Death: -1, BornNanos: m.AtNanos, DiedNanos: Never})
		case m.Bytes < 0 && !isOpen:
			freedBefore++
		case m.Bytes < 0:
			b := &blocks[at]
			if b.Bytes != -m.Bytes {
				return nil, 0, fmt.Errorf("%w: event %d: %d bytes are freed at %#x, where event %d allocated %d", ErrTrace, m.Event, -m.Bytes, m.Addr, t.Memory[b.Birth].Event, b.Bytes)
			}
			b.Death, b.DiedNanos = int32(i), m.AtNanos
			delete(open, m.Addr)
		}
	}
	return blocks, freedBefore, nil
}
