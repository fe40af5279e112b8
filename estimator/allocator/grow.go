package allocator

// grow gets new memory from the card: a segment, or more of an expandable range.
func (a *Allocator) grow(r *request, retry bool) bool {
	if retry {
		a.stats.Retries++
	}
	if a.limited && (r.segment > a.limit || a.totalSegments > a.limit-r.segment) {
		return false
	}
	if a.config.ExpandableSegments && a.expandableIn(r.pool) {
		return a.growExpandable(r)
	}
	addr, ok := a.device.Malloc(r.segment)
	if !ok {
		return false
	}
	if r.pool.private != nil {
		r.pool.private.segments++
	}
	a.totalSegments += r.segment
	r.block = a.newBlock(r.pool, r.stream, addr, r.segment)
	a.blocks[r.block].gcBase = r.pool.searches
	a.blocks[r.block].born = a.nextBirth()
	a.stats.Segment.rise(r.pool.small, 1)
	a.stats.ReservedBytes.rise(r.pool.small, int64(r.segment))
	if r.segment >= a.config.MaxSplitBytes {
		a.stats.OversizeSegments.rise(1)
	}
	a.stats.DeviceAllocs++
	a.emit(EventSegmentAlloc, addr, r.segment, r.stream)
	return true
}

// releaseSegment gives a whole free segment back. Its entry must be out of the free set already.
func (a *Allocator) releaseSegment(ref blockRef) {
	b := &a.blocks[ref]
	p := a.pools[b.pool]
	a.emit(EventSegmentFree, b.addr, b.size, b.stream)
	a.device.Release(b.addr, b.size)
	a.totalSegments -= b.size
	if p.private != nil {
		p.private.segments--
	}
	a.stats.DeviceFrees++
	a.stats.Segment.fall(p.small, 1)
	a.stats.ReservedBytes.fall(p.small, int64(b.size))
	if b.size >= a.config.MaxSplitBytes {
		a.stats.OversizeSegments.fall(1)
	}
	a.dropBlock(ref)
}

// releaseOversize gives back enough blocks of at least max_split_size for the request, the smallest sufficient one or several from the largest down.
func (a *Allocator) releaseOversize(r *request) (bool, error) {
	if a.config.MaxSplitBytes == noSplitLimit {
		return false, nil
	}
	want := max(r.size, a.config.MaxSplitBytes)
	free := &r.set.free
	c := free.lowerBound(freeKey{size: want})
	asserts := !a.version.AtLeast(2, 5)
	if free.valid(c) {
		ref := free.at(c).block
		if a.blocks[ref].rng < 0 {
			free.remove(c)
			a.releaseSegment(ref)
			return true, nil
		}
		if asserts {
			return false, ErrAssert
		}
	}
	var released uint64
	for released < want {
		below, ok := free.prev(c)
		if !ok || free.at(below).size < a.config.MaxSplitBytes {
			break
		}
		c = below
		if e := *free.at(c); a.blocks[e.block].rng < 0 {
			free.remove(c)
			released += e.size
			a.releaseSegment(e.block) // c now stands where the entry was, and can be stepped back from
		} else if asserts {
			return false, ErrAssert
		}
	}
	return released >= want, nil
}

// EmptyCache gives everything back that can be given back.
func (a *Allocator) EmptyCache() { a.releaseCached() }

func (a *Allocator) releaseCached() {
	a.synchronize()
	a.releasePool(a.large)
	a.releasePool(a.small)
	kept := a.freeable[:0]
	for _, p := range a.freeable {
		a.releasePool(p.small)
		a.releasePool(p.large)
		if p.segments > 0 || p.holdsRange(a) {
			kept = append(kept, p)
			continue
		}
		delete(a.private, p.id)
	}
	a.freeable = kept
}

// releasePool gives back the whole free segments of a pool in the order of its free set, then what is unused of the expandable ones.
func (a *Allocator) releasePool(p *pool) {
	var unmap []blockRef
	for _, stream := range p.order {
		free := &p.sets[stream].free
		for c := (cursor{}); free.valid(c); {
			e := *free.at(c)
			b := &a.blocks[e.block]
			switch {
			case b.rng >= 0:
				unmap = append(unmap, e.block)
				c = free.next(c)
			case !b.split():
				free.remove(c)
				a.releaseSegment(e.block)
				c = free.lowerBound(e.freeKey)
			default:
				c = free.next(c)
			}
		}
	}
	for _, ref := range unmap {
		a.unmap(ref)
	}
}

// collectGarbage releases whole segments of the large pool that were not reused for a long time, before the card is asked for more.
func (a *Allocator) collectGarbage() {
	threshold := uint64(a.config.GCThreshold * float64(a.limit))
	if a.totalSegments <= threshold {
		return
	}
	target := a.totalSegments - threshold
	p := a.large
	age := func(b *block) int64 { return int64(int32(p.searches - b.gcBase)) }
	var totalAge float64
	count := 0
	for _, stream := range p.order {
		free := &p.sets[stream].free
		for c := (cursor{}); free.valid(c); c = free.next(c) {
			if b := &a.blocks[free.at(c).block]; !b.split() {
				totalAge += float64(age(b))
				count++
			}
		}
	}
	var reclaimed uint64
	for freed := true; reclaimed < target && freed && count > 0; {
		limit := totalAge / float64(count)
		freed = false
		for _, stream := range p.order {
			free := &p.sets[stream].free
			for c := (cursor{}); free.valid(c); {
				e := *free.at(c)
				b := &a.blocks[e.block]
				if b.split() || b.rng >= 0 || float64(age(b)) < limit {
					c = free.next(c)
					continue
				}
				freed = true
				reclaimed += e.size
				totalAge -= float64(age(b))
				count--
				free.remove(c)
				a.releaseSegment(e.block)
				c = free.lowerBound(e.freeKey)
			}
		}
	}
}
