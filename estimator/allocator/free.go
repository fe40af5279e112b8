package allocator

import (
	"slices"
	"sort"
)

// eventQueue holds the blocks that wait for one stream, oldest first.
type eventQueue struct {
	stream  uint64
	entries []pendingEvent
	head    int
}

type pendingEvent struct {
	recordedAt int64
	block      blockRef
}

// Free gives a live block back. When another stream has used it, it stays active until that stream's events are done.
func (a *Allocator) Free(id BlockID) error {
	if id == NoBlock {
		return nil
	}
	ref, err := a.lookup(id)
	if err != nil {
		return err
	}
	b := &a.blocks[ref]
	b.flags &^= flagAllocated
	small := a.pools[b.pool].small
	a.stats.Allocation.fall(small, 1)
	a.stats.AllocatedBytes.fall(small, int64(b.size))
	if a.onEvent != nil {
		a.emit(EventFreeRequested, b.addr, b.requested, b.stream)
	}
	if b.size >= a.config.MaxSplitBytes {
		a.stats.OversizeAllocations.fall(1)
	}
	switch {
	case !b.is(flagUses):
		a.complete(ref)
	case a.capturing():
		a.deferred = append(a.deferred, ref)
	default:
		a.recordEvents(ref)
	}
	return nil
}

// RecordStream notes that the block is used on another stream than its own.
func (a *Allocator) RecordStream(id BlockID, streamHandle uint64) error {
	if id == NoBlock {
		return nil
	}
	ref, err := a.lookup(id)
	if err != nil {
		return err
	}
	b := &a.blocks[ref]
	if a.streams[b.stream] == streamHandle {
		return nil
	}
	if a.uses == nil {
		a.uses = map[blockRef][]uint64{}
	}
	b.flags |= flagUses
	if !slices.Contains(a.uses[ref], streamHandle) {
		a.uses[ref] = append(a.uses[ref], streamHandle)
	}
	return nil
}

// recordEvents records one event on every stream that used the block.
func (a *Allocator) recordEvents(ref blockRef) {
	b := &a.blocks[ref]
	b.flags &^= flagUses
	for _, stream := range a.uses[ref] {
		b.events++
		q := a.queue(stream)
		q.entries = append(q.entries, pendingEvent{a.now(), ref})
	}
	delete(a.uses, ref)
}

func (a *Allocator) queue(stream uint64) *eventQueue {
	i := sort.Search(len(a.queues), func(i int) bool { return a.queues[i].stream >= stream })
	if i == len(a.queues) || a.queues[i].stream != stream {
		a.queues = slices.Insert(a.queues, i, eventQueue{stream: stream})
	}
	return &a.queues[i]
}

func (a *Allocator) recordDeferred() {
	for _, ref := range a.deferred {
		a.recordEvents(ref)
	}
	a.deferred = a.deferred[:0]
}

// drain completes the frees whose events are done, per stream in order.
func (a *Allocator) drain() {
	if len(a.queues) == 0 && len(a.deferred) == 0 {
		return
	}
	a.recordDeferred()
	kept := a.queues[:0]
	for i := range a.queues {
		q := a.queues[i]
		for q.head < len(q.entries) && a.done(q.entries[q.head].recordedAt, q.stream) {
			a.eventDone(q.entries[q.head].block)
			q.head++
		}
		if q.head == len(q.entries) {
			continue
		}
		if q.head > len(q.entries)/2 {
			q.entries = append(q.entries[:0], q.entries[q.head:]...)
			q.head = 0
		}
		kept = append(kept, q)
	}
	a.queues = kept
}

// synchronize waits for all events, as releasing everything does.
func (a *Allocator) synchronize() {
	a.stats.SyncAllStreams++
	a.recordDeferred()
	for _, q := range a.queues {
		for _, e := range q.entries[q.head:] {
			a.eventDone(e.block)
		}
	}
	a.queues = a.queues[:0]
}

func (a *Allocator) eventDone(ref blockRef) {
	b := &a.blocks[ref]
	b.events--
	if b.events == 0 {
		a.complete(ref)
	}
}

// complete returns a block to the free set, merged with its free neighbours.
func (a *Allocator) complete(ref blockRef) {
	b := &a.blocks[ref]
	p := a.pools[b.pool]
	if a.onEvent != nil {
		a.emit(EventFreeCompleted, b.addr, b.requested, b.stream)
	}
	size, requested := int64(b.size), int64(b.requested)
	free := &p.sets[b.stream].free
	var netBlocks, netBytes int64

	prev, next := b.prev, b.next
	mergePrev := prev != none && a.blocks[prev].idle() && a.blocks[prev].is(flagMapped)
	mergeNext := next != none && a.blocks[next].idle() && a.blocks[next].is(flagMapped)
	var old freeKey
	if mergePrev {
		n := &a.blocks[prev]
		old = n.key()
		netBlocks, netBytes = -1, -int64(n.size)
		b.addr = n.addr
		b.size += n.size
		b.prev = n.prev
		if b.prev != none {
			a.blocks[b.prev].next = ref
		}
		a.dropBlock(prev)
	}
	if mergeNext {
		n := &a.blocks[next]
		if mergePrev {
			free.take(n.key())
		} else {
			old = n.key()
		}
		netBlocks, netBytes = netBlocks-1, netBytes-int64(n.size)
		b.size += n.size
		b.next = n.next
		if b.next != none {
			a.blocks[b.next].prev = ref
		}
		a.dropBlock(next)
	}
	b.gcBase = p.searches
	entry := freeEntry{b.key(), ref}
	if mergePrev || mergeNext {
		free.replaceUp(old, entry)
	} else {
		free.insert(entry)
	}
	if b.rng < 0 {
		if b.split() {
			netBlocks, netBytes = netBlocks+1, netBytes+int64(b.size)
		}
		a.stats.InactiveSplit.change(p.small, netBlocks)
		a.stats.InactiveSplitBytes.change(p.small, netBytes)
	}
	a.stats.Active.fall(p.small, 1)
	a.stats.ActiveBytes.fall(p.small, size)
	a.stats.RequestedBytes.fall(p.small, requested)
}
