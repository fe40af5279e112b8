package allocator

import (
	"errors"
	"fmt"
)

// AdoptedSegment is a segment that existed before the simulation begins. What its blocks do not cover is free.
type AdoptedSegment struct {
	Addr, SizeBytes   uint64
	Stream            uint64
	Small, Expandable bool
	Blocks            []AdoptedBlock // ascending by address
}

// AdoptedBlock is a live block of an AdoptedSegment.
type AdoptedBlock struct {
	Addr, SizeBytes, RequestedBytes uint64
}

// Adopt puts a segment with its live blocks into an allocator that has served no request yet, and returns the blocks. Expandable segments of one
// stream and pool must come in ascending order: those near each other become one range.
func (a *Allocator) Adopt(s AdoptedSegment) ([]BlockID, error) {
	if s.SizeBytes == 0 || s.SizeBytes > maxRequestBytes || s.Addr > 1<<62 {
		return nil, fmt.Errorf("segment %#x: size %d is impossible", s.Addr, s.SizeBytes)
	}
	p := a.large
	if s.Small {
		p = a.small
	}
	stream := a.stream(s.Stream)
	set := a.set(p, stream)
	rng := int32(-1)
	var ref blockRef
	if s.Expandable {
		var err error
		if ref, err = a.adoptMapped(p, set, stream, s); err != nil {
			return nil, err
		}
		rng = a.blocks[ref].rng
		a.stats.DeviceAllocs++
	} else {
		ref = a.newBlock(p, stream, s.Addr, s.SizeBytes)
		a.blocks[ref].born = a.nextBirth()
		a.stats.Segment.rise(s.Small, 1)
		a.stats.DeviceAllocs++
	}
	a.totalSegments += s.SizeBytes
	a.stats.ReservedBytes.rise(s.Small, int64(s.SizeBytes))

	// ref now covers the whole segment and is in no set: cut the live blocks and the gaps off its low end, one after the other.
	ids := make([]BlockID, 0, len(s.Blocks))
	end := s.Addr + s.SizeBytes
	at := s.Addr
	var free []blockRef
	for _, b := range s.Blocks {
		if b.Addr < at || b.SizeBytes == 0 || b.SizeBytes > end-b.Addr || b.Addr >= end || b.RequestedBytes > b.SizeBytes {
			return nil, fmt.Errorf("segment %#x: block %#x of %d bytes does not fit behind %#x", s.Addr, b.Addr, b.SizeBytes, at)
		}
		if b.Addr > at {
			gap, rest := a.cutLow(ref, b.Addr-at)
			free = append(free, gap)
			ref = rest
		}
		live := ref
		at = b.Addr + b.SizeBytes
		if at < end {
			live, ref = a.cutLow(ref, b.SizeBytes)
		} else {
			ref = none
		}
		block := &a.blocks[live]
		block.flags |= flagAllocated
		block.requested = b.RequestedBytes
		size := int64(b.SizeBytes)
		a.stats.Allocation.rise(s.Small, 1)
		a.stats.AllocatedBytes.rise(s.Small, size)
		a.stats.Active.rise(s.Small, 1)
		a.stats.ActiveBytes.rise(s.Small, size)
		a.stats.RequestedBytes.rise(s.Small, int64(b.RequestedBytes))
		ids = append(ids, a.id(live))
	}
	if ref != none {
		free = append(free, ref)
	}
	for _, f := range free {
		b := &a.blocks[f]
		set.free.insert(freeEntry{b.key(), f})
		if rng < 0 && b.split() {
			a.stats.InactiveSplit.rise(s.Small, 1)
			a.stats.InactiveSplitBytes.rise(s.Small, int64(b.size))
		}
	}
	return ids, nil
}

// cutLow cuts size bytes off the low end of ref as a new block.
func (a *Allocator) cutLow(ref blockRef, size uint64) (low, rest blockRef) {
	from := a.blocks[ref]
	low = a.newBlock(a.pools[from.pool], from.stream, from.addr, size)
	b := &a.blocks[low]
	b.rng, b.born, b.prev, b.next = from.rng, from.born, from.prev, ref
	if b.prev != none {
		a.blocks[b.prev].next = low
	}
	r := &a.blocks[ref]
	r.prev = low
	r.addr += size
	r.size -= size
	return low, ref
}

var errOrder = errors.New("expandable segments are not in ascending order, or not in whole units")

// adoptMapped makes the segment a mapped part of an address range, a new one when none of the stream reaches it.
func (a *Allocator) adoptMapped(p *pool, set *streamSet, stream int32, s AdoptedSegment) (blockRef, error) {
	var hole blockRef = none
	for _, u := range set.unmapped {
		if b := &a.blocks[u.block]; b.addr <= s.Addr && s.Addr+s.SizeBytes <= b.addr+b.size {
			hole = u.block
		}
	}
	if hole == none {
		var ok bool
		if hole, ok = a.addRange(p, stream, s.Addr, max(a.rangeBytes(p), roundUp(s.SizeBytes, a.rangeUnit(p)))); !ok || a.blocks[hole].size < s.SizeBytes {
			return none, fmt.Errorf("segment %#x: %w", s.Addr, errOrder)
		}
	}
	b := &a.blocks[hole]
	unit := a.ranges[b.rng].unit
	if (s.Addr-b.addr)%unit != 0 || s.SizeBytes%unit != 0 {
		return none, fmt.Errorf("segment %#x: %w", s.Addr, errOrder)
	}
	set.dropUnmapped(b.addr)
	if before := s.Addr - b.addr; before > 0 {
		low, _ := a.cutLow(hole, before)
		a.blocks[low].flags &^= flagMapped
		set.addUnmapped(a.blocks[low].addr, low)
	}
	if b = &a.blocks[hole]; b.size > s.SizeBytes {
		low, rest := a.cutLow(hole, s.SizeBytes)
		a.blocks[rest].flags &^= flagMapped
		set.addUnmapped(a.blocks[rest].addr, rest)
		hole = low
	}
	a.blocks[hole].flags |= flagMapped
	return hole, nil
}
