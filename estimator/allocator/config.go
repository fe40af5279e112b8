package allocator

import (
	"math"
	"math/bits"
)

// Backend is the allocator that PyTorch was told to use.
type Backend uint8

// The backends of PyTorch.
const (
	BackendNative Backend = iota
	BackendAsync
)

const (
	noSplitLimit             = math.MaxUint64
	defaultLargeSegmentBytes = 20 << 20
	roundupSlots             = 16
)

// Config holds the settings that change an answer. The zero value is PyTorch's default.
type Config struct {
	Backend Backend
	// MaxSplitBytes is max_split_size_mb; 0 means unlimited.
	MaxSplitBytes uint64
	// MaxNonSplitBytes is max_non_split_rounding_mb; 0 means as large as a large segment.
	MaxNonSplitBytes uint64
	// LargeSegmentBytes is large_segment_size_mb; 0 means 20 MiB.
	LargeSegmentBytes uint64
	// GCThreshold is garbage_collection_threshold; 0 means off.
	GCThreshold        float64
	ExpandableSegments bool
	// RoundupDivisions is roundup_power2_divisions: slot 0 for everything below 2 MiB, slot 15 for everything from 32 GiB.
	RoundupDivisions [roundupSlots]uint64
	// RoundupBypassBytes is roundup_bypass_threshold_mb of 1.13; 0 means no limit.
	RoundupBypassBytes uint64
	// MemoryFraction is per_process_memory_fraction; 0 means not set.
	MemoryFraction float64
	// ThrowOnMallocOOM is throw_on_cudamalloc_oom.
	ThrowOnMallocOOM bool
	// GraphCaptureRecordStreamReuse is read and kept; a recorded trace already holds its effect.
	GraphCaptureRecordStreamReuse bool
}

func (c Config) withDefaults() Config {
	if c.MaxSplitBytes == 0 {
		c.MaxSplitBytes = noSplitLimit
	}
	if c.LargeSegmentBytes == 0 {
		c.LargeSegmentBytes = defaultLargeSegmentBytes
	}
	if c.MaxNonSplitBytes == 0 {
		c.MaxNonSplitBytes = c.LargeSegmentBytes
	}
	return c
}

// RoundSize is the block size that a request of this many bytes becomes.
func (c *Config) RoundSize(bytes uint64, v Version) uint64 {
	if bytes < minBlockBytes {
		return minBlockBytes
	}
	slot := min(max(bits.Len64(bytes)-21, 0), roundupSlots-1)
	divisions := c.RoundupDivisions[slot]
	if divisions == 1 && !v.AtLeast(2, 4) && bytes > minBlockBytes { // then the request was taken as it is
		return bytes
	}
	if divisions > 1 && (c.RoundupBypassBytes == 0 || bytes <= c.RoundupBypassBytes) && bytes > minBlockBytes*divisions {
		return roundToDivision(bytes, divisions)
	}
	return (bytes + minBlockBytes - 1) &^ (minBlockBytes - 1)
}

// roundToDivision rounds up to the next of the equal steps between two powers of two.
func roundToDivision(bytes, divisions uint64) uint64 {
	if bytes&(bytes-1) == 0 {
		return bytes
	}
	floor := uint64(1) << (bits.Len64(bytes) - 1)
	step := floor >> (bits.Len64(divisions) - 1)
	if step == 0 {
		return floor << 1
	}
	return (bytes + step - 1) &^ (step - 1)
}

// CanBeFree reports whether a gap of this size between live blocks can be a free block of its own; a smaller one is slack of the block before it.
func (v Version) CanBeFree(gapBytes uint64, small, expandable bool) bool {
	if small || expandable {
		return gapBytes >= minBlockBytes
	}
	return !v.IsSmall(gapBytes)
}
