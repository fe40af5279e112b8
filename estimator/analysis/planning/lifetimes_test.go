package planning

import (
	"errors"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/analysis/planning/layout"
	"pgregory.net/rapid"
)

// loop is a program: persistent blocks, and the same iteration again and again, with the blocks of one freed in a fixed order.
func loop(before, inIteration, times int) *replay.Program {
	p := &replay.Program{Name: "loop", Version: allocator.Newest}
	alloc := func(bytes int) int32 {
		p.Ops = append(p.Ops, replay.Op{Kind: replay.OpAlloc, Block: int32(p.Blocks), Bytes: uint64(bytes)})
		p.Blocks++
		return int32(p.Blocks - 1)
	}
	for i := range before {
		alloc(1000 + 512*i)
	}
	for range times {
		var live []int32
		for i := range inIteration {
			live = append(live, alloc(512*(1+i*i%37)))
		}
		for i := len(live) - 1; i >= 0; i-- {
			p.Ops = append(p.Ops, replay.Op{Kind: replay.OpFree, Block: live[i]})
		}
	}
	return p
}

func TestIterationIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, length, times := rapid.IntRange(0, 50).Draw(t, "before"), rapid.IntRange(20, 90).Draw(t, "length"), rapid.IntRange(3, 9).Draw(t, "times")
		l, err := OfProgram(loop(before, length, times))
		if err != nil {
			t.Fatal(err)
		}
		it := l.FindIteration()
		if it == nil || it.Requests != 2*length || it.First > before+2*length || it.Times < float64(times)-1 || it.Times > float64(times)+1 {
			t.Fatalf("%d requests before, then %d times %d: %+v", before, times, 2*length, it)
		}
	})
}

func TestNoIterationInNoise(t *testing.T) {
	p := &replay.Program{Version: allocator.Newest}
	for i := range 500 {
		p.Ops = append(p.Ops, replay.Op{Kind: replay.OpAlloc, Block: int32(i), Bytes: uint64(i*i + 1)})
		p.Blocks++
	}
	l, err := OfProgram(p)
	if err != nil {
		t.Fatal(err)
	}
	if it := l.FindIteration(); it != nil {
		t.Errorf("found %+v", it)
	}
}

// TestAStepThatWasLookedAt: one step of four asks for more blocks, so that no two that are alike follow each other; the steps that the record names tell.
func TestAStepThatWasLookedAt(t *testing.T) {
	p := &replay.Program{Version: allocator.Newest}
	var kept []int32
	step := func(first, looked bool) {
		old := kept
		kept = nil
		make := func(bytes uint64) int32 {
			p.Ops = append(p.Ops, replay.Op{Kind: replay.OpAlloc, Block: int32(p.Blocks), Bytes: bytes})
			p.Blocks++
			return int32(p.Blocks - 1)
		}
		free := func(block int32) { p.Ops = append(p.Ops, replay.Op{Kind: replay.OpFree, Block: block}) }
		for i := range 40 {
			block := make(uint64(1000 * (i + 1)))
			if looked && i%2 == 0 {
				free(make(512))
			}
			if first {
				make(4096) // the optimizer's state
			}
			if i < 3 { // gradients: freed in the next step
				kept = append(kept, block)
				if i < len(old) {
					free(old[i])
				}
				continue
			}
			free(block)
		}
		p.Steps = append(p.Steps, len(p.Ops))
	}
	step(true, false)
	for _, looked := range []bool{false, true, false} {
		step(false, looked)
	}
	l, err := OfProgram(p)
	if err != nil {
		t.Fatal(err)
	}
	it := l.FindIteration()
	if it == nil || it.First != p.Steps[2] || it.Requests != p.Steps[3]-p.Steps[2] || it.Times != 2 {
		t.Errorf("%+v, steps end at %v", it, p.Steps)
	}
	p.Steps = nil
	if l, err = OfProgram(p); err != nil || l.FindIteration() != nil {
		t.Errorf("without the steps: %+v, %v", l.FindIteration(), err)
	}
}

func TestImpossibleRequestsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		ops  []replay.Op
		want string
	}{
		"made twice":      {[]replay.Op{{Kind: replay.OpAlloc, Bytes: 1}, {Kind: replay.OpAlloc, Bytes: 1}}, "request 1"},
		"negative block":  {[]replay.Op{{Kind: replay.OpAlloc, Bytes: 1, Block: -1}}, "request 0"},
		"block too large": {[]replay.Op{{Kind: replay.OpAlloc, Bytes: 1}, {Kind: replay.OpFree, Block: 9}}, "request 1"},
		"enormous":        {[]replay.Op{{Kind: replay.OpAlloc, Bytes: 1 << 60}}, "request 0"},
	} {
		_, err := OfProgram(&replay.Program{Name: "x", Version: allocator.Newest, Blocks: 1, Ops: c.ops})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzOfProgram holds that no sequence of requests makes it panic, and that what it accepts can be planned.
func FuzzOfProgram(f *testing.F) {
	f.Add([]byte{0, 0, 9, 1, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &replay.Program{Version: allocator.Newest, Blocks: 8}
		for len(data) >= 3 {
			p.Ops = append(p.Ops, replay.Op{Kind: replay.OpKind(data[0] % 4), Block: int32(int8(data[1])), Bytes: uint64(1) << (data[2] % 64)})
			data = data[3:]
		}
		l, err := OfProgram(p)
		if err != nil {
			return
		}
		l.FindIteration()
		r, err := layout.Plan(t.Context(), l.Blocks, layout.Options{MaxNodes: 100})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Verify(l.Blocks); err != nil {
			t.Fatal(err)
		}
	})
}
