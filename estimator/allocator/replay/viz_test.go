package replay

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/snapshot"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

func readOracle(t testing.TB, path string) *Program {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := ReadOracle(f, filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestExportIsReadByMemoryViz runs PyTorch's own reader on exports, once per PyTorch that `make test` prepared.
func TestExportIsReadByMemoryViz(t *testing.T) {
	readers, err := filepath.Glob(filepath.Join(torchtest.Cache(), "venv-torch-*/lib/python3*/site-packages/torch/cuda/_memory_viz.py"))
	if err != nil {
		t.Fatal(err)
	}
	if len(readers) == 0 {
		t.Logf("no PyTorch in %s: the export is only read back by ourselves", torchtest.Cache())
	}
	for _, name := range []string{"default_02", "expandable_3streams_00", "recordstream_01"} {
		s, _, err := readOracle(t, "testdata/"+name+".txt.gz").Snapshot(RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := snapshot.Write(&out, s); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), name+".pickle")
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, reader := range readers {
			venv, _, _ := strings.Cut(reader, "/lib/python3")
			t.Run(name+"/"+filepath.Base(venv), func(t *testing.T) {
				cmd := exec.Command(filepath.Join(venv, "bin/python"), "testdata/read_with_memory_viz.py", reader, file)
				if text, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, text)
				}
			})
		}
	}
}

// An export read again and replayed must be equal to what it was made of: this closes the circle without PyTorch.
func TestExportReplaysWithoutDifference(t *testing.T) {
	for _, file := range oracleFiles(t) {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			p := readOracle(t, file)
			for _, op := range p.Ops { // a snapshot does not say when a fraction was set
				if op.Kind == OpFraction {
					return
				}
			}
			s, _, err := p.Snapshot(RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := snapshot.Write(&out, s); err != nil {
				t.Fatal(err)
			}
			again, err := snapshot.Read(&out, name, snapshot.DefaultLimits)
			if err != nil {
				t.Fatal(err)
			}
			replayed, err := FromSnapshot(again, 0, allocator.Version{Major: 2, Minor: 6}, name)
			if err != nil {
				t.Fatal(err)
			}
			res, err := replayed.Check()
			if err != nil {
				t.Fatal(err)
			}
			if res.Differences != 0 {
				t.Errorf("%d differences; the first at %v", res.Differences, res.First)
			}
		})
	}
}
