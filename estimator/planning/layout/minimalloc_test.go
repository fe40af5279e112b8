package layout

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// instances are the eleven published packing problems, by letter; nil without the recorded data outside the repository.
func instances(tb testing.TB) map[string][]Block {
	dir := os.Getenv("GRESIZE_SHARED")
	if dir == "" {
		dir = "../../../../shared"
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

func readCSV(tb testing.TB, file string) (blocks []Block) {
	f, err := os.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		tb.Fatal(err)
	}
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		return n
	}
	for _, row := range rows[1:] {
		blocks = append(blocks, Block{number(row[1]), number(row[2]), uint64(number(row[3]))})
	}
	return blocks
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
