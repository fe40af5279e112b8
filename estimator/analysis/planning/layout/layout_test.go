package layout

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestCnMem: the smallest free piece that holds a request is taken, free neighbours are one piece, and what is on top grows.
func TestCnMem(t *testing.T) {
	const k = 512
	blocks := []Block{{0, 2, 4 * k}, {0, 9, k}, {0, 3, 2*k - 1}, {0, 9, k}, {4, 6, 2 * k}, {5, 9, 3 * k}, {6, 9, 2 * k}, {7, 9, 5 * k}}
	l := CnMem(t.Context(), blocks)
	if want := []uint64{0, 4 * k, 5 * k, 7 * k, 5 * k, 0, 5 * k, 8 * k}; !slices.Equal(l.Offsets, want) || l.HeightBytes != 13*k {
		t.Errorf("%v, height %d", l.Offsets, l.HeightBytes)
	}
}

func drawBlocks(t *rapid.T) []Block {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Block {
		start := rapid.Int64Range(-5, 20).Draw(t, "start")
		return Block{start, start + rapid.Int64Range(1, 12).Draw(t, "life"), uint64(rapid.IntRange(0, 9).Draw(t, "size")) * 512}
	}), 0, 40).Draw(t, "blocks")
}

// overlap is the definition, pair by pair.
func overlap(blocks []Block, offsets []uint64) bool {
	for i, a := range blocks {
		for j, b := range blocks[:i] {
			if a.Start < b.End && b.Start < a.End && offsets[i] < offsets[j]+b.SizeBytes && offsets[j] < offsets[i]+a.SizeBytes &&
				a.SizeBytes > 0 && b.SizeBytes > 0 {
				return true
			}
		}
	}
	return false
}

func TestEveryMethodGivesALayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := drawBlocks(t)
		bound := LiveBound(blocks)
		for _, l := range []*Layout{SmartPool(t.Context(), blocks), CnMem(t.Context(), blocks), skyline(t.Context(), blocks, newOrder(blocks), ranks(blocks, nil, "WA", nil)), skyline(t.Context(), blocks, newOrder(blocks), ranks(blocks, nil, "AW", nil))} {
			if err := l.Verify(blocks); err != nil || overlap(blocks, l.Offsets) {
				t.Fatalf("%s: %v", l.Method, err)
			}
			if l.HeightBytes < bound {
				t.Fatalf("%s: height %d below the live bound %d", l.Method, l.HeightBytes, bound)
			}
		}
		r, err := Plan(t.Context(), blocks, Options{MaxNodes: 3000})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Verify(blocks); err != nil || overlap(blocks, r.Offsets) {
			t.Fatalf("plan: %v", err)
		}
		if r.HeightBytes < r.BoundBytes || r.BoundBytes < bound || r.LiveBoundBytes != bound || r.SmartPoolBytes < r.HeightBytes {
			t.Fatalf("%+v, live bound %d", r, bound)
		}
		again, _ := Plan(t.Context(), blocks, Options{MaxNodes: 3000})
		if !slices.Equal(again.Offsets, r.Offsets) || again.BoundBytes != r.BoundBytes {
			t.Fatal("two plans of the same blocks differ")
		}
	})
}

// TestProofsAreTrue compares what the search proves with trying every order of placing, each block as low as it goes.
func TestProofsAreTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Block {
			start := rapid.Int64Range(0, 6).Draw(t, "start")
			return Block{start, start + rapid.Int64Range(1, 4).Draw(t, "life"), rapid.Uint64Range(1, 5).Draw(t, "size")}
		}), 1, 7).Draw(t, "blocks")
		best := lowest(blocks, nil, nil)
		r, err := Plan(t.Context(), blocks, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r.HeightBytes != best || !r.Optimal() {
			t.Fatalf("height %d, bound %d, the lowest is %d", r.HeightBytes, r.BoundBytes, best)
		}
		goal := rapid.Uint64Range(best, best+3).Draw(t, "goal")
		if r, err = Plan(t.Context(), blocks, Options{GoalBytes: goal, OnlyGoal: true}); err != nil || r.HeightBytes > goal || r.Verify(blocks) != nil {
			t.Fatalf("height %d, the lowest is %d and %d would do: %v", r.HeightBytes, best, goal, err)
		}
		if r, err = Plan(t.Context(), blocks, Options{GoalBytes: best - 1, OnlyGoal: true}); err != nil || r.HeightBytes < best || r.Verify(blocks) != nil {
			t.Fatalf("height %d, the lowest is %d: %v", r.HeightBytes, best, err)
		}
	})
}

