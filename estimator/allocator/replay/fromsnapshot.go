package replay

import (
	"fmt"
	"slices"
	"sort"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/snapshot"
)

// FromSnapshot makes a program of the history that a snapshot holds for one device, with the recorded answers. A history that starts in the middle of a
// run is undone from the final state backwards to find the state it started from. version is the PyTorch release of the snapshot, which does not say
// itself; the zero value means the one that gresize wrote into it, or the newest known.
func FromSnapshot(s *snapshot.Snapshot, device int, version allocator.Version, name string) (*Program, error) {
	total := uint64(unknownCardBytes)
	if s.Origin != nil {
		if v, err := allocator.ParseVersion(s.Origin.TorchVersion); err == nil && version == (allocator.Version{}) {
			version = v
		}
		if s.Origin.TotalBytes != 0 {
			total = min(s.Origin.TotalBytes, Unlimited)
		}
	}
	if version == (allocator.Version{}) {
		version = allocator.Newest
	}
	p := &Program{Name: name, Version: version, fed: true, pendingUntil: map[uint64]int{}, Answers: []Answer{}}
	if s.Settings != nil {
		p.ConfText = s.Settings.AllocConf
		config, _, err := allocator.ParseConfig(p.ConfText, version)
		if err != nil {
			return nil, fmt.Errorf("%s: allocator settings %q: %w", name, p.ConfText, err)
		}
		config.ExpandableSegments = s.Settings.ExpandableSegments
		p.Config = config
	}
	var trace []snapshot.Entry
	if device < len(s.Traces) {
		trace = s.Traces[device]
	}
	for i := range s.Segments {
		seg := &s.Segments[i]
		if seg.Device == device && (seg.PoolA != 0 || seg.PoolB != 0) {
			return nil, fmt.Errorf("%s: segments[%d] belongs to a private pool (CUDA graphs or MemPool): the history does not say which requests went there", name, i)
		}
	}
	if s.Origin != nil && s.Origin.MemoryFraction > 0 {
		p.Config.MemoryFraction = s.Origin.MemoryFraction
	}
	return p.build(s, device, trace, true, total)
}

// fromHistory makes a program of a history that began with an empty allocator, and whose final state was not recorded.
func fromHistory(s *snapshot.Snapshot, version allocator.Version, name string) (*Program, error) {
	p := &Program{Name: name, Version: version, fed: true, pendingUntil: map[uint64]int{}, Answers: []Answer{}}
	for _, e := range s.Traces[0] {
		if e.Action == snapshot.ActionSegmentMap {
			p.Config.ExpandableSegments = true
			break
		}
	}
	total := uint64(unknownCardBytes)
	if s.Origin.TotalBytes != 0 {
		total = min(s.Origin.TotalBytes, Unlimited)
	}
	return p.build(s, 0, s.Traces[0], false, total)
}

// build fills in the requests and the answers.
func (p *Program) build(s *snapshot.Snapshot, device int, trace []snapshot.Entry, stateful bool, total uint64) (*Program, error) {
	name, version := p.Name, p.Version
	f := forward{program: p, blockAt: map[uint64]int32{}, pending: map[uint64]pendingBlock{}}
	if stateful {
		if err := p.undoAll(s, device, trace, version, &f); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		p.Final = finalSegments(s, device)
	}
	for i := range trace {
		if err := f.add(&trace[i]); err != nil {
			return nil, fmt.Errorf("%s: device_traces[%d][%d]: %w", name, device, i, err)
		}
	}
	f.finish()
	p.TotalBytes = total
	if err := p.resolveReleases(); err != nil {
		return nil, err
	}
	p.TotalKnown = total != unknownCardBytes
	return p, nil
}

func (p *Program) undoAll(s *snapshot.Snapshot, device int, trace []snapshot.Entry, version allocator.Version, f *forward) error {
	u := undo{segments: map[uint64]*undoneSegment{}, live: map[uint64]*undoneBlock{}, config: p.Config, version: version}
	if err := u.final(s, device); err != nil {
		return err
	}
	for i := len(trace) - 1; i >= 0; i-- {
		if err := u.back(&trace[i]); err != nil {
			return fmt.Errorf("device_traces[%d][%d]: %w", device, i, err)
		}
	}
	u.start(f)
	return nil
}

// unknownCardBytes stands for the card of a snapshot, which does not name it. It sets the length of address ranges only.
const unknownCardBytes = 1 << 40

