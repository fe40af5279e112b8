package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/snapshot"
)

// TestPlotAndSimulateTakeSnapshots: a memory snapshot of a real GPU is replayed and drawn as a bundle is, as JSON and as PyTorch's own pickle; a pickle that runs something is refused, and runs nothing.
func TestPlotAndSimulateTakeSnapshots(t *testing.T) {
	const reduced = "../../estimator/allocator/replay/testdata/resnet50_2.6.json.gz"
	dir := t.TempDir()
	f, err := os.Open(reduced)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := snapshot.Read(f, reduced, snapshot.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	var pickle bytes.Buffer
	if err := snapshot.Write(&pickle, s); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "snapshot.pickle")
	if err := os.WriteFile(own, pickle.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{reduced, own} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{"plot", path}, &stdout, &stderr); code != exitOK || !strings.Contains(stdout.String(), "of a memory snapshot") || !strings.Contains(stdout.String(), "reserved at most") {
			t.Errorf("plot %s: %d\n%s%s", path, code, stdout.String(), stderr.String())
		}
		picture := filepath.Join(dir, "memory.svg")
		if code := run(t.Context(), []string{"plot", path, "-o", picture}, &stdout, &stderr); code != exitOK {
			t.Errorf("plot %s -o: %d %s", path, code, stderr.String())
		}
		if data, err := os.ReadFile(picture); err != nil || !bytes.Contains(data, []byte("<svg")) {
			t.Errorf("%v %.80s", err, data)
		}
		if code := run(t.Context(), []string{"simulate", path, "--no-minimum"}, &stdout, &stderr); code != exitOK {
			t.Errorf("simulate %s: %d %s", path, code, stderr.String())
		}
		if code := run(t.Context(), []string{"plot", path, "--rank", "7"}, &stdout, &stderr); code != exitError || !strings.Contains(stderr.String(), "device 7 was asked for") {
			t.Errorf("plot %s --rank 7: %d %s", path, code, stderr.String())
		}
	}
	mark := filepath.Join(dir, "ran")
	hostile := filepath.Join(dir, "hostile.pickle")
	if err := os.WriteFile(hostile, fmt.Appendf(nil, "\x80\x02cos\nsystem\nX%c\x00\x00\x00%s\x85R.", len("touch "+mark), "touch "+mark), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"plot", "simulate"} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{verb, hostile}, &stdout, &stderr); code != exitError {
			t.Errorf("%s of a pickle that runs something: %d %s", verb, code, stderr.String())
		}
		if _, err := os.Stat(mark); err == nil {
			t.Error("it was run")
		}
	}
}
