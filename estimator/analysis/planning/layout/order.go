package layout

import "math"

// keyed is an item with what it is sorted by.
type keyed struct {
	key  uint64
	item int32
}

// sorted puts items in the order of their keys, byte by byte from the last; equal ones keep theirs. A byte that all keys share costs nothing.
func sorted(items []keyed) []keyed {
	var counts [8][256]int32
	for _, e := range items {
		for b := range counts {
			counts[b][byte(e.key>>(8*b))]++
		}
	}
	other := make([]keyed, len(items))
	for b := range counts {
		count := &counts[b]
		if len(items) == 0 || int(count[byte(items[0].key>>(8*b))]) == len(items) {
			continue
		}
		at := int32(0)
		for d, n := range count {
			count[d] = at
			at += n
		}
		for _, e := range items {
			d := byte(e.key >> (8 * b))
			other[count[d]] = e
			count[d]++
		}
		items, other = other, items
	}
	return items
}

// ascending is a key that sorts as the number does.
func ascending(n int64) uint64 { return uint64(n) ^ 1<<63 }

// ByFalling are the numbers of values, the largest value first, and the lower number of two that are equal.
func ByFalling(values []float64) []int32 {
	items := make([]keyed, len(values))
	for i, v := range values {
		items[i] = keyed{falling(v), int32(i)}
	}
	order := make([]int32, len(values))
	for at, e := range sorted(items) {
		order[at] = e.item
	}
	return order
}

// falling is a key that sorts the largest first. Zero has one key, whatever its sign.
func falling(v float64) uint64 {
	if v == 0 {
		return 1<<63 - 1
	}
	bits := math.Float64bits(v)
	if bits>>63 == 1 {
		return bits
	}
	return ^bits &^ (1 << 63)
}

// order is when blocks live, in moments: the times at which something begins or ends, counted from 0.
type order struct {
	// events are the beginnings and the ends in their order, ends first: i is the beginning of block i, ^i its end.
	events  []int32
	lives   []life // by block
	moments int
}

// life is from one moment until before another.
type life struct{ from, to int32 }

func newOrder(blocks []Block) *order {
	o := &order{events: inTime(blocks), lives: make([]life, len(blocks))}
	before := int64(0)
	for _, e := range o.events {
		b := max(e, ^e)
		at := blocks[b].Start
		if e < 0 {
			at = blocks[b].End
		}
		if o.moments == 0 || at != before {
			o.moments++
			before = at
		}
		if m := int32(o.moments - 1); e < 0 {
			o.lives[b].to = m
		} else {
			o.lives[b].from = m
		}
	}
	return o
}

// overlappingPairs counts the pairs of blocks that live at one time: for each start, the blocks that are live then.
func (o *order) overlappingPairs() (pairs int) {
	live := 0
	for _, e := range o.events {
		if e < 0 {
			live--
			continue
		}
		pairs += live
		live++
	}
	return pairs
}
