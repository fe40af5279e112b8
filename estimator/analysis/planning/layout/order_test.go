package layout

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestByFalling: as a sort that compares, ties by number, and both zeros are one.
func TestByFalling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1)}))
		values := rapid.SliceOf(value).Draw(t, "values")
		want := make([]int32, len(values))
		for i := range want {
			want[i] = int32(i)
		}
		slices.SortStableFunc(want, func(a, b int32) int { return cmp.Compare(values[b], values[a]) })
		if got := ByFalling(values); !slices.Equal(got, want) {
			t.Fatalf("%v of %v, want %v", got, values, want)
		}
	})
}

// TestOrder: events come by time, ends first, and moments count the times.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := drawBlocks(t)
		o := newOrder(blocks)
		times := []int64{}
		for _, b := range blocks {
			times = append(times, b.Start, b.End)
		}
		slices.Sort(times)
		times = slices.Compact(times)
		for i, b := range blocks {
			if l := o.lives[i]; times[l.from] != b.Start || times[l.to] != b.End {
				t.Fatalf("block %d lives from moment %d to %d of %v: %+v", i, l.from, l.to, times, b)
			}
		}
		pairs := 0
		for i, a := range blocks {
			for _, b := range blocks[:i] {
				if a.Start < b.End && b.Start < a.End {
					pairs++
				}
			}
		}
		if o.moments != len(times) || o.overlappingPairs() != pairs {
			t.Fatalf("%d moments, want %d; %d pairs, want %d", o.moments, len(times), o.overlappingPairs(), pairs)
		}
	})
}

// TestTakenAsByLookingAtAll: the tree gives the block first in order among those that live within a stretch, each once.
func TestTakenAsByLookingAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := newOrder(drawBlocks(t))
		rank := make([]int32, len(o.lives))
		for i := range rank {
			rank[i] = int32(i)
			k := rapid.IntRange(0, i).Draw(t, "with")
			rank[i], rank[k] = rank[k], rank[i]
		}
		tree := newPointTree(o.lives, rank)
		taken := make([]bool, len(rank))
		for range 2 * len(rank) {
			from := rapid.Int32Range(0, int32(o.moments)-1).Draw(t, "from")
			to := rapid.Int32Range(from, int32(o.moments)-1).Draw(t, "to")
			want := int32(-1)
			for i, l := range o.lives {
				if !taken[i] && l.from >= from && l.to <= to && (want < 0 || rank[i] < rank[want]) {
					want = int32(i)
				}
			}
			if got := tree.take(from, to); got != want {
				t.Fatalf("block %d within %d to %d, want %d", got, from, to, want)
			}
			if want >= 0 {
				taken[want] = true
			}
		}
	})
}

// TestAddressOrder: as a sort that compares, with and without room for a place beside an address.
func TestAddressOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := drawBlocks(t)
		if rapid.Bool().Draw(t, "no room") {
			blocks = append(blocks, Block{0, 1, 1 << 60}, Block{0, 1, 1<<60 + 1}, Block{0, 1, 1 << 62})
		}
		a := newAddressOrder(blocks)
		at, spans := uint64(0), []span{}
		for _, b := range blocks {
			spans = append(spans, span{at, at + b.SizeBytes})
			at += b.SizeBytes
		}
		spans = rapid.Permutation(spans).Draw(t, "spans")
		want := slices.Clone(spans)
		slices.SortStableFunc(want, func(x, y span) int { return cmp.Compare(x.from, y.from) })
		for i, s := range a.sort(slices.Clone(spans)) {
			if s.from != want[i].from {
				t.Fatalf("%v, want %v, from %v", s, want, spans)
			}
		}
	})
}
