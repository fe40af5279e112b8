package replay

import (
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/snapshot"
)

func readSnapshot(t testing.TB, path string) *snapshot.Snapshot {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := snapshot.Read(f, filepath.Base(path), snapshot.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRealTracesHaveNoDifference(t *testing.T) {
	files := []string{"testdata/resnet50_2.6.json.gz"}
	if dir := sharedData(t); dir != "" {
		more, err := filepath.Glob(filepath.Join(dir, "data/real_traces/*.json.gz"))
		if err != nil || len(more) == 0 {
			t.Fatalf("no real traces in %s: %v", dir, err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p, err := FromSnapshot(readSnapshot(t, file), 0, allocator.Version{Major: 2, Minor: 6}, filepath.Base(file))
			if err != nil {
				t.Fatal(err)
			}
			res, err := p.Check()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d events, %d answers, %d differences", res.Events, res.Answers, res.Differences)
			if res.Differences != 0 {
				t.Errorf("%d differences; the first at %v", res.Differences, res.First)
			}
			if res.Events < 90 {
				t.Errorf("only %d events compared", res.Events)
			}
		})
	}
}

// TestFullCardIsReadBack writes down what the simulator did on a card that is full most of the time and reads it back. It holds two things that a history does not
// say: a range that was reserved for a request that then failed, and why memory was given back.
func TestFullCardIsReadBack(t *testing.T) {
	ooms := 0
	for seed := range int64(40) {
		rng := rand.New(rand.NewSource(seed))
		p := &Program{Name: "full", Version: allocator.Version{Major: 2, Minor: 11}, ConfText: "expandable_segments:True", TotalBytes: 1 << 30, TotalKnown: true}
		var err error
		if p.Config, _, err = allocator.ParseConfig(p.ConfText, p.Version); err != nil {
			t.Fatal(err)
		}
		var live []int32
		for range 4000 {
			if n := len(live); n > 0 && rng.Intn(100) < 46 {
				i := rng.Intn(n)
				p.Ops = append(p.Ops, Op{Kind: OpFree, Block: live[i]})
				live[i] = live[n-1]
				live = live[:n-1]
				continue
			}
			bytes := uint64(math.Exp2(10 + 18.3*rng.Float64()))
			p.Ops = append(p.Ops, Op{Kind: OpAlloc, Block: int32(p.Blocks), Bytes: bytes})
			live = append(live, int32(p.Blocks))
			p.Blocks++
		}
		s, run, err := p.Snapshot(RunOptions{Policy: allocator.Chunked})
		if err != nil {
			t.Fatal(err)
		}
		ooms += int(run.Allocator.Stats().OOMs)
		again, err := FromSnapshot(s, 0, p.Version, p.Name)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		res, err := again.Check()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if res.Differences != 0 {
			t.Errorf("seed %d: %d differences in %d events; the first at %v", seed, res.Differences, res.Events, res.First)
		}
	}
	if ooms < 1000 {
		t.Errorf("only %d requests failed", ooms)
	}
}
