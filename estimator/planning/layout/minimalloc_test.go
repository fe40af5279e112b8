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

// TestPublishedInstances solves them. An instance whose height is the live bound is proven optimal by it.
func TestPublishedInstances(t *testing.T) {
	all := instances(t)
	for _, name := range strings.Split("ABCDEFGHIJK", "") {
		blocks := all[name]
		if blocks == nil {
			continue
		}
		begin := time.Now()
		r, err := Plan(blocks, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Verify(blocks); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %d blocks, height %d, bound %d, live bound %d, optimal %v, SmartPool %d, %d nodes, %v", name, len(blocks), r.HeightBytes, r.BoundBytes,
			r.LiveBoundBytes, r.Optimal(), r.SmartPoolBytes, r.Nodes, time.Since(begin))
	}
}
