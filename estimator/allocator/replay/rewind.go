package replay

import (
	"fmt"
	"sort"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/snapshot"
)

// rewind walks a history backwards from the final state.
type rewind struct {
	segments map[uint64]*pastSegment
	order    []uint64 // segment addresses, ascending
	live     map[uint64]*pastBlock
	config   allocator.Config
	version  allocator.Version
}

type pastSegment struct {
	addr, size, stream uint64
	small, expandable  bool
	// blocks are the addresses of live blocks, ascending.
	blocks []uint64
}

type pastBlock struct {
	size, requested uint64
	pending         bool
}

func (r *rewind) final(s *snapshot.Snapshot, device int) error {
	for i := range s.Segments {
		seg := &s.Segments[i]
		if seg.Device != device {
			continue
		}
		un := &pastSegment{addr: seg.Addr, size: seg.TotalBytes, stream: seg.Stream, small: seg.Small, expandable: seg.Expandable}
		if err := r.addSegment(un); err != nil {
			return fmt.Errorf("segments[%d]: %w", i, err)
		}
		for _, b := range seg.Blocks {
			if b.State != snapshot.Inactive {
				un.blocks = append(un.blocks, b.Addr)
				r.live[b.Addr] = &pastBlock{b.SizeBytes, b.RequestedBytes, b.State == snapshot.ActivePendingFree}
			}
		}
	}
	return nil
}

func (r *rewind) addSegment(seg *pastSegment) error {
	i := sort.Search(len(r.order), func(i int) bool { return r.order[i] >= seg.addr })
	if i > 0 {
		if prev := r.segments[r.order[i-1]]; prev.addr+prev.size > seg.addr {
			return fmt.Errorf("segment %#x overlaps segment %#x", seg.addr, prev.addr)
		}
	}
	if i < len(r.order) && seg.addr+seg.size > r.order[i] {
		return fmt.Errorf("segment %#x overlaps segment %#x", seg.addr, r.order[i])
	}
	r.order = append(r.order, 0)
	copy(r.order[i+1:], r.order[i:])
	r.order[i] = seg.addr
	r.segments[seg.addr] = seg
	return nil
}

// containing finds the segment around an address.
func (r *rewind) containing(addr uint64) *pastSegment {
	i := sort.Search(len(r.order), func(i int) bool { return r.order[i] > addr })
	if i == 0 {
		return nil
	}
	if seg := r.segments[r.order[i-1]]; addr < seg.addr+seg.size {
		return seg
	}
	return nil
}

// back takes one entry back.
func (r *rewind) back(e *snapshot.Entry) error {
	switch e.Action {
	case snapshot.ActionAlloc:
		seg := r.containing(e.Addr)
		if seg == nil || r.live[e.Addr] == nil {
			return fmt.Errorf("alloc at %#x: no live block is there afterwards", e.Addr)
		}
		delete(r.live, e.Addr)
		i := sort.Search(len(seg.blocks), func(i int) bool { return seg.blocks[i] >= e.Addr })
		seg.blocks = append(seg.blocks[:i], seg.blocks[i+1:]...)
	case snapshot.ActionFreeCompleted:
		return r.restoreFreed(e)
	case snapshot.ActionFreeRequested:
		b := r.live[e.Addr]
		if b == nil {
			return fmt.Errorf("free_requested at %#x: no block is there afterwards, and no free_completed follows", e.Addr)
		}
		b.pending = false
	case snapshot.ActionSegmentAlloc, snapshot.ActionSegmentMap:
		return r.removeMapped(e)
	case snapshot.ActionSegmentFree, snapshot.ActionSegmentUnmap:
		return r.restoreUnmapped(e)
	}
	return nil
}

// restoreFreed puts back a block that was freed. Its size is not recorded: it is the rounded request, or reaches to the next live block when the gap
// was too small to be split off.
func (r *rewind) restoreFreed(e *snapshot.Entry) error {
	seg := r.containing(e.Addr)
	if seg == nil {
		return fmt.Errorf("free_completed at %#x: no segment is there", e.Addr)
	}
	if r.live[e.Addr] != nil {
		return fmt.Errorf("free_completed at %#x: the block is still live afterwards", e.Addr)
	}
	i := sort.Search(len(seg.blocks), func(i int) bool { return seg.blocks[i] >= e.Addr })
	next := seg.addr + seg.size
	if i < len(seg.blocks) {
		next = seg.blocks[i]
	}
	if e.SizeBytes > next-e.Addr {
		return fmt.Errorf("free_completed at %#x: %d bytes do not fit before %#x", e.Addr, e.SizeBytes, next)
	}
	size := r.config.RoundSize(e.SizeBytes, r.version)
	if size > next-e.Addr {
		return fmt.Errorf("free_completed at %#x: the block of %d bytes does not fit before %#x", e.Addr, size, next)
	}
	if gap := next - e.Addr - size; !r.version.CanBeFree(gap, seg.small, seg.expandable || r.config.ExpandableSegments) {
		size += gap
	}
	seg.blocks = append(seg.blocks, 0)
	copy(seg.blocks[i+1:], seg.blocks[i:])
	seg.blocks[i] = e.Addr
	r.live[e.Addr] = &pastBlock{size, e.SizeBytes, true}
	return nil
}

