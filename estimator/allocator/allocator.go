// Package allocator is an exact simulator of PyTorch's CUDA caching allocator: given the same requests, settings, release and card it returns the
// same addresses, segments, statistics and failures as the compiled allocator does. It needs no GPU and no PyTorch.
//
// Proven against recorded answers of the compiled allocator of PyTorch 2.6 and against snapshots of real GPUs; where a release is known to behave
// differently, Version decides.
package allocator

import (
	"errors"
	"fmt"
	"math"
	"sort"
)

// Sizes in bytes that are the same in all known releases: PyTorch's kMinBlockSize, kSmallSize (which Version.IsSmall alone asks for), kSmallBuffer, kMinLargeAlloc and kRoundLarge.
const (
	minBlockBytes     = 512
	smallRequestBytes = 1 << 20
	smallSegmentBytes = 2 << 20
	largeExactBytes   = 10 << 20
	largeRoundBytes   = 2 << 20
	// maxRequestBytes bounds one request, so that no sum of sizes can overflow.
	maxRequestBytes = 1 << 48
)

// BlockID names a live block. It is never reused within one Allocator.
type BlockID uint64

// NoBlock is the answer to a request of zero bytes.
const NoBlock BlockID = 0

// Errors of a caller that asks for something impossible. They mean that the input is wrong, never that memory is short.
var (
	ErrNotLive     = errors.New("allocator: the block is not live")
	ErrTooLarge    = errors.New("allocator: the request is above 2^48 bytes")
	ErrTooMany     = errors.New("allocator: more than 2^31 blocks at once")
	ErrPool        = errors.New("allocator: unknown or misused private pool")
	ErrBadFraction = errors.New("allocator: the memory fraction must be between 0 and 1")
	// ErrAssert stands for an internal assertion of an old release: real PyTorch aborts the operation here.
	ErrAssert = errors.New("allocator: this release fails an internal assertion here (max_split_size_mb together with expandable_segments before 2.5)")
)

type blockRef int32

const none blockRef = -1

const (
	flagAllocated = 1 << iota
	flagMapped
	flagUses
	flagAlive
)

// block is a piece of a segment. Links are indexes, so that a million blocks are no work for the garbage collector.
type block struct {
	addr, size, requested uint64
	gcBase                int64
	prev, next            blockRef
	pool, stream          int32
	// rng is the expandable range that holds the block, or -1.
	rng    int32
	events int32
	gen    uint32
	// born numbers the segments and ranges in the order in which the card gave them, where the release orders free blocks by it.
	born  uint32
	flags uint8
}

func (b *block) key() freeKey { return freeKey{b.size, b.addr, b.born} }

func (b *block) split() bool { return b.prev != none || b.next != none }

func (b *block) is(flag uint8) bool { return b.flags&flag != 0 }

// idle reports whether the block may be merged or handed out: not live, and no other stream still uses it.
func (b *block) idle() bool { return b.flags&(flagAllocated|flagUses) == 0 && b.events == 0 }

// pool is one ordered set of blocks per stream: all small or all large ones of the default pools or of one private pool.
type pool struct {
	index    int32
	small    bool
	private  *privatePool
	sets     []*streamSet // by stream index; nil where the stream never had a block here
	order    []int32      // stream indexes, ascending by handle
	searches int64
}

type streamSet struct {
	free     freeSet
	unmapped []unmappedEntry // ascending by address
}

type unmappedEntry struct {
	addr  uint64
	block blockRef
}

// Options chooses what is simulated.
type Options struct {
	Version Version
	Config  Config
	Device  Device
	// OnEvent, when set, receives the history as a snapshot would record it.
	OnEvent func(Event)
	// Clock, when set, tells whether an event recorded at that moment on that stream has completed; nil: events complete at once.
	EventDone func(recordedAt int64, stream uint64) bool
	// Now is the moment that is kept with an event; nil: 0.
	Now func() int64
}

// Allocator simulates the allocator of one device. It is not safe for concurrent use.
type Allocator struct {
	version Version
	config  Config
	device  Device
	onEvent func(Event)
	done    func(int64, uint64) bool
	now     func() int64

	blocks   []block
	freeRefs []blockRef

	pools        []*pool
	small, large *pool
	private      map[int64]*privatePool
	freeable     []*privatePool
	routes       []route

	streams     []uint64
	streamIndex map[uint64]int32
	lastStream  uint64
	lastIndex   int32

	uses     map[blockRef][]uint64
	queues   []eventQueue
	deferred []blockRef

	ranges []expandableRange
	births uint32

	totalSegments uint64
	limited       bool
	limit         uint64

	stats Stats
	// rangeExhausted is set once a stream needed a second range of address space.
	rangeExhausted bool
}

