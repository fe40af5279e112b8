package allocator

import "sort"

// expandableRange is one reserved range of address space, mapped in whole units from the card.
type expandableRange struct {
	addr, size, unit uint64
	pool, stream     int32
	alive            bool
}

func (a *Allocator) expandableIn(p *pool) bool {
	if !a.version.AtLeast(2, 1) {
		return false
	}
	// Pools of graphs kept to plain segments until 2.5.
	return p.private == nil || a.version.AtLeast(2, 5)
}

// growExpandable makes a block of r.size at the first place of the stream's ranges where free and unmapped blocks suffice.
func (a *Allocator) growExpandable(r *request) bool {
	ref, ok := a.findExpandable(r)
	if !ok {
		return false
	}
	if b := &a.blocks[ref]; !b.is(flagMapped) {
		if ref, ok = a.mapUnits(r.set, ref, min(b.size, r.size)); !ok {
			return false
		}
	}
	for a.blocks[ref].size < r.size {
		b := &a.blocks[ref]
		next := b.next
		if ref, ok = a.mapUnits(r.set, next, min(r.size-b.size, a.blocks[next].size)); !ok {
			return false // what was mapped so far stays, as free memory
		}
	}
	b := &a.blocks[ref]
	r.set.free.take(b.key())
	r.block = ref
	return true
}

func (a *Allocator) findExpandable(r *request) (blockRef, bool) {
	usable := func(ref blockRef) bool { return ref != none && a.blocks[ref].idle() }
	for _, u := range r.set.unmapped {
		start := u.block
		if prev := a.blocks[start].prev; usable(prev) {
			start = prev
		}
		var room uint64
		for c := start; room < r.size && usable(c); c = a.blocks[c].next {
			room += a.blocks[c].size
		}
		if room >= r.size {
			return start, true
		}
	}
	size := a.rangeBytes(r.pool)
	addr, ok := a.device.ReserveRange(size)
	if !ok {
		return none, false
	}
	for _, rng := range a.ranges {
		if rng.alive && rng.pool == r.pool.index && rng.stream == r.stream {
			a.rangeExhausted = true
		}
	}
	ref, ok := a.addRange(r.pool, r.stream, addr, size)
	return ref, ok && size >= r.size // what the address space cannot hold cannot be mapped either
}

// Reserved reports whether addr lies in a range of address space that is reserved now.
func (a *Allocator) Reserved(addr uint64) bool {
	for _, rng := range a.ranges {
		if rng.alive && rng.addr <= addr && addr < rng.addr+rng.size {
			return true
		}
	}
	return false
}

func (a *Allocator) rangeUnit(p *pool) uint64 {
	if p.small {
		return smallSegmentBytes
	}
	return a.config.LargeSegmentBytes
}

// rangeBytes is the length of the address range that is reserved on this card.
func (a *Allocator) rangeBytes(p *pool) uint64 {
	total := a.device.TotalBytes()
	return roundUp(total+total/8, a.rangeUnit(p))
}

// addRange makes a range of address space that is not mapped yet. Where a recorded range begins inside an earlier one, the earlier one was shorter than
// the card's assumed memory says: its unmapped end is cut off.
func (a *Allocator) addRange(p *pool, stream int32, addr, size uint64) (blockRef, bool) {
	if size == 0 {
		return none, false
	}
	for i := range a.ranges {
		rng := &a.ranges[i]
		if !rng.alive || addr+size <= rng.addr || rng.addr+rng.size <= addr {
			continue
		}
		if addr < rng.addr {
			size = rng.addr - addr
			continue
		}
		if addr == rng.addr || !a.shortenRange(int32(i), addr) {
			return none, false
		}
	}
	a.ranges = append(a.ranges, expandableRange{addr: addr, size: size, unit: a.rangeUnit(p), pool: p.index, stream: stream, alive: true})
	ref := a.newBlock(p, stream, addr, size)
	b := &a.blocks[ref]
	b.flags &^= flagMapped
	b.rng = int32(len(a.ranges) - 1)
	b.born = a.nextBirth()
	a.set(p, stream).addUnmapped(b.addr, ref)
	return ref, true
}

// shortenRange ends a range at end, which must lie in or at the edge of its unmapped tail.
func (a *Allocator) shortenRange(index int32, end uint64) bool {
	rng := &a.ranges[index]
	set := a.pools[rng.pool].sets[rng.stream]
	for i, u := range set.unmapped {
		b := &a.blocks[u.block]
		if b.rng != index || b.addr+b.size != rng.addr+rng.size {
			continue
		}
		if end < b.addr || end == b.addr && b.prev == none {
			return false
		}
		if end == b.addr {
			a.blocks[b.prev].next = none
			set.unmapped = append(set.unmapped[:i], set.unmapped[i+1:]...)
			a.dropBlock(u.block)
		} else {
			b.size = end - b.addr
		}
		rng.size = end - rng.addr
		return true
	}
	return false
}

func (s *streamSet) unmappedIndex(addr uint64) int {
	return sort.Search(len(s.unmapped), func(i int) bool { return s.unmapped[i].addr >= addr })
}

func (s *streamSet) addUnmapped(addr uint64, ref blockRef) {
	i := s.unmappedIndex(addr)
	s.unmapped = append(s.unmapped, unmappedEntry{})
	copy(s.unmapped[i+1:], s.unmapped[i:])
	s.unmapped[i] = unmappedEntry{addr, ref}
}