// removeMapped takes back segment_alloc and segment_map.
func (r *rewind) removeMapped(e *snapshot.Entry) error {
	seg := r.containing(e.Addr)
	if seg == nil || e.SizeBytes > seg.addr+seg.size-e.Addr {
		return fmt.Errorf("%v at %#x: no such segment is there afterwards", e.Action, e.Addr)
	}
	for _, b := range seg.blocks {
		if b < e.Addr+e.SizeBytes && e.Addr < b+r.live[b].size {
			return fmt.Errorf("%v at %#x: block %#x was live before its segment existed", e.Action, e.Addr, b)
		}
	}
	if e.Action == snapshot.ActionSegmentAlloc && (seg.addr != e.Addr || seg.size != e.SizeBytes) {
		return fmt.Errorf("segment_alloc at %#x: the segment there has another size", e.Addr)
	}
	low, high := *seg, *seg
	low.size = e.Addr - seg.addr
	high.addr = e.Addr + e.SizeBytes
	high.size = seg.addr + seg.size - high.addr
	cut := sort.Search(len(seg.blocks), func(i int) bool { return seg.blocks[i] >= e.Addr })
	low.blocks = append([]uint64(nil), seg.blocks[:cut]...)
	high.blocks = append([]uint64(nil), seg.blocks[cut:]...)
	r.removeSegment(seg)
	for _, part := range []*pastSegment{&low, &high} {
		if part.size > 0 {
			if err := r.addSegment(part); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *rewind) removeSegment(seg *pastSegment) {
	i := sort.Search(len(r.order), func(i int) bool { return r.order[i] >= seg.addr })
	r.order = append(r.order[:i], r.order[i+1:]...)
	delete(r.segments, seg.addr)
}

// restoreUnmapped takes back segment_free and segment_unmap.
func (r *rewind) restoreUnmapped(e *snapshot.Entry) error {
	if e.Addr > 1<<62 || e.SizeBytes == 0 || e.SizeBytes > 1<<48 {
		return fmt.Errorf("%v at %#x of %d bytes is impossible", e.Action, e.Addr, e.SizeBytes)
	}
	seg := &pastSegment{addr: e.Addr, size: e.SizeBytes, stream: e.Stream}
	if e.Action == snapshot.ActionSegmentUnmap {
		seg.expandable = true
		// The unit tells the pool apart: large ranges are mapped in units of 20 MiB.
		seg.small = e.SizeBytes%largeUnit(r.config) != 0
		// What touches it was the same mapped part.
		if prev := r.containing(e.Addr - 1); prev != nil && prev.addr+prev.size == e.Addr && prev.expandable && prev.stream == e.Stream {
			seg.addr, seg.size, seg.blocks, seg.small = prev.addr, prev.size+seg.size, prev.blocks, prev.small
			r.removeSegment(prev)
		}
		if next := r.segments[seg.addr+seg.size]; next != nil && next.expandable && next.stream == e.Stream {
			seg.size += next.size
			seg.blocks = append(append([]uint64(nil), seg.blocks...), next.blocks...)
			seg.small = next.small
			r.removeSegment(next)
		}
	} else {
		seg.small = e.SizeBytes == smallSegment
	}
	return r.addSegment(seg)
}

// A segment of exactly 2 MiB is always of the small pool: the large pool begins at 20 MiB, or 10 MiB exactly.
const smallSegment = 2 << 20

func largeUnit(c allocator.Config) uint64 {
	if c.LargeSegmentBytes != 0 {
		return c.LargeSegmentBytes
	}
	return 20 << 20
}

// start hands the state at the beginning over.
func (r *rewind) start(f *forward) {
	for _, addr := range r.order {
		seg := r.segments[addr]
		out := StartSegment{Addr: seg.addr, SizeBytes: seg.size, Stream: seg.stream, Small: seg.small, Expandable: seg.expandable}
		for _, b := range seg.blocks {
			live := r.live[b]
			block := f.block()
			out.Blocks = append(out.Blocks, StartBlock{Addr: b, SizeBytes: live.size, RequestedBytes: live.requested, Block: block, Pending: live.pending})
			f.blockAt[b] = block
			if live.pending {
				f.free(block, b, nil)
			}
		}
		f.program.Start = append(f.program.Start, out)
	}
}
