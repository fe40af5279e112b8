package allocator

import "fmt"

// EventKind names what the allocator did, in the words of a PyTorch memory snapshot.
type EventKind uint8

// The kinds of Event.
const (
	EventAlloc EventKind = iota
	EventFreeRequested
	EventFreeCompleted
	EventSegmentAlloc
	EventSegmentFree
	EventSegmentMap
	EventSegmentUnmap
	EventOOM
)

var eventNames = [...]string{"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom"}

// String gives the name that a snapshot uses.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// ParseEventKind reads the name that a snapshot uses.
func ParseEventKind(name string) (EventKind, bool) {
	for i, n := range eventNames {
		if n == name {
			return EventKind(i), true
		}
	}
	return 0, false
}

// Event is one line of the allocator's own history.
type Event struct {
	Kind EventKind
	// Addr is the address; for an OOM it is the free memory of the card, as in a snapshot.
	Addr uint64
	// SizeBytes is the requested size of a block, the real size of a segment, the rounded request of an OOM.
	SizeBytes uint64
	Stream    uint64
}

// String prints the event as one line.
func (e Event) String() string {
	return fmt.Sprintf("%s addr=%x size=%d stream=0x%x", e.Kind, e.Addr, e.SizeBytes, e.Stream)
}

// OOMError is what PyTorch raises as torch.OutOfMemoryError, with the state at that moment.
type OOMError struct {
	RequestedBytes, RoundedBytes, SegmentBytes uint64
	Stream                                     uint64
	// LimitBytes is the memory-fraction limit, 0 when none is set.
	LimitBytes uint64
	// DeviceFreeBytes and DeviceTotalBytes are the card's.
	DeviceFreeBytes, DeviceTotalBytes uint64
	// AllocatedBytes is live, CachedBytes is free inside segments, ReservedBytes is their sum with pending frees.
	AllocatedBytes, ReservedBytes uint64
	// LargestFreeBytes is the largest free block of the stream and pool that were searched.
	LargestFreeBytes uint64
}

// Error says what was asked and why it could not be had.
func (e *OOMError) Error() string {
	return fmt.Sprintf("out of memory: %d bytes requested (%d as a segment), %d of %d bytes of the card free, %d live and %d cached in the allocator, largest free block %d",
		e.RequestedBytes, e.SegmentBytes, e.DeviceFreeBytes, e.DeviceTotalBytes, e.AllocatedBytes, e.ReservedBytes-e.AllocatedBytes, e.LargestFreeBytes)
}
