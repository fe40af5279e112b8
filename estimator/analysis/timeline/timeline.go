// Package timeline tells what the memory of one card is for at each moment of a recorded run: by category over time, and by owner at the peak.
package timeline

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/snapshot"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/trace/events"
)

// Category is what a block is for.
type Category uint8

// The categories, in the order in which they are stacked: what stays longest lies lowest.
const (
	Parameters Category = iota // and buffers
	OptimizerState
	Gradients
	Activations
	BackwardTemporaries
	Workspace
	Other
	// These and the first two are what XLA's arrays are.
	Arguments
	Outputs
	Temporaries
	Categories int = iota
)

var categoryNames = [Categories]string{"parameters", "optimizer state", "gradients", "activations", "backward", "workspace", "other", "arguments", "outputs", "temporaries"}

// String gives the name for people.
func (c Category) String() string { return categoryNames[c] }

// Explain says in a sentence what is counted.
func (c Category) Explain() string {
	return [Categories]string{
		"parameters and buffers of the modules", "what the optimizers keep", "the .grad of parameters",
		"taken in the forward of a module", "taken in a backward pass and not seen as a gradient",
		"scratch of an operator, or kept by a library to the end", "inputs, losses, and what no mark tells",
		"given to a computation, and not carried from step to step", "made by a computation, and not carried from step to step", "what an execution needs while it runs",
	}[c]
}

// Block is memory from the moment that it was handed out to the moment that it could be used again.
type Block struct {
	Addr, SizeBytes uint64
	// From and To are indexes of the history; To is the number of its entries for a block that was never given back.
	From, To int
	Category Category
	// Owner is a module's or parameter's path; empty where it is not known.
	Owner string
}

// Range is a piece of the card that the allocator holds.
type Range struct {
	Addr, SizeBytes uint64
	From, To        int
}

// Step is the end of a training step.
type Step struct {
	At     int
	Number int64
}

// Timeline is the whole of one run on one card.
type Timeline struct {
	Blocks  []Block
	Ranges  []Range
	Steps   []Step
	Entries int
	// PeakAt is the entry after which most bytes are handed out; PeakReservedBytes is the largest sum of ranges, at any time.
	PeakAt             int
	PeakAllocatedBytes uint64
	PeakReservedBytes  uint64
	// Marked: the record says what the program was doing.
	Marked bool
	// XLA: the blocks are arrays and temporaries of XLA, whose allocator has no ranges here.
	XLA bool
}

// New makes the timeline of a history that begins with an empty allocator; blockBytes is the size of the block of each request that was served, in
// their order, since a history knows what was asked for only. An error names the entry.
func New(h *events.History, blockBytes []uint64) (*Timeline, error) {
	if h.Lost > 0 {
		return nil, fmt.Errorf("the recording had no room for %d requests: it begins in mid-run", h.Lost)
	}
	b := builder{
		timeline: &Timeline{Entries: len(h.Entries), Marked: len(h.Marks) > 0, XLA: h.Allocator == events.XLA}, history: h, live: map[uint64]int{}, scratch: map[int]bool{}, blockBytes: blockBytes,
	}
	if err := b.run(); err != nil {
		return nil, err
	}
	return b.timeline, nil
}

type builder struct {
	timeline *Timeline
	history  *events.History
	// blockBytes are the sizes of the blocks that are still to come.
	blockBytes []uint64
	// live are the open blocks by address, held the open ranges in the order of their addresses.
	live map[uint64]int
	held []int
	// asked is what each block was asked for, in bytes, and scratch those that were handed back before anything else was taken.
	asked     []uint64
	scratch   map[int]bool
	allocated uint64
	reserved  uint64
	scope     scope
}

func (b *builder) run() error {
	h := b.history
	marks, owners := h.Marks, h.Owners
	for i := 0; ; i++ {
		for len(owners) > 0 && owners[0].At <= i {
			b.own(&owners[0])
			owners = owners[1:]
		}
		for len(marks) > 0 && marks[0].At <= i {
			b.mark(&marks[0])
			marks = marks[1:]
		}
		if i == len(h.Entries) {
			break
		}
		if err := b.entry(i, &h.Entries[i]); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if b.allocated > b.timeline.PeakAllocatedBytes {
			b.timeline.PeakAllocatedBytes, b.timeline.PeakAt = b.allocated, i
		}
		b.timeline.PeakReservedBytes = max(b.timeline.PeakReservedBytes, b.reserved)
	}
	b.keptBeyondSteps()
	return nil
}

