package layout

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// instances are the eleven published packing problems, by letter; nil without the recorded data outside the repository.
func instances(tb testing.TB) map[string][]Block {
	dir := os.Getenv("GRESIZE_SHARED")
	if dir == "" {
		dir = "../../../../../shared"
	}
	files, _ := filepath.Glob(filepath.Join(dir, "data/minimalloc/?.1048576.csv"))
	found := map[string][]Block{}
	for _, file := range files {
		found[filepath.Base(file)[:1]] = readCSV(tb, file)
	}
	if len(found) == 0 {
		tb.Logf("no instances below %s: only the problem in the tree is solved", dir)
	}
	return found
}

func readCSV(tb testing.TB, file string) []Block {
	f, err := os.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	blocks, err := ReadCSV(f)
	if err != nil {
		tb.Fatalf("%s: %v", file, err)
	}
	return blocks
}

// TestReadCSV: columns may stand in any order; what is wrong is named.
func TestReadCSV(t *testing.T) {
	blocks, err := ReadCSV(strings.NewReader("size,id,lower,upper\n512,a,0,3\n1024,b,-2,9\n"))
	if want := []Block{{0, 3, 512}, {-2, 9, 1024}}; err != nil || !slices.Equal(blocks, want) {
		t.Errorf("%v, %v", blocks, err)
	}
	for text, says := range map[string]string{
		"":                                                 "line 1",
		"id,lower,upper\n":                                 "line 1: columns",
		"id,lower,upper,size,alignment\n":                  "line 1: columns",
		"id,lower,upper,bytes\n":                           "line 1: columns",
		"id,lower,upper,size\n1,2,3\n":                     "line 2",
		"id,lower,upper,size\n1,2,3,x\n":                   "line 2: size",
		"id,lower,upper,size\n1,2.5,3,1\n":                 "line 2: lower",
		"id,lower,upper,size\n1,2,2,1\n":                   "line 2: a block",
		"id,lower,upper,size\n1,2,3,-1\n":                  "line 2: a block",
		"id,lower,upper,size\n0,0,1,1\n1,2,\"\n":           "line 3",
		"id,lower,upper,size\n1,2,3,9000000000000000000\n": "add up",
	} {
		if _, err := ReadCSV(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

func FuzzReadCSV(f *testing.F) {
	f.Add([]byte("id,lower,upper,size\n0,0,3,512\n"))
	f.Add([]byte("id,lower,upper,size\n\"0,0,3,512"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if blocks, err := ReadCSV(bytes.NewReader(data)); err == nil && Check(blocks) != nil {
			t.Error("blocks that make no sense")
		}
	})
}

// TestPublishedInstances holds those that take less than a second to their optimum, the live bound; with GRESIZE_NIGHTLY the others too:
// I to its optimum, D and J to the published capacity.
func TestPublishedInstances(t *testing.T) {
	all := instances(t)
	nightly := os.Getenv("GRESIZE_NIGHTLY") != ""
	const capacity = 1 << 20
	for _, want := range []struct {
		name    string
		height  uint64
		optimal bool
		long    bool
		effort  int64
	}{
		{name: "A", height: capacity, optimal: true},
		{name: "B", height: capacity, optimal: true},
		{name: "C", height: 1_039_360, optimal: true},
		{name: "D", height: capacity, long: true, effort: 400_000},
		{name: "E", height: capacity, optimal: true},
		{name: "F", height: capacity, optimal: true},
		{name: "G", height: capacity, optimal: true},
		{name: "H", height: capacity, optimal: true},
		{name: "I", height: capacity, optimal: true, long: true},
		{name: "J", height: capacity, long: true, effort: 400_000},
		{name: "K", height: capacity, optimal: true},
	} {
		blocks := all[want.name]
		if blocks == nil || want.long && !nightly {
			continue
		}
		begin := time.Now()
		r, err := Plan(t.Context(), blocks, Options{GoalBytes: capacity, MaxNodes: want.effort})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Verify(blocks); err != nil {
			t.Errorf("%s: %v", want.name, err)
		}
		if r.HeightBytes > want.height || want.optimal && !r.Optimal() || r.BoundBytes < r.LiveBoundBytes || r.HeightBytes < r.BoundBytes {
			t.Errorf("%s: height %d, bound %d, live bound %d; it was %d, optimal %v", want.name, r.HeightBytes, r.BoundBytes, r.LiveBoundBytes, want.height, want.optimal)
		}
		t.Logf("%s: %d blocks, height %d, bound %d, live bound %d, optimal %v, SmartPool %d, %d nodes, %v", want.name, len(blocks), r.HeightBytes, r.BoundBytes,
			r.LiveBoundBytes, r.Optimal(), r.SmartPoolBytes, r.Nodes, time.Since(begin))
	}
}
