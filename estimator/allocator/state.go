package allocator

import "sort"

// SegmentState is one segment as a snapshot shows it: a cudaMalloc, or one contiguous mapped part of an expandable range.
type SegmentState struct {
	Addr, SizeBytes   uint64
	Stream            uint64
	Small, Expandable bool
	// PoolID is the number of the private pool, 0 for the default pools.
	PoolID int64
	Blocks []BlockState
}

// BlockState is one piece of a SegmentState.
type BlockState struct {
	Addr, SizeBytes, RequestedBytes uint64
	// Live blocks are in use by the program; Pending ones were freed and wait for another stream.
	Live, Pending bool
}

// Segments returns all segments with all blocks, ascending by address.
func (a *Allocator) Segments() []SegmentState {
	var segments []SegmentState
	for i := range a.blocks {
		if b := &a.blocks[i]; b.is(flagAlive) && b.prev == none {
			segments = a.chain(segments, blockRef(i))
		}
	}
	sort.Slice(segments, func(i, j int) bool { return segments[i].Addr < segments[j].Addr })
	return segments
}

// chain appends the segments of one chain of blocks: one for a cudaMalloc, one per mapped part for a range.
func (a *Allocator) chain(segments []SegmentState, ref blockRef) []SegmentState {
	var open *SegmentState
	for ; ref != none; ref = a.blocks[ref].next {
		b := &a.blocks[ref]
		if !b.is(flagMapped) {
			open = nil
			continue
		}
		if open == nil {
			p := a.pools[b.pool]
			s := SegmentState{Addr: b.addr, Stream: a.streams[b.stream], Small: p.small, Expandable: b.rng >= 0}
			if p.private != nil {
				s.PoolID = p.private.id
			}
			segments = append(segments, s)
			open = &segments[len(segments)-1]
		}
		open.SizeBytes += b.size
		state := BlockState{Addr: b.addr, SizeBytes: b.size, Live: b.is(flagAllocated), Pending: !b.is(flagAllocated) && (b.events > 0 || b.is(flagUses))}
		if state.Live || state.Pending {
			state.RequestedBytes = b.requested
		}
		open.Blocks = append(open.Blocks, state)
	}
	return segments
}

// Block returns what a live block is.
func (a *Allocator) Block(id BlockID) (BlockState, bool) {
	ref, err := a.lookup(id)
	if err != nil {
		return BlockState{}, false
	}
	b := &a.blocks[ref]
	return BlockState{Addr: b.addr, SizeBytes: b.size, RequestedBytes: b.requested, Live: true}, true
}