func (b *builder) entry(i int, e *snapshot.Entry) error {
	switch e.Action {
	case snapshot.ActionAlloc:
		if _, taken := b.live[e.Addr]; taken {
			return fmt.Errorf("the block at %#x is handed out twice", e.Addr)
		}
		if len(b.blockBytes) == 0 || b.blockBytes[0] < e.SizeBytes {
			return fmt.Errorf("no block of the replay serves the request of %d bytes", e.SizeBytes)
		}
		b.live[e.Addr] = len(b.timeline.Blocks)
		block := Block{Addr: e.Addr, SizeBytes: b.blockBytes[0], From: i, To: b.timeline.Entries}
		block.Category, block.Owner = b.scope.guess()
		b.blockBytes = b.blockBytes[1:]
		b.scope.took(len(b.timeline.Blocks))
		b.timeline.Blocks = append(b.timeline.Blocks, block)
		b.asked = append(b.asked, e.SizeBytes)
		b.allocated += block.SizeBytes
	case snapshot.ActionFreeRequested: // where a mark behind the operator stands already
		b.handBack(e.Addr)
	case snapshot.ActionFreeCompleted:
		n, ok := b.live[e.Addr]
		if !ok {
			return fmt.Errorf("the block at %#x is given back and was not handed out", e.Addr)
		}
		b.handBack(e.Addr)
		delete(b.live, e.Addr)
		b.timeline.Blocks[n].To = i
		b.allocated -= b.timeline.Blocks[n].SizeBytes
	case snapshot.ActionSegmentAlloc, snapshot.ActionSegmentMap:
		return b.openRange(Range{Addr: e.Addr, SizeBytes: e.SizeBytes, From: i, To: b.timeline.Entries})
	case snapshot.ActionSegmentFree:
		n, ok := b.find(e.Addr)
		if !ok {
			return fmt.Errorf("the segment at %#x is given back and was not taken", e.Addr)
		}
		b.closeRange(n, i)
	case snapshot.ActionSegmentUnmap:
		return b.unmap(i, e.Addr, e.SizeBytes)
	}
	return nil
}

// handBack notes a block that goes back before another was taken.
func (b *builder) handBack(addr uint64) {
	if n, ok := b.live[addr]; ok && n == len(b.timeline.Blocks)-1 {
		b.scratch[n] = true
	}
}

// find returns where in held the range at an address is, or would be.
func (b *builder) find(addr uint64) (int, bool) {
	return slices.BinarySearchFunc(b.held, addr, func(n int, addr uint64) int { return cmp.Compare(b.timeline.Ranges[n].Addr, addr) })
}

func (b *builder) openRange(r Range) error {
	n, taken := b.find(r.Addr)
	if taken {
		return fmt.Errorf("the segment at %#x is taken twice", r.Addr)
	}
	b.held = slices.Insert(b.held, n, len(b.timeline.Ranges))
	b.timeline.Ranges = append(b.timeline.Ranges, r)
	b.reserved += r.SizeBytes
	return nil
}

// closeRange ends the range at a place of held.
func (b *builder) closeRange(n, at int) {
	r := &b.timeline.Ranges[b.held[n]]
	r.To = at
	b.reserved -= r.SizeBytes
	b.held = slices.Delete(b.held, n, n+1)
}

// unmap takes a piece out of mapped ranges: it may cut through several of them.
func (b *builder) unmap(at int, addr, size uint64) error {
	end, left := addr+size, size
	n, found := b.find(addr)
	if !found && n > 0 {
		n-- // the range before may reach into the piece
	}
	var rests []Range
	for n < len(b.held) && b.timeline.Ranges[b.held[n]].Addr < end {
		r := b.timeline.Ranges[b.held[n]]
		low, high := max(r.Addr, addr), min(r.Addr+r.SizeBytes, end)
		if low >= high {
			n++
			continue
		}
		b.closeRange(n, at)
		left -= high - low
		rests = append(rests, Range{r.Addr, low - r.Addr, at, b.timeline.Entries}, Range{high, r.Addr + r.SizeBytes - high, at, b.timeline.Entries})
	}
	for _, rest := range rests {
		if rest.SizeBytes > 0 {
			if err := b.openRange(rest); err != nil {
				return err
			}
		}
	}
	if left != 0 {
		return fmt.Errorf("%d bytes at %#x are unmapped, %d of them were not mapped", size, addr, left)
	}
	return nil
}

// libraryWorkspaces are the sizes that PyTorch asks for when it gives cuBLAS or cuBLASLt a workspace: before Hopper, from it on, of cuBLASLt, and with the two settings
// of CUBLAS_WORKSPACE_CONFIG that make cuBLAS deterministic.
var libraryWorkspaces = map[uint64]bool{8320 << 10: true, 32 << 20: true, 1 << 20: true, 12 << 20: true, 128 << 10: true}