// TestTheBoundIsAGoal: a goal at the bound is searched for, too.
func TestTheBoundIsAGoal(t *testing.T) {
	blocks := []Block{{1, 4, 3}, {3, 5, 1}, {4, 6, 1}, {5, 7, 3}}
	r, err := Plan(t.Context(), blocks, Options{GoalBytes: 4, OnlyGoal: true})
	if err != nil || r.HeightBytes != 4 || r.Verify(blocks) != nil {
		t.Errorf("height %d, bound %d: %v", r.HeightBytes, r.BoundBytes, err)
	}
}

// lowest tries all orders.
func lowest(blocks []Block, placed []int, at []uint64) uint64 {
	if len(placed) == len(blocks) {
		var h uint64
		for k, i := range placed {
			h = max(h, at[k]+blocks[i].SizeBytes)
		}
		return h
	}
	best := ^uint64(0)
	for i, b := range blocks {
		if slices.Contains(placed, i) {
			continue
		}
		var offset uint64
		for k, j := range placed {
			if o := blocks[j]; o.Start < b.End && b.Start < o.End {
				offset = max(offset, at[k]+o.SizeBytes)
			}
		}
		best = min(best, lowest(blocks, append(slices.Clone(placed), i), append(slices.Clone(at), offset)))
	}
	return best
}

func TestVerifyFindsFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := drawBlocks(t)
		l := Layout{HeightBytes: 20 * 512}
		for range blocks {
			l.Offsets = append(l.Offsets, uint64(rapid.IntRange(0, 11).Draw(t, "offset"))*512)
		}
		if got, want := l.Verify(blocks) != nil, overlap(blocks, l.Offsets); got != want {
			t.Fatalf("verify finds a fault: %v, there is one: %v", got, want)
		}
	})
}

func TestCheckNamesTheBlock(t *testing.T) {
	for name, blocks := range map[string][]Block{
		"no life":       {{0, 1, 1}, {3, 3, 1}},
		"negative life": {{3, 2, 1}},
		"enormous":      {{0, 1, 1 << 62}},
		"enormous sum":  {{0, 1, 1 << 60}, {0, 1, 1}},
	} {
		if _, err := Plan(t.Context(), blocks, Options{}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNothingToPlan(t *testing.T) {
	for _, blocks := range [][]Block{nil, {{0, 1, 0}}, {{-1 << 62, 1 << 62, 7}}} {
		r, err := Plan(t.Context(), blocks, Options{})
		if err != nil || !r.Optimal() || r.Verify(blocks) != nil {
			t.Errorf("%v: %+v, %v", blocks, r, err)
		}
	}
}

// TestTheBestSoFar: a search without end is ended by its context, and what it has found is the answer.
// hardBlocks are blocks whose search ends with its nodes.
func hardBlocks() []Block {
	random := rand.New(rand.NewPCG(7, 7))
	blocks := make([]Block, 600)
	for i := range blocks {
		start := int64(random.IntN(400))
		blocks[i] = Block{start, start + 1 + int64(random.IntN(120)), 1 + uint64(random.IntN(1<<20))}
	}
	return blocks
}

// TestOnlyTheGoal: what is good enough ends the work, whatever effort is left.
func TestOnlyTheGoal(t *testing.T) {
	blocks := hardBlocks()
	quick, err := Plan(t.Context(), blocks, Options{MaxNodes: -1})
	if err != nil || quick.Optimal() {
		t.Fatalf("%+v, %v", quick, err)
	}
	r, err := Plan(t.Context(), blocks, Options{MaxNodes: 1 << 60, GoalBytes: quick.HeightBytes, OnlyGoal: true})
	if err != nil || r.Nodes != 0 || r.Cut || r.HeightBytes > quick.HeightBytes {
		t.Errorf("%d nodes, cut %v, height %d, %v", r.Nodes, r.Cut, r.HeightBytes, err)
	}
}

func TestTheBestSoFar(t *testing.T) {
	blocks := hardBlocks()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	r, err := Plan(ctx, blocks, Options{MaxNodes: 1 << 60})
	if err != nil || !r.Cut || r.Verify(blocks) != nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v, %+v after %v", err, r, time.Since(began))
	}
	<-ctx.Done()
	if r, err := Plan(ctx, blocks, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", r, err)
	}
}
