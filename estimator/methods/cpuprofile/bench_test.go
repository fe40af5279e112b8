package cpuprofile

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gresize/gresize/estimator/methods/cpuprofile/profiletest"
)

// BenchmarkReadTrace reads a trace of 500 MB from a file: at least 100 MB/s, in less than a gigabyte of memory.
func BenchmarkReadTrace(b *testing.B) {
	const size = 500_000_000
	path := filepath.Join(b.TempDir(), "trace.json")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	if err := profiletest.Large(f, size); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	b.ReportAllocs()
	b.ResetTimer()
	var highest uint64
	for b.Loop() {
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		t, err := ReadTrace(f)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := t.Blocks(); err != nil {
			b.Fatal(err)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		highest = max(highest, m.Sys)
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(highest)/(1<<20), "MiB-held")
}

func TestLargeTraceIsSound(t *testing.T) {
	var out bytes.Buffer
	if err := profiletest.Large(&out, 3<<20); err != nil {
		t.Fatal(err)
	}
	// A reader that gives little at a time moves the window in the middle of everything.
	read, err := ReadTrace(&slow{data: out.Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	blocks, before, err := read.Blocks()
	if err != nil || before != 0 || len(blocks) != (len(read.Memory)+1)/2 || len(read.Ops) != len(read.Memory) || read.Events != 7*len(read.Ops) {
		t.Errorf("%d blocks, %d freed before, of %d memory events, %d operators, %d events: %v", len(blocks), before, len(read.Memory), len(read.Ops), read.Events, err)
	}
}

// slow gives 4,099 bytes at a time.
type slow struct{ data []byte }

func (s *slow) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 4099)], s.data)
	s.data = s.data[n:]
	return n, nil
}