const keptBeyond = "kept beyond its step"

// keptBeyondSteps tells apart what was taken in a forward or backward pass and stays to the end, though an activation lives no longer than its step: a library's workspace
// has a size of its own and is taken once; all else is the program's.
func (b *builder) keptBeyondSteps() {
	steps := b.timeline.Steps
	if len(steps) < 2 {
		return
	}
	lastStep := steps[len(steps)-2].At
	type kind struct {
		owner string
		bytes uint64
	}
	firstStep := map[kind]int{}
	again := map[kind]bool{} // in more steps than one
	var kept []int
	for i := range b.timeline.Blocks {
		block := &b.timeline.Blocks[i]
		if (block.Category != Activations && block.Category != BackwardTemporaries) || block.To != b.timeline.Entries || block.From >= lastStep {
			continue
		}
		kept = append(kept, i)
		k := kind{block.Owner, b.asked[i]}
		step, _ := slices.BinarySearchFunc(steps, block.From+1, func(s Step, at int) int { return cmp.Compare(s.At, at) })
		if first, seen := firstStep[k]; !seen {
			firstStep[k] = step
		} else if first != step {
			again[k] = true
		}
	}
	for _, i := range kept {
		block := &b.timeline.Blocks[i]
		switch k := (kind{block.Owner, b.asked[i]}); {
		case libraryWorkspaces[k.bytes] && !again[k]:
			block.Category, block.Owner = Workspace, "kept by a library"
		case block.Owner == "":
			block.Owner = keptBeyond
		default:
			block.Owner += ", " + keptBeyond
		}
	}
}

// Sample is the state at one moment. Bytes of categories are those of live blocks; ReservedBytes includes what is cached.
type Sample struct {
	At            int
	Bytes         [Categories]uint64
	ReservedBytes uint64
}

// AllocatedBytes is the sum of the live blocks.
func (s *Sample) AllocatedBytes() (sum uint64) {
	for _, n := range s.Bytes {
		sum += n
	}
	return sum
}

// Samples divides the run into at most n equal parts, and shows of each the moment at which most was handed out: no peak is lost.
func (t *Timeline) Samples(n int) []Sample {
	type change struct {
		at       int
		category int // -1: reserved
		bytes    int64
	}
	changes := make([]change, 0, 2*(len(t.Blocks)+len(t.Ranges)))
	for _, b := range t.Blocks {
		changes = append(changes, change{b.From, int(b.Category), int64(b.SizeBytes)})
		if b.To < t.Entries {
			changes = append(changes, change{b.To, int(b.Category), -int64(b.SizeBytes)})
		}
	}
	for _, r := range t.Ranges {
		changes = append(changes, change{r.From, -1, int64(r.SizeBytes)})
		if r.To < t.Entries {
			changes = append(changes, change{r.To, -1, -int64(r.SizeBytes)})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.bytes, b.bytes)) })
	n = max(1, min(n, t.Entries))
	samples := make([]Sample, 0, n)
	var now Sample
	for part := range n {
		end := (part + 1) * t.Entries / n // exclusive
		best := now
		best.At = part * t.Entries / n
		seen := false
		for len(changes) > 0 && changes[0].at < end {
			at := changes[0].at
			for len(changes) > 0 && changes[0].at == at {
				if c := changes[0]; c.category < 0 {
					now.ReservedBytes = uint64(int64(now.ReservedBytes) + c.bytes)
				} else {
					now.Bytes[c.category] = uint64(int64(now.Bytes[c.category]) + c.bytes)
				}
				changes = changes[1:]
			}
			now.At = at
			if !seen || now.AllocatedBytes() > best.AllocatedBytes() {
				best, seen = now, true
			}
		}
		samples = append(samples, best)
	}
	return samples
}

// Owner is what one thing holds at the peak.
type Owner struct {
	Category  Category
	Name      string
	SizeBytes uint64
	Blocks    int
}

// OwnersAtPeak returns what holds the memory at the peak, the largest first.
func (t *Timeline) OwnersAtPeak() []Owner {
	type key struct {
		category Category
		name     string
	}
	index := map[key]int{}
	var owners []Owner
	for _, b := range t.BlocksAtPeak() {
		k := key{b.Category, b.Owner}
		n, ok := index[k]
		if !ok {
			n = len(owners)
			index[k] = n
			owners = append(owners, Owner{Category: b.Category, Name: b.Owner})
		}
		owners[n].SizeBytes += b.SizeBytes
		owners[n].Blocks++
	}
	slices.SortStableFunc(owners, func(a, b Owner) int { return cmp.Compare(b.SizeBytes, a.SizeBytes) })
	return owners
}

