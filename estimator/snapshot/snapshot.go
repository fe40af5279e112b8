// Package snapshot reads and writes PyTorch's memory snapshots: the pickles of torch.cuda.memory._dump_snapshot, which PyTorch's own viewer opens. A
// snapshot comes from a stranger's process: the decoder knows plain data only, runs nothing, and bounds everything.
package snapshot

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// Snapshot is what a memory snapshot says about allocators, without stack frames.
type Snapshot struct {
	Segments []Segment
	// Traces holds one history per device, oldest entry first.
	Traces [][]Entry
	// Settings is nil when the snapshot does not say.
	Settings *Settings
	// Origin is what gresize adds to the snapshots that it writes; the viewer ignores it.
	Origin *Origin
}

// Origin names what PyTorch's own snapshots leave out.
type Origin struct {
	TorchVersion string
	// TotalBytes is the memory of the card, 0 when it is not known.
	TotalBytes uint64
	// MemoryFraction is the limit that was set before the history began, 0 for none.
	MemoryFraction float64
}

// Segment is one cudaMalloc, or one contiguous mapped part of an expandable range.
type Segment struct {
	Device       int
	Addr         uint64
	TotalBytes   uint64
	Stream       uint64
	Small        bool
	Expandable   bool
	PoolA, PoolB int64
	Blocks       []Block
}

// Block is a piece of a Segment.
type Block struct {
	// Addr is 0 in old snapshots, where it follows from the sizes before it; the reader fills it in.
	Addr, SizeBytes, RequestedBytes uint64
	State                           State
}

// State is what a block is used for.
type State uint8

// The states of a block.
const (
	Inactive State = iota
	ActiveAllocated
	ActivePendingFree
)

var stateNames = [...]string{"inactive", "active_allocated", "active_pending_free"}

// String gives PyTorch's name.
func (s State) String() string { return stateNames[s] }

func parseState(name string) (State, bool) {
	switch name {
	case "inactive":
		return Inactive, true
	case "active_allocated":
		return ActiveAllocated, true
	case "active_pending_free", "active_awaiting_free":
		return ActivePendingFree, true
	}
	return 0, false
}

// Action is what one Entry of a history did.
type Action uint8

// The actions of a history. ActionOther stands for those that move no memory.
const (
	ActionAlloc Action = iota
	ActionFreeRequested
	ActionFreeCompleted
	ActionSegmentAlloc
	ActionSegmentFree
	ActionSegmentMap
	ActionSegmentUnmap
	ActionOOM
	ActionSnapshot
	ActionOther
)

var actionNames = [...]string{"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom", "snapshot", "other"}

// String gives PyTorch's name.
func (a Action) String() string { return actionNames[a] }

// ParseAction reads PyTorch's name of an action; an unknown one moves no memory.
func ParseAction(name string) Action {
	for i, n := range actionNames[:ActionOther] {
		if n == name {
			return Action(i)
		}
	}
	if name == "free" { // PyTorch 2.0
		return ActionFreeCompleted
	}
	return ActionOther
}

// Entry is one event of a history.
type Entry struct {
	Action Action
	// Addr is the address, or the card's free memory for an OOM.
	Addr, SizeBytes, Stream uint64
	// TimeMicros is 0 when it was not recorded.
	TimeMicros int64
	// Category colours the entry in the viewer; it is written, and not read.
	Category string
}

// Settings are the allocator settings that a snapshot repeats.
type Settings struct {
	AllocConf          string
	MaxSplitBytes      int64 // -1: unlimited
	GCThreshold        float64
	ExpandableSegments bool
}

// Limits bound what one snapshot may ask of its reader.
type Limits struct {
	// FileBytes is the size of the pickle, after decompression.
	FileBytes int64
	// Nodes counts values of all kinds.
	Nodes int
	// Containers counts lists and dictionaries, which are remembered to the end. It must be below 2^31.
	Containers int
	// StackDepth bounds nesting and unfinished values.
	StackDepth int
	// StringBytes bounds one string.
	StringBytes int
}

// DefaultLimits hold for files that a person names on a command line.
var DefaultLimits = Limits{FileBytes: 4 << 30, Nodes: 1 << 30, Containers: 48 << 20, StackDepth: 1 << 20, StringBytes: 1 << 20}

// Read reads a snapshot: a pickle, or the reduced JSON form, either of them plain or gzip.
func Read(in io.Reader, name string, limits Limits) (*Snapshot, error) {
	buffered := bufio.NewReaderSize(in, 1<<16)
	if head, err := buffered.Peek(2); err == nil && bytes.Equal(head, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		buffered = bufio.NewReaderSize(unzipped, 1<<16)
	}
	head, err := buffered.Peek(1)
	if err != nil {
		return nil, fmt.Errorf("%s: the file is empty", name)
	}
	var s *Snapshot
	if head[0] == '{' {
		s, err = readJSON(buffered, limits)
	} else {
		s, err = readPickle(buffered, limits)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := s.complete(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// complete fills in block addresses and checks that segments are made of their blocks.
func (s *Snapshot) complete() error {
	for i := range s.Segments {
		seg := &s.Segments[i]
		if seg.Addr > 1<<62 || seg.TotalBytes > 1<<48 {
			return fmt.Errorf("segments[%d]: address %#x and size %d are impossible", i, seg.Addr, seg.TotalBytes)
		}
		if seg.Device < 0 || seg.Device > 1<<16 {
			return fmt.Errorf("segments[%d]: device %d is impossible", i, seg.Device)
		}
		at := seg.Addr
		for j := range seg.Blocks {
			b := &seg.Blocks[j]
			if b.SizeBytes > seg.TotalBytes || b.Addr != 0 && b.Addr != at {
				return fmt.Errorf("segments[%d].blocks[%d]: address %#x or size %d does not follow from the blocks before it", i, j, b.Addr, b.SizeBytes)
			}
			b.Addr = at
			at += b.SizeBytes
			if at-seg.Addr > seg.TotalBytes {
				break
			}
		}
		if at-seg.Addr != seg.TotalBytes {
			return fmt.Errorf("segments[%d]: its blocks add up to %d bytes, its size is %d", i, at-seg.Addr, seg.TotalBytes)
		}
	}
	return nil
}
