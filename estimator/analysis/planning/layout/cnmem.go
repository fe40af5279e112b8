package layout

import (
	"cmp"
	"context"
	"slices"
)

const (
	// cnmemGrainBytes is to what CnMem rounds sizes up.
	cnmemGrainBytes = 512
	// maxCnMemWork bounds the pieces that CnMem looks through: its list is as long as what is free has pieces.
	maxCnMemWork = 1 << 31
)

// CnMem is NVIDIA's pool, with which SmartPool was compared: requests in the order of time, each in the smallest free piece that holds it, or on top;
// neighbours that are free are one piece. It returns nil where that is too much work, or when ctx ends.
func CnMem(ctx context.Context, blocks []Block) *Layout {
	order := make([]int32, 0, 2*len(blocks)) // ^i is the end of block i
	for i := range blocks {
		order = append(order, int32(i), ^int32(i))
	}
	at := func(e int32) int64 {
		if e < 0 {
			return blocks[^e].End
		}
		return blocks[e].Start
	}
	slices.SortStableFunc(order, func(a, b int32) int { // ends first
		return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(min(max(a, -1), 0), min(max(b, -1), 0)))
	})
	l := &Layout{Offsets: make([]uint64, len(blocks)), Method: "CnMem"}
	size := func(i int32) uint64 {
		return (max(blocks[i].SizeBytes, 1) + cnmemGrainBytes - 1) / cnmemGrainBytes * cnmemGrainBytes
	}
	var free []span // by address
	var top uint64
	work := 0
	for _, e := range order {
		if work += len(free); work > maxCnMemWork || ctx.Err() != nil {
			return nil
		}
		if e >= 0 {
			want, best := size(e), -1
			for i, f := range free {
				if f.to-f.from >= want && (best < 0 || f.to-f.from < free[best].to-free[best].from) {
					best = i
				}
			}
			switch {
			case best < 0: // the last piece grows where it ends on top
				l.Offsets[e] = top
				if n := len(free); n > 0 && free[n-1].to == top {
					l.Offsets[e] = free[n-1].from
					free = free[:n-1]
				}
				top = l.Offsets[e] + want
			default:
				l.Offsets[e] = free[best].from
				if free[best].from += want; free[best].from == free[best].to {
					free = slices.Delete(free, best, best+1)
				}
			}
			continue
		}
		s := span{l.Offsets[^e], l.Offsets[^e] + size(^e)}
		i, _ := slices.BinarySearchFunc(free, s.from, func(f span, from uint64) int { return cmp.Compare(f.from, from) })
		if i < len(free) && free[i].from == s.to {
			s.to = free[i].to
			free = slices.Delete(free, i, i+1)
		}
		if i > 0 && free[i-1].to == s.from {
			free[i-1].to = s.to
			continue
		}
		free = slices.Insert(free, i, s)
	}
	l.HeightBytes = top
	return l
}