// BlocksAtPeak returns the live blocks at the peak by address.
func (t *Timeline) BlocksAtPeak() []Block {
	return atPeak(t, t.Blocks, func(b Block) (from, to int, addr uint64) { return b.From, b.To, b.Addr })
}

// RangesAtPeak returns what the allocator holds at the peak by address. Parts of an expandable segment that were mapped one after another are ranges of their own.
func (t *Timeline) RangesAtPeak() []Range {
	return atPeak(t, t.Ranges, func(r Range) (from, to int, addr uint64) { return r.From, r.To, r.Addr })
}

// atPeak are those that live at the peak, by address.
func atPeak[T any](t *Timeline, all []T, of func(T) (from, to int, addr uint64)) (live []T) {
	for _, one := range all {
		if from, to, _ := of(one); from <= t.PeakAt && to > t.PeakAt {
			live = append(live, one)
		}
	}
	slices.SortFunc(live, func(a, b T) int {
		_, _, x := of(a)
		_, _, y := of(b)
		return cmp.Compare(x, y)
	})
	return live
}

// Read makes the timeline of a rank of a bundle.
func Read(b *trace.Bundle, rank int, name string) (*Timeline, error) {
	if rank >= 0 && rank < len(b.Ranks) && len(b.Ranks[rank].Events) > 0 && b.Ranks[rank].EventsFormat == trace.EventsJSON {
		if h, err := events.Read(b.Ranks[rank].Events); err == nil && h.Allocator == events.XLA {
			return ofXLA(h, rank, name)
		}
	}
	program, err := replay.FromBundle(b, replay.OpenOptions{Device: rank}, name)
	if err != nil {
		return nil, err
	}
	sizes, err := program.BlockBytes()
	if err != nil {
		return nil, err
	}
	h, err := events.Read(b.Ranks[rank].Events)
	if err != nil {
		return nil, err
	}
	t, err := New(h, slices.DeleteFunc(sizes, func(n uint64) bool { return n == 0 }))
	if err != nil {
		return nil, fmt.Errorf("%s: rank %d: %w", name, rank, err)
	}
	return t, nil
}

// granule is what XLA's allocator rounds every request up to.
const granule = 256

// ofXLA makes the timeline of a history of XLA's arrays.
func ofXLA(h *events.History, rank int, name string) (*Timeline, error) {
	var sizes []uint64
	for i := range h.Entries {
		if e := &h.Entries[i]; e.Action == snapshot.ActionAlloc {
			sizes = append(sizes, (e.SizeBytes+granule-1)/granule*granule)
		}
	}
	t, err := New(h, sizes)
	if err != nil {
		return nil, fmt.Errorf("%s: rank %d: %w", name, rank, err)
	}
	return t, nil
}

// OfSnapshot makes the timeline of one device of a memory snapshot. What was there when its history begins is taken as its first entries; what the memory was for, a snapshot does not say.
func OfSnapshot(s *snapshot.Snapshot, device int, name string) (*Timeline, error) {
	if devices := max(len(s.Traces), 1); device < 0 || device >= devices {
		return nil, fmt.Errorf("%s: device %d was asked for, the snapshot has %d", name, device, devices)
	}
	program, err := replay.FromSnapshot(s, device, allocator.Version{}, name)
	if err != nil {
		return nil, err
	}
	served, err := program.BlockBytes()
	if err != nil {
		return nil, err
	}
	h := &events.History{Device: device}
	var sizes []uint64
	for _, segment := range program.Start {
		h.Entries = append(h.Entries, snapshot.Entry{Action: snapshot.ActionSegmentAlloc, Addr: segment.Addr, SizeBytes: segment.SizeBytes})
		for _, b := range segment.Blocks {
			h.Entries = append(h.Entries, snapshot.Entry{Action: snapshot.ActionAlloc, Addr: b.Addr, SizeBytes: b.RequestedBytes})
			sizes = append(sizes, b.SizeBytes)
		}
	}
	if device < len(s.Traces) {
		h.Entries = append(h.Entries, s.Traces[device]...)
	}
	if len(h.Entries) == 0 {
		return nil, fmt.Errorf("%s: device %d: nothing was taken, and no history recorded (torch.cuda.memory._record_memory_history() before the run records one)", name, device)
	}
	t, err := New(h, append(sizes, slices.DeleteFunc(served, func(n uint64) bool { return n == 0 })...))
	if err != nil {
		return nil, fmt.Errorf("%s: device %d: %w", name, device, err)
	}
	return t, nil
}