// undo walks a history backwards from the final state.
type undo struct {
	segments map[uint64]*undoneSegment
	order    []uint64 // segment addresses, ascending
	live     map[uint64]*undoneBlock
	config   allocator.Config
	version  allocator.Version
}

type undoneSegment struct {
	addr, size, stream uint64
	small, expandable  bool
	// blocks are the addresses of live blocks, ascending.
	blocks []uint64
}

type undoneBlock struct {
	size, requested uint64
	pending         bool
}

func (u *undo) final(s *snapshot.Snapshot, device int) error {
	for i := range s.Segments {
		seg := &s.Segments[i]
		if seg.Device != device {
			continue
		}
		un := &undoneSegment{addr: seg.Addr, size: seg.TotalBytes, stream: seg.Stream, small: seg.Small, expandable: seg.Expandable}
		if err := u.addSegment(un); err != nil {
			return fmt.Errorf("segments[%d]: %w", i, err)
		}
		for _, b := range seg.Blocks {
			if b.State != snapshot.Inactive {
				un.blocks = append(un.blocks, b.Addr)
				u.live[b.Addr] = &undoneBlock{b.SizeBytes, b.RequestedBytes, b.State == snapshot.ActivePendingFree}
			}
		}
	}
	return nil
}

func (u *undo) addSegment(seg *undoneSegment) error {
	i := sort.Search(len(u.order), func(i int) bool { return u.order[i] >= seg.addr })
	if i > 0 {
		if prev := u.segments[u.order[i-1]]; prev.addr+prev.size > seg.addr {
			return fmt.Errorf("segment %#x overlaps segment %#x", seg.addr, prev.addr)
		}
	}
	if i < len(u.order) && seg.addr+seg.size > u.order[i] {
		return fmt.Errorf("segment %#x overlaps segment %#x", seg.addr, u.order[i])
	}
	u.order = append(u.order, 0)
	copy(u.order[i+1:], u.order[i:])
	u.order[i] = seg.addr
	u.segments[seg.addr] = seg
	return nil
}

// containing finds the segment around an address.
func (u *undo) containing(addr uint64) *undoneSegment {
	i := sort.Search(len(u.order), func(i int) bool { return u.order[i] > addr })
	if i == 0 {
		return nil
	}
	if seg := u.segments[u.order[i-1]]; addr < seg.addr+seg.size {
		return seg
	}
	return nil
}

// back undoes one entry.
func (u *undo) back(e *snapshot.Entry) error {
	switch e.Action {
	case snapshot.ActionAlloc:
		seg := u.containing(e.Addr)
		if seg == nil || u.live[e.Addr] == nil {
			return fmt.Errorf("alloc at %#x: no live block is there afterwards", e.Addr)
		}
		delete(u.live, e.Addr)
		i := sort.Search(len(seg.blocks), func(i int) bool { return seg.blocks[i] >= e.Addr })
		seg.blocks = append(seg.blocks[:i], seg.blocks[i+1:]...)
	case snapshot.ActionFreeCompleted:
		return u.unfree(e)
	case snapshot.ActionFreeRequested:
		b := u.live[e.Addr]
		if b == nil {
			return fmt.Errorf("free_requested at %#x: no block is there afterwards, and no free_completed follows", e.Addr)
		}
		b.pending = false
	case snapshot.ActionSegmentAlloc, snapshot.ActionSegmentMap:
		return u.unmap(e)
	case snapshot.ActionSegmentFree, snapshot.ActionSegmentUnmap:
		return u.remap(e)
	}
	return nil
}