func (s *streamSet) dropUnmapped(addr uint64) {
	i := s.unmappedIndex(addr)
	s.unmapped = append(s.unmapped[:i], s.unmapped[i+1:]...)
}

// mapUnits maps the first units of an unmapped block that cover size, merges them with free neighbours and returns the free block that holds them.
func (a *Allocator) mapUnits(set *streamSet, ref blockRef, size uint64) (blockRef, bool) {
	b := &a.blocks[ref]
	rng := &a.ranges[b.rng]
	size = min(roundUp(size, rng.unit), b.size)
	if !a.device.Commit(b.addr, size, rng.unit) {
		return none, false
	}
	p := a.pools[b.pool]
	set.dropUnmapped(b.addr)
	b.flags |= flagMapped
	addr := b.addr
	if size < b.size {
		restRef := a.newBlock(p, b.stream, addr+size, b.size-size)
		b = &a.blocks[ref]
		rest := &a.blocks[restRef]
		rest.flags &^= flagMapped
		rest.rng, rest.born = b.rng, b.born
		rest.prev, rest.next = ref, b.next
		if rest.next != none {
			a.blocks[rest.next].prev = restRef
		}
		b.next = restRef
		b.size = size
		set.addUnmapped(rest.addr, restRef)
	}
	a.absorb(set, ref, b.prev)
	a.absorb(set, ref, a.blocks[ref].next)
	b = &a.blocks[ref]
	b.gcBase = p.searches
	set.free.insert(freeEntry{b.key(), ref})
	a.totalSegments += size
	a.stats.ReservedBytes.rise(p.small, int64(size))
	a.stats.DeviceAllocs++
	a.emit(EventSegmentMap, addr, size, b.stream)
	return ref, true
}

// absorb merges a neighbour into ref when it is free and in the same state of mapping. ref itself must be in no set.
func (a *Allocator) absorb(set *streamSet, ref, neighbour blockRef) {
	if neighbour == none {
		return
	}
	b, n := &a.blocks[ref], &a.blocks[neighbour]
	if !n.idle() || n.is(flagMapped) != b.is(flagMapped) {
		return
	}
	if n.is(flagMapped) {
		set.free.take(n.key())
	} else {
		set.dropUnmapped(n.addr)
	}
	b.size += n.size
	if b.prev == neighbour {
		b.addr = n.addr
		b.prev = n.prev
		if b.prev != none {
			a.blocks[b.prev].next = ref
		}
	} else {
		b.next = n.next
		if b.next != none {
			a.blocks[b.next].prev = ref
		}
	}
	a.dropBlock(neighbour)
}

// unmap gives the units that lie wholly inside a free expandable block back to the card; the edges stay free. A range without a mapped unit goes.
func (a *Allocator) unmap(ref blockRef) {
	b := &a.blocks[ref]
	p := a.pools[b.pool]
	set := p.sets[b.stream]
	rng := a.ranges[b.rng]
	first := rng.addr + roundUp(b.addr-rng.addr, rng.unit)
	last := rng.addr + (b.addr+b.size-rng.addr)/rng.unit*rng.unit
	if first < last {
		set.free.take(b.key())
		if before := first - b.addr; before > 0 {
			a.spliceFree(p, set, ref, b.addr, before, true)
		}
		b = &a.blocks[ref]
		if after := b.addr + b.size - last; after > 0 {
			a.spliceFree(p, set, ref, last, after, false)
		}
		b = &a.blocks[ref]
		b.addr, b.size = first, last-first
		b.flags &^= flagMapped
		a.absorb(set, ref, b.prev)
		a.absorb(set, ref, a.blocks[ref].next)
		b = &a.blocks[ref]
		set.addUnmapped(b.addr, ref)
		a.device.Decommit(first, last-first)
		a.totalSegments -= last - first
		a.stats.ReservedBytes.fall(p.small, int64(last-first))
		a.stats.DeviceFrees++
		a.emit(EventSegmentUnmap, first, last-first, b.stream)
	}
	if !b.split() && !b.is(flagMapped) {
		set.dropUnmapped(b.addr)
		a.device.ReleaseRange(rng.addr, rng.size)
		a.ranges[b.rng].alive = false
		a.dropBlock(ref)
	}
}

// spliceFree puts an edge that stays mapped beside ref, as a free block.
func (a *Allocator) spliceFree(p *pool, set *streamSet, ref blockRef, addr, size uint64, before bool) {
	stream, rng := a.blocks[ref].stream, a.blocks[ref].rng
	edgeRef := a.newBlock(p, stream, addr, size)
	b, edge := &a.blocks[ref], &a.blocks[edgeRef]
	edge.rng = rng
	edge.born = b.born
	edge.gcBase = p.searches
	if before {
		edge.prev, edge.next = b.prev, ref
		b.prev = edgeRef
		if edge.prev != none {
			a.blocks[edge.prev].next = edgeRef
		}
	} else {
		edge.prev, edge.next = ref, b.next
		b.next = edgeRef
		if edge.next != none {
			a.blocks[edge.next].prev = edgeRef
		}
	}
	set.free.insert(freeEntry{edge.key(), edgeRef})
}
