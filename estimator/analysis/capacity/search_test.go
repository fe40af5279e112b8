package capacity

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"pgregory.net/rapid"
)

const mib = 1 << 20

// trace builds a program: positive numbers allocate so many MiB, negative ones free the block allocated by that step, counted from 1.
func recorded(steps ...int) *replay.Program {
	p := &replay.Program{Name: "test", Version: allocator.Version{Major: 2, Minor: 6}}
	block := map[int]int32{}
	for i, s := range steps {
		if s > 0 {
			block[i+1] = int32(p.Blocks)
			p.Ops = append(p.Ops, replay.Op{Kind: replay.OpAlloc, Block: int32(p.Blocks), Bytes: uint64(s) * mib})
			p.Blocks++
		} else {
			p.Ops = append(p.Ops, replay.Op{Kind: replay.OpFree, Block: block[-s]})
		}
	}
	return p
}

func TestKnownAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		program              *replay.Program
		comfortable, minimum uint64
		retries              int64
	}{
		"one block":                              {recorded(100), 100, 100, 0},
		"20 MiB segment for a small large block": {recorded(5), 20, 20, 0},
		"the cache can go":                       {recorded(100, -1, 150), 250, 150, 1},
		"a live part pins a segment":             {recorded(100, -1, 30, 120), 220, 220, 0},
		"nothing":                                {recorded(), 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Search(c.program, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r.ComfortableBytes != c.comfortable*mib || r.MinimumBytes != c.minimum*mib || r.Retries != c.retries {
				t.Errorf("comfortable %d MiB, minimum %d MiB, %d retries; want %d, %d, %d", r.ComfortableBytes/mib, r.MinimumBytes/mib, r.Retries, c.comfortable, c.minimum, c.retries)
			}
			if !r.ProvenAbove || !r.ProvenBelow || r.LowestBytes != r.MinimumBytes {
				t.Errorf("not proven: %+v", r)
			}
			if c.minimum > 0 && r.Limit == nil {
				t.Error("no reason for the limit")
			}
		})
	}
}

func TestReasonNamesWhatIsInTheWay(t *testing.T) {
	r, err := Search(recorded(100, -1, 30, 120), Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := r.Limit
	if f.Op != 3 || f.OOM.RequestedBytes != 120*mib || f.LiveBytes != 30*mib || f.FragmentedBytes != 70*mib || f.CachedBytes != 0 {
		t.Errorf("%+v, %+v", f, f.OOM)
	}
	if len(f.Largest) != 1 || f.Largest[0].Op != 2 {
		t.Errorf("largest: %+v", f.Largest)
	}
}

// On small programs every capacity can be tried: the search must agree with that.
func TestSearchAgreesWithTryingEveryCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := randomProgram(t)
		r, err := Search(p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		lowest, minimum := uint64(0), uint64(0)
		for c := roundUp(r.ComfortableBytes); c > 0; c -= page {
			res, err := p.Run(replay.RunOptions{CapacityBytes: c, StopAtOOM: true})
			if err != nil {
				t.Fatal(err)
			}
			if res.FirstOOM == nil {
				lowest = c
			} else if minimum == 0 {
				minimum = c + page
			}
		}
		if minimum == 0 {
			minimum = lowest
		}
		if !r.ProvenAbove || !r.ProvenBelow {
			t.Fatalf("not proven: %+v", r)
		}
		if r.MinimumBytes != minimum || r.LowestBytes != lowest {
			t.Fatalf("search: minimum %d, lowest %d; trying all: %d, %d (MiB)", r.MinimumBytes/mib, r.LowestBytes/mib, minimum/mib, lowest/mib)
		}
		if r.BoundBytes > lowest {
			t.Fatalf("the bound %d is above a success at %d", r.BoundBytes, lowest)
		}
	})
}

func randomProgram(t *rapid.T) *replay.Program {
	p := &replay.Program{Name: "random", Version: allocator.Version{Major: 2, Minor: 6}}
	p.Config.ExpandableSegments = rapid.Bool().Draw(t, "expandable")
	if rapid.Bool().Draw(t, "max split") {
		p.Config.MaxSplitBytes = 32 * mib
	}
	var live []int32
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		if len(live) > 0 && rapid.IntRange(0, 99).Draw(t, "free") < 45 {
			i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
			p.Ops = append(p.Ops, replay.Op{Kind: replay.OpFree, Block: live[i]})
			live = append(live[:i], live[i+1:]...)
			continue
		}
		bytes := uint64(rapid.SampledFrom([]int{1, 4000, mib, mib + 1, 3 * mib, 9 * mib, 10 * mib, 17 * mib, 33 * mib, 60 * mib}).Draw(t, "bytes"))
		p.Ops = append(p.Ops, replay.Op{Kind: replay.OpAlloc, Block: int32(p.Blocks), Bytes: bytes, Stream: uint64(rapid.IntRange(0, 1).Draw(t, "stream"))})
		live = append(live, int32(p.Blocks))
		p.Blocks++
	}
	return p
}

// The recorded traces are random and far longer than a program that a person writes: the search must end within its budget and keep its order.
func TestSearchOnRecordedTraces(t *testing.T) {
	files, err := filepath.Glob("../../allocator/replay/testdata/*.txt.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p, err := replay.ReadOracle(f, filepath.Base(file))
		if err != nil {
			t.Fatal(err)
		}
		r, err := Search(p, Options{MaxOps: 200_000})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: comfortable %d, minimum %d, lowest %d, bound %d MiB, proven above %v, below %v, %d runs", p.Name, r.ComfortableBytes/mib, r.MinimumBytes/mib, r.LowestBytes/mib, r.BoundBytes/mib, r.ProvenAbove, r.ProvenBelow, r.Runs)
		if r.BoundBytes > r.LowestBytes || r.LowestBytes > r.MinimumBytes {
			t.Errorf("%s: bound %d, lowest %d, minimum %d", p.Name, r.BoundBytes, r.LowestBytes, r.MinimumBytes)
		}
		if res, err := p.Run(replay.RunOptions{CapacityBytes: r.MinimumBytes, StopAtOOM: true}); err != nil || res.FirstOOM != nil {
			t.Errorf("%s: the minimum does not do: %v, %v", p.Name, err, res.FirstOOM)
		}
	}
}
