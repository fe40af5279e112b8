package layout

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// TestPublishedInstances holds the six that take milliseconds to their optimum, the live bound; with GRESIZE_NIGHTLY all are searched at full length,
// and must fit the published capacity or say that it was not found.
func TestPublishedInstances(t *testing.T) {
	all := instances(t)
	nightly := os.Getenv("GRESIZE_NIGHTLY") != ""
	for _, name := range strings.Split("ABCDEFGHIJK", "") {
		blocks, quick := all[name], strings.Contains("BCFGHK", name)
		if blocks == nil || !quick && !nightly {
			continue
		}
		begin := time.Now()
		r, err := Plan(blocks, Options{GoalBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Verify(blocks); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if quick && !r.Optimal() {
			t.Errorf("%s: height %d, bound %d", name, r.HeightBytes, r.BoundBytes)
		}
		t.Logf("%s: %d blocks, height %d, bound %d, live bound %d, optimal %v, SmartPool %d, %d nodes, %v", name, len(blocks), r.HeightBytes, r.BoundBytes,
			r.LiveBoundBytes, r.Optimal(), r.SmartPoolBytes, r.Nodes, time.Since(begin))
	}
}