// New makes an allocator with nothing in it.
func New(o Options) (*Allocator, error) {
	if o.Device == nil {
		return nil, errors.New("allocator: no device")
	}
	if o.Version == (Version{}) {
		o.Version = Newest
	}
	if o.Config.Backend == BackendAsync {
		return nil, errors.New("allocator: backend:cudaMallocAsync uses the driver's own pool, which is not simulated")
	}
	a := &Allocator{
		version: o.Version, config: o.Config.withDefaults(), device: o.Device, onEvent: o.OnEvent, done: o.EventDone, now: o.Now,
		streamIndex: map[uint64]int32{}, private: map[int64]*privatePool{}, lastIndex: -1,
	}
	if a.done == nil {
		a.done = func(int64, uint64) bool { return true }
	}
	if a.now == nil {
		a.now = func() int64 { return 0 }
	}
	a.small = a.newPool(true, nil)
	a.large = a.newPool(false, nil)
	if f := o.Config.MemoryFraction; f > 0 {
		if err := a.SetMemoryFraction(f); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *Allocator) newPool(small bool, private *privatePool) *pool {
	p := &pool{index: int32(len(a.pools)), small: small, private: private}
	a.pools = append(a.pools, p)
	return p
}

// Stats returns the counters.
func (a *Allocator) Stats() *Stats { return &a.stats }

// SegmentBytes is the sum of all segments, which the fraction limit bounds.
func (a *Allocator) SegmentBytes() uint64 { return a.totalSegments }

// AddressSpaceExhausted reports whether some expandable range was too short, so that a card with another total could have behaved differently.
func (a *Allocator) AddressSpaceExhausted() bool {
	return a.rangeExhausted
}

// SetMemoryFraction limits the segments to a part of the card, as torch.cuda.set_per_process_memory_fraction does.
func (a *Allocator) SetMemoryFraction(fraction float64) error {
	if math.IsNaN(fraction) || fraction < 0 || fraction > 1 {
		return fmt.Errorf("%w, not %v", ErrBadFraction, fraction)
	}
	a.limit = uint64(fraction * float64(a.device.TotalBytes()))
	a.limited = fraction < 1 || !a.version.AtLeast(2, 10)
	return nil
}

func (a *Allocator) stream(handle uint64) int32 {
	if a.lastIndex >= 0 && a.lastStream == handle {
		return a.lastIndex
	}
	i, ok := a.streamIndex[handle]
	if !ok {
		i = int32(len(a.streams))
		a.streams = append(a.streams, handle)
		a.streamIndex[handle] = i
	}
	a.lastStream, a.lastIndex = handle, i
	return i
}

func (a *Allocator) set(p *pool, stream int32) *streamSet {
	if int(stream) < len(p.sets) {
		if s := p.sets[stream]; s != nil {
			return s
		}
	}
	for len(p.sets) <= int(stream) {
		p.sets = append(p.sets, nil)
	}
	s := &streamSet{}
	p.sets[stream] = s
	handle := a.streams[stream]
	i := sort.Search(len(p.order), func(i int) bool { return a.streams[p.order[i]] > handle })
	p.order = append(p.order, 0)
	copy(p.order[i+1:], p.order[i:])
	p.order[i] = stream
	return s
}

func (a *Allocator) newBlock(p *pool, stream int32, addr, size uint64) blockRef {
	var ref blockRef
	var gen uint32
	if n := len(a.freeRefs); n > 0 {
		ref = a.freeRefs[n-1]
		a.freeRefs = a.freeRefs[:n-1]
		gen = a.blocks[ref].gen
	} else {
		ref = blockRef(len(a.blocks))
		a.blocks = append(a.blocks, block{})
	}
	a.blocks[ref] = block{addr: addr, size: size, prev: none, next: none, pool: p.index, stream: stream, rng: -1, gen: gen + 1, flags: flagMapped | flagAlive}
	return ref
}

// nextBirth numbers what the card gives: from 2.13 on free blocks of one size are taken from the oldest memory first, before that from the lowest
// address. What was there before a recording began is taken for as old as its address is low.
func (a *Allocator) nextBirth() uint32 {
	if !a.version.AtLeast(2, 13) {
		return 0
	}
	a.births++
	return a.births
}

func (a *Allocator) dropBlock(ref blockRef) {
	a.blocks[ref].flags = 0
	a.freeRefs = append(a.freeRefs, ref)
}

func (a *Allocator) id(ref blockRef) BlockID {
	return BlockID(a.blocks[ref].gen)<<32 | BlockID(uint32(ref))
}

func (a *Allocator) lookup(id BlockID) (blockRef, error) {
	ref := uint32(id)
	if int64(ref) >= int64(len(a.blocks)) {
		return none, ErrNotLive
	}
	b := &a.blocks[ref]
	if b.gen != uint32(id>>32) || b.flags&(flagAllocated|flagAlive) != flagAllocated|flagAlive {
		return none, ErrNotLive
	}
	return blockRef(ref), nil
}

func (a *Allocator) emit(kind EventKind, addr, size uint64, stream int32) {
	if a.onEvent != nil {
		a.onEvent(Event{kind, addr, size, a.streams[stream]})
	}
}

// RoundSize is the block size that a request becomes.
func (a *Allocator) RoundSize(bytes uint64) uint64 { return a.config.RoundSize(bytes, a.version) }

// segmentSize is what is asked of the card for a rounded request, when no free block serves it.
func (a *Allocator) segmentSize(rounded uint64) uint64 {
	switch {
	case a.version.IsSmall(rounded):
		return smallSegmentBytes
	case rounded < largeExactBytes:
		return a.config.LargeSegmentBytes
	default:
		return roundUp(rounded, largeRoundBytes)
	}
}

// request is one allocation on its way.
type request struct {
	size, segment uint64
	stream        int32
	pool          *pool
	set           *streamSet
	block         blockRef
	// parted is set once the block has been cut to size.
	parted bool
}

// Malloc serves one request. The error is an *OOMError when the allocator would raise one.
func (a *Allocator) Malloc(bytes, streamHandle uint64) (BlockID, uint64, error) {
	if bytes == 0 {
		return NoBlock, 0, nil
	}
	if bytes > maxRequestBytes {
		return NoBlock, 0, ErrTooLarge
	}
	if len(a.blocks) >= math.MaxInt32-16 && len(a.freeRefs) < 16 {
		return NoBlock, 0, ErrTooMany
	}
	if !a.routing() {
		a.drain()
	}
	size := a.RoundSize(bytes)
	stream := a.stream(streamHandle)
	p := a.poolFor(size, streamHandle)
	r := request{size: size, segment: a.segmentSize(size), stream: stream, pool: p, set: a.set(p, stream), block: none}
	if !a.search(&r) {
		if err := a.obtain(&r, bytes); err != nil {
			return NoBlock, 0, err
		}
	}
	a.place(&r, bytes)
	return a.id(r.block), a.blocks[r.block].addr, nil
}

// obtain gets memory that no free block of the request's own set holds, in the order in which the allocator tries.
func (a *Allocator) obtain(r *request, bytes uint64) error {
	if a.limited && a.config.GCThreshold > 0 {
		a.collectGarbage()
	}
	if a.grow(r, false) || a.searchFallbackPools(r) {
		return nil
	}
	released, err := a.releaseOversize(r)
	if err != nil {
		return err
	}
	if released && a.grow(r, false) {
		return nil
	}
	if !a.retryBlocked() {
		a.releaseCached()
		if a.grow(r, true) {
			return nil
		}
	}
	a.emit(EventOOM, a.device.FreeBytes(), r.size, r.stream)
	a.stats.OOMs++
	if a.config.ThrowOnMallocOOM && a.limited {
		a.stats.OOMRejections++
	}
	oom := &OOMError{
		RequestedBytes: bytes, RoundedBytes: r.size, SegmentBytes: r.segment, Stream: a.streams[r.stream],
		DeviceFreeBytes: a.device.FreeBytes(), DeviceTotalBytes: a.device.TotalBytes(),
		AllocatedBytes: uint64(a.stats.AllocatedBytes.All.Current), ReservedBytes: uint64(a.stats.ReservedBytes.All.Current),
	}
	if a.limited {
		oom.LimitBytes = a.limit
	}
	if last, ok := r.set.free.prev(cursor{len(r.set.free.dir), 0}); ok {
		oom.LargestFreeBytes = r.set.free.at(last).size
	}
	return oom
}

// search takes the best fitting free block of the stream out of its set.
func (a *Allocator) search(r *request) bool {
	if a.limited && a.config.GCThreshold > 0 {
		r.pool.searches++
	}
	free := &r.set.free
	c, ok := a.bestFit(r)
	if !ok {
		return false
	}
	e := free.at(c)
	r.block = e.block
	if a.shouldSplit(r, e.size) {
		rest := freeEntry{freeKey{e.size - r.size, e.addr + r.size, e.born}, e.block}
		free.moveDown(c, rest)
		a.cut(r)
		return true
	}
	free.remove(c)
	return true
}

// bestFit finds the free block that serves a request.
func (a *Allocator) bestFit(r *request) (cursor, bool) {
	free := &r.set.free
	c := free.lowerBound(freeKey{size: r.size})
	if !free.valid(c) {
		return c, false
	}
	if a.blocks[free.at(c).block].rng >= 0 {
		if c = a.searchExpandable(free, c); !free.valid(c) {
			return c, false
		}
	}
	e := free.at(c)
	if r.size < a.config.MaxSplitBytes {
		return c, e.size < a.config.MaxSplitBytes
	}
	return c, e.size < r.size+a.config.MaxNonSplitBytes // wraps around for an absurd option, as the original does
}

// Fits reports whether a request would be served from a free block, without growing.
func (a *Allocator) Fits(bytes, streamHandle uint64) bool {
	if bytes == 0 || bytes > maxRequestBytes {
		return false
	}
	size := a.RoundSize(bytes)
	p, stream := a.poolFor(size, streamHandle), a.stream(streamHandle)
	_, ok := a.bestFit(&request{size: size, stream: stream, pool: p, set: a.set(p, stream)})
	return ok
}

func (a *Allocator) searchExpandable(free *freeSet, c cursor) cursor {
	if !a.config.ExpandableSegments {
		for free.valid(c) && a.blocks[free.at(c).block].rng >= 0 {
			c = free.next(c)
		}
		return c
	}
	// The first candidate may be the growable tail of a range: a closed hole of the same order is better, so that the tail can grow.
	growable := func(c cursor) uint64 {
		b := &a.blocks[free.at(c).block]
		if b.next != none && !a.blocks[b.next].is(flagMapped) {
			return b.size + a.blocks[b.next].size
		}
		return b.size
	}
	for a.blocks[free.at(c).block].rng >= 0 {
		next := free.next(c)
		if !free.valid(next) || growable(next) >= growable(c) {
			break
		}
		c = next
	}
	return c
}

func (a *Allocator) shouldSplit(r *request, blockBytes uint64) bool {
	rest := blockBytes - r.size
	if p := r.pool.private; p != nil && p.noSplit {
		return false
	}
	if r.pool.small || a.config.ExpandableSegments {
		return rest >= minBlockBytes
	}
	return r.size < a.config.MaxSplitBytes && !a.version.IsSmall(rest)
}

// cut takes the low end of r.block as a new block; the old one keeps the high end, and its place in the free set is the caller's business.
func (a *Allocator) cut(r *request) {
	restRef := r.block
	rest := a.blocks[restRef]
	ref := a.newBlock(r.pool, r.stream, rest.addr, r.size)
	b := &a.blocks[ref]
	b.rng = rest.rng
	b.born = rest.born
	b.prev = rest.prev
	if b.prev != none {
		a.blocks[b.prev].next = ref
	}
	b.next = restRef
	old := &a.blocks[restRef]
	old.prev = ref
	old.addr += r.size
	old.size -= r.size
	old.gcBase = r.pool.searches
	if b.rng < 0 {
		if rest.split() {
			a.stats.InactiveSplitBytes.fall(r.pool.small, int64(r.size))
		} else {
			a.stats.InactiveSplitBytes.rise(r.pool.small, int64(old.size))
			a.stats.InactiveSplit.rise(r.pool.small, 1)
		}
	}
	r.block, r.parted = ref, true
}

// place marks the block that was found as live. A block that came from growing is split here; one that was found free is split already.
func (a *Allocator) place(r *request, bytes uint64) {
	b := &a.blocks[r.block]
	small := r.pool.small
	switch {
	case r.parted:
	case a.shouldSplit(r, b.size):
		a.cut(r)
		b = &a.blocks[r.block]
		rest := &a.blocks[b.next]
		r.set.free.insert(freeEntry{rest.key(), b.next})
	case b.rng < 0 && b.split():
		a.stats.InactiveSplitBytes.fall(small, int64(b.size))
		a.stats.InactiveSplit.fall(small, 1)
	}
	b.flags |= flagAllocated
	b.requested = bytes
	if a.onEvent != nil {
		a.emit(EventAlloc, b.addr, bytes, r.stream)
	}
	size := int64(b.size)
	s := &a.stats
	s.Allocation.rise(small, 1)
	s.AllocatedBytes.rise(small, size)
	s.Active.rise(small, 1)
	s.ActiveBytes.rise(small, size)
	s.RequestedBytes.rise(small, int64(bytes))
	if b.size >= a.config.MaxSplitBytes {
		s.OversizeAllocations.rise(1)
	}
}