// unfree puts back a block that was freed. Its size is not recorded: it is the rounded request, or reaches to the next live block when the gap
// was too small to be split off.
func (u *undo) unfree(e *snapshot.Entry) error {
	seg := u.containing(e.Addr)
	if seg == nil {
		return fmt.Errorf("free_completed at %#x: no segment is there", e.Addr)
	}
	if u.live[e.Addr] != nil {
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
	size := u.config.RoundSize(e.SizeBytes, u.version)
	if size > next-e.Addr {
		return fmt.Errorf("free_completed at %#x: the block of %d bytes does not fit before %#x", e.Addr, size, next)
	}
	if gap := next - e.Addr - size; !allocator.CanBeFree(gap, seg.small, seg.expandable || u.config.ExpandableSegments) {
		size += gap
	}
	seg.blocks = append(seg.blocks, 0)
	copy(seg.blocks[i+1:], seg.blocks[i:])
	seg.blocks[i] = e.Addr
	u.live[e.Addr] = &undoneBlock{size, e.SizeBytes, true}
	return nil
}

// unmap undoes segment_alloc and segment_map.
func (u *undo) unmap(e *snapshot.Entry) error {
	seg := u.containing(e.Addr)
	if seg == nil || e.SizeBytes > seg.addr+seg.size-e.Addr {
		return fmt.Errorf("%v at %#x: no such segment is there afterwards", e.Action, e.Addr)
	}
	for _, b := range seg.blocks {
		if b < e.Addr+e.SizeBytes && e.Addr < b+u.live[b].size {
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
	u.removeSegment(seg)
	for _, part := range []*undoneSegment{&low, &high} {
		if part.size > 0 {
			if err := u.addSegment(part); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *undo) removeSegment(seg *undoneSegment) {
	i := sort.Search(len(u.order), func(i int) bool { return u.order[i] >= seg.addr })
	u.order = append(u.order[:i], u.order[i+1:]...)
	delete(u.segments, seg.addr)
}

// remap undoes segment_free and segment_unmap.
func (u *undo) remap(e *snapshot.Entry) error {
	if e.Addr > 1<<62 || e.SizeBytes == 0 || e.SizeBytes > 1<<48 {
		return fmt.Errorf("%v at %#x of %d bytes is impossible", e.Action, e.Addr, e.SizeBytes)
	}
	seg := &undoneSegment{addr: e.Addr, size: e.SizeBytes, stream: e.Stream}
	if e.Action == snapshot.ActionSegmentUnmap {
		seg.expandable = true
		// The unit tells the pool apart: large ranges are mapped in units of 20 MiB.
		seg.small = e.SizeBytes%largeUnit(u.config) != 0
		// What touches it was the same mapped part.
		if prev := u.containing(e.Addr - 1); prev != nil && prev.addr+prev.size == e.Addr && prev.expandable && prev.stream == e.Stream {
			seg.addr, seg.size, seg.blocks, seg.small = prev.addr, prev.size+seg.size, prev.blocks, prev.small
			u.removeSegment(prev)
		}
		if next := u.segments[seg.addr+seg.size]; next != nil && next.expandable && next.stream == e.Stream {
			seg.size += next.size
			seg.blocks = append(append([]uint64(nil), seg.blocks...), next.blocks...)
			seg.small = next.small
			u.removeSegment(next)
		}
	} else {
		seg.small = e.SizeBytes == smallSegment
	}
	return u.addSegment(seg)
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
func (u *undo) start(f *forward) {
	for _, addr := range u.order {
		seg := u.segments[addr]
		out := StartSegment{Addr: seg.addr, SizeBytes: seg.size, Stream: seg.stream, Small: seg.small, Expandable: seg.expandable}
		for _, b := range seg.blocks {
			live := u.live[b]
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

// forward turns entries into requests and answers.
type forward struct {
	program *Program
	blockAt map[uint64]int32
	pending map[uint64]pendingBlock
	// waiting are events seen before the request that caused them.
	waiting []allocator.Event
	streams uint64
}

type pendingBlock struct {
	stream uint64
	op     int
}

// firstPseudoStream begins the numbers of streams that stand for "whatever the freed block waits for".
const firstPseudoStream = 1 << 63

func (f *forward) block() int32 {
	f.program.Blocks++
	return int32(f.program.Blocks - 1)
}

func (f *forward) request(op Op, answer Answer) int {
	f.program.Ops = append(f.program.Ops, op)
	f.program.Answers = append(f.program.Answers, answer)
	return len(f.program.Ops) - 1
}

// free requests a free that completes later, at a moment that is not known yet.
func (f *forward) free(block int32, addr uint64, events []allocator.Event) {
	stream := firstPseudoStream + f.streams
	f.streams++
	op := f.request(Op{Kind: OpFree, Block: block, Stream: stream}, Answer{Events: events})
	f.pending[addr] = pendingBlock{stream, op}
	f.program.pendingUntil[stream] = maxOps
	delete(f.blockAt, addr)
}

func (f *forward) add(e *snapshot.Entry) error {
	if e.SizeBytes > 1<<48 {
		return fmt.Errorf("%v of %d bytes is impossible", e.Action, e.SizeBytes)
	}
	kind, ok := kindOf(e.Action)
	if !ok {
		return nil
	}
	event := allocator.Event{Kind: kind, Addr: e.Addr, SizeBytes: e.SizeBytes, Stream: e.Stream}
	switch e.Action {
	case snapshot.ActionAlloc, snapshot.ActionOOM:
		if e.Action == snapshot.ActionAlloc {
			f.splitRelease()
		}
		op := Op{Kind: OpAlloc, Block: f.block(), Bytes: e.SizeBytes, Stream: e.Stream}
		answer := Answer{Events: append(f.waiting, event)}
		f.waiting = nil
		if e.Action == snapshot.ActionOOM {
			answer.OOM = true
		} else {
			answer.HasAddr, answer.Addr = true, e.Addr
			if _, taken := f.blockAt[e.Addr]; taken {
				return fmt.Errorf("alloc at %#x: the block there is live", e.Addr)
			}
			f.blockAt[e.Addr] = op.Block
		}
		f.request(op, answer)
	case snapshot.ActionFreeRequested:
		block, live := f.blockAt[e.Addr]
		if !live {
			return fmt.Errorf("free_requested at %#x: no block is live there", e.Addr)
		}
		if len(f.waiting) > 0 {
			f.flush()
		}
		f.free(block, e.Addr, []allocator.Event{event})
	case snapshot.ActionFreeCompleted:
		p, waits := f.pending[e.Addr]
		if !waits {
			return fmt.Errorf("free_completed at %#x: it was not requested", e.Addr)
		}
		delete(f.pending, e.Addr)
		if p.op == len(f.program.Ops)-1 && len(f.waiting) == 0 {
			// The usual case: it completes at once. No other stream is involved.
			delete(f.program.pendingUntil, p.stream)
			f.program.Ops[p.op].Stream = 0
			f.program.Answers[p.op].Events = append(f.program.Answers[p.op].Events, event)
			return nil
		}
		f.program.pendingUntil[p.stream] = len(f.program.Ops)
		f.waiting = append(f.waiting, event)
	default:
		f.waiting = append(f.waiting, event)
	}
	return nil
}

// splitRelease ascribes segments that were given back, without a new one after them, to an empty_cache call before the allocation: an allocation that
// gives something back grows afterwards, or fails.
func (f *forward) splitRelease() {
	last := lastRelease(f.waiting)
	if last < 0 || slices.ContainsFunc(f.waiting[last:], func(e allocator.Event) bool {
		return e.Kind == allocator.EventSegmentAlloc || e.Kind == allocator.EventSegmentMap
	}) {
		return
	}
	rest := slices.Clone(f.waiting[last+1:])
	f.waiting = f.waiting[:last+1]
	f.flush()
	f.waiting = rest
}

// lastRelease is the index of the last event that gave memory back, or -1.
func lastRelease(events []allocator.Event) int {
	for i := len(events) - 1; i >= 0; i-- {
		if k := events[i].Kind; k == allocator.EventSegmentFree || k == allocator.EventSegmentUnmap {
			return i
		}
	}
	return -1
}

// A history does not say why memory was given back, nor whether a delayed free completed by itself or was waited for. reading is how one request is read.
type reading uint8

const (
	asRequested   reading = iota // the request gave back, and frees had completed by themselves
	waitedFor                    // the request waited for the frees, after its search had failed
	afterEmptying                // an empty_cache call came before the request
	undecided
)

// maxReadings bounds how often a history is read again.
const maxReadings = 64

// resolveReleases chooses the reading of each ambiguous request under which the simulator agrees with the record, and writes it into the program.
func (p *Program) resolveReleases() error {
	readings := map[int]reading{}
	for range maxReadings {
		restore := p.delay(readings)
		res, err := p.check(func(c *checker, i int) {
			op := &p.Ops[i]
			if op.Kind != OpAlloc || lastRelease(p.Answers[i].Events) < 0 || readings[i] == waitedFor {
				return
			}
			// What fits without the frees that complete now would have been served: then the cache was emptied before.
			if readings[i] == afterEmptying || c.runner.a.Fits(op.Bytes, op.Stream) {
				readings[i] = afterEmptying
				c.runner.a.EmptyCache()
			}
		})
		if err != nil {
			return err
		}
		if res.First == nil || res.First.Op >= len(p.Ops) {
			break
		}
		i := res.First.Op
		next := readings[i] + 1
		if next == waitedFor && !slices.ContainsFunc(p.Answers[i].Events, func(e allocator.Event) bool { return e.Kind == allocator.EventFreeCompleted }) {
			next++
		}
		if next == afterEmptying && lastRelease(p.Answers[i].Events) < 0 {
			next++
		}
		restore()
		if p.Ops[i].Kind != OpAlloc || next >= undecided && !p.reopenFree(i) {
			break // no reading agrees: the difference stands
		}
		if next >= undecided {
			next = waitedFor
		}
		readings[i] = next
	}
	var before []int
	for i, r := range readings {
		if r == afterEmptying {
			before = append(before, i)
		}
	}
	if len(before) > 0 {
		slices.Sort(before)
		p.insertEmptyCache(before)
	}
	return nil
}

// delay makes frees that were waited for complete only when they are waited for. The returned function takes that back.
func (p *Program) delay(readings map[int]reading) func() {
	old := map[uint64]int{}
	for stream, until := range p.pendingUntil {
		if readings[until] == waitedFor {
			old[stream] = until
			p.pendingUntil[stream] = maxOps
		}
	}
	return func() {
		for stream, until := range old {
			p.pendingUntil[stream] = until
		}
	}
}

// reopenFree takes the completion of a free away from it and gives it to the request that follows at once: its search came first, and it then waited.
func (p *Program) reopenFree(i int) bool {
	if i == 0 || p.Ops[i-1].Kind != OpFree || p.Ops[i-1].Stream != 0 || len(p.Answers[i-1].Events) != 2 {
		return false
	}
	stream := uint64(firstPseudoStream + 1<<62 + uint64(i))
	p.Ops[i-1].Stream = stream
	p.pendingUntil[stream] = i
	completed := p.Answers[i-1].Events[1]
	p.Answers[i-1].Events = p.Answers[i-1].Events[:1:1]
	p.Answers[i].Events = append([]allocator.Event{completed}, p.Answers[i].Events...)
	return true
}

func (p *Program) insertEmptyCache(before []int) {
	ops := make([]Op, 0, len(p.Ops)+len(before))
	answers := make([]Answer, 0, len(p.Ops)+len(before))
	moved := make([]int, len(p.Ops)+1)
	for i, op := range p.Ops {
		moved[i] = len(ops)
		answer := p.Answers[i]
		if len(before) > 0 && before[0] == i {
			before = before[1:]
			last := lastRelease(answer.Events)
			ops = append(ops, Op{Kind: OpEmptyCache})
			answers = append(answers, Answer{Events: answer.Events[:last+1]})
			answer.Events = answer.Events[last+1:]
		}
		ops = append(ops, op)
		answers = append(answers, answer)
	}
	moved[len(p.Ops)] = len(ops)
	for stream, until := range p.pendingUntil {
		if until <= len(p.Ops) {
			p.pendingUntil[stream] = moved[until]
		}
	}
	p.Ops, p.Answers = ops, answers
}

// flush ascribes events that no allocation explains to an empty_cache call: segments that are given back, with what was waiting.
func (f *forward) flush() {
	f.request(Op{Kind: OpEmptyCache}, Answer{Events: f.waiting})
	f.waiting = nil
}

func (f *forward) finish() {
	if len(f.waiting) > 0 {
		f.flush()
	}
}

func kindOf(a snapshot.Action) (allocator.EventKind, bool) {
	for kind, action := range actionOf {
		if action == a {
			return kind, true
		}
	}
	return 0, false
}

// finalSegments is the recorded state at the end, in the words of the simulator.
func finalSegments(s *snapshot.Snapshot, device int) []allocator.SegmentState {
	final := []allocator.SegmentState{}
	for i := range s.Segments {
		seg := &s.Segments[i]
		if seg.Device != device {
			continue
		}
		out := allocator.SegmentState{Addr: seg.Addr, SizeBytes: seg.TotalBytes, Stream: seg.Stream, Small: seg.Small, Expandable: seg.Expandable}
		for _, b := range seg.Blocks {
			state := allocator.BlockState{Addr: b.Addr, SizeBytes: b.SizeBytes, Live: b.State == snapshot.ActiveAllocated, Pending: b.State == snapshot.ActivePendingFree}
			if b.State != snapshot.Inactive { // a free block repeats the last request that it served
				state.RequestedBytes = b.RequestedBytes
			}
			out.Blocks = append(out.Blocks, state)
		}
		final = append(final, out)
	}
	sort.Slice(final, func(i, j int) bool { return final[i].Addr < final[j].Addr })
	return final
}
