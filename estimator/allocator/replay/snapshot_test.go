package replay

import (
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
