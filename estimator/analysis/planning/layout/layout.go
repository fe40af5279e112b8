// Package layout gives blocks with known lifetimes addresses in one pool, and says how far the pool is from the least that could hold them.
package layout

import (
	"errors"
	"fmt"
)

// Block is a piece of memory that is needed from Start until before End.
type Block struct {
	Start, End int64
	SizeBytes  uint64
}

// Limits on what is planned. The sum of all sizes fits an int64, so no height can overflow.
const (
	MaxBlocks     = 1 << 26
	MaxTotalBytes = 1 << 60
)

// ErrInvalid is returned for blocks that no layout can be made of.
var ErrInvalid = errors.New("invalid block")

// Check refuses blocks with a lifetime that ends before it begins, and sizes that are beyond any address space.
func Check(blocks []Block) error {
	if len(blocks) > MaxBlocks {
		return fmt.Errorf("%w: %d blocks, at most %d can be planned", ErrInvalid, len(blocks), MaxBlocks)
	}
	var sum uint64
	for i, b := range blocks {
		if b.Start >= b.End {
			return fmt.Errorf("%w: block %d lives from %d to %d", ErrInvalid, i, b.Start, b.End)
		}
		if b.SizeBytes > MaxTotalBytes || sum > MaxTotalBytes-b.SizeBytes {
			return fmt.Errorf("%w: block %d: the sizes add up to more than %d bytes", ErrInvalid, i, uint64(MaxTotalBytes))
		}
		sum += b.SizeBytes
	}
	return nil
}

// LiveBound is the largest sum of blocks that live at one time: no layout is lower.
func LiveBound(blocks []Block) uint64 { return liveBound(blocks, inTime(blocks)) }

func liveBound(blocks []Block, order []int32) uint64 {
	var live, peak uint64
	for _, e := range order {
		if e < 0 {
			live -= blocks[^e].SizeBytes
			continue
		}
		live += blocks[e].SizeBytes
		peak = max(peak, live)
	}
	return peak
}

// inTime are the beginnings and the ends of blocks in their order, ends first: i is the beginning of block i, ^i its end.
func inTime(blocks []Block) []int32 {
	events := make([]keyed, 0, 2*len(blocks))
	for i := len(blocks) - 1; i >= 0; i-- {
		events = append(events, keyed{ascending(blocks[i].End), ^int32(i)})
	}
	for i := range blocks {
		events = append(events, keyed{ascending(blocks[i].Start), int32(i)})
	}
	order := make([]int32, len(events))
	for at, e := range sorted(events) {
		order[at] = e.item
	}
	return order
}

// Layout is an address for each block.
type Layout struct {
	Offsets []uint64
	// HeightBytes is the size of the pool.
	HeightBytes uint64
	// Method names what found it.
	Method string
}

func height(blocks []Block, offsets []uint64) (h uint64) {
	for i, b := range blocks {
		h = max(h, offsets[i]+b.SizeBytes)
	}
	return h
}

// Verify checks that no two blocks that live at one time overlap, and that none passes the height. It sweeps over time with an ordered set of the live
// address ranges, so that it shares nothing with the methods it checks but the order of events.
func (l *Layout) Verify(blocks []Block) error {
	if len(l.Offsets) != len(blocks) {
		return fmt.Errorf("%d blocks have %d addresses", len(blocks), len(l.Offsets))
	}
	for i, b := range blocks {
		if b.SizeBytes > l.HeightBytes || l.Offsets[i] > l.HeightBytes-b.SizeBytes {
			return fmt.Errorf("block %d at %d, %d bytes, passes the height %d", i, l.Offsets[i], b.SizeBytes, l.HeightBytes)
		}
	}
	var live rangeSet
	for _, e := range inTime(blocks) {
		if e < 0 && blocks[^e].SizeBytes > 0 {
			live.remove(l.Offsets[^e])
		}
		if e < 0 || blocks[e].SizeBytes == 0 {
			continue
		}
		if other, ok := live.insert(l.Offsets[e], l.Offsets[e]+blocks[e].SizeBytes, e); !ok {
			return fmt.Errorf("blocks %d and %d live at one time and overlap", other, e)
		}
	}
	return nil
}
