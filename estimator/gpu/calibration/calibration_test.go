package calibration

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/gpu/capture"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

const mibBytes = int64(1) << 20

// TestVirtualAgainstItself records workloads on the virtual GPU and compares the record with the virtual GPU: the error is zero, whatever was set.
func TestVirtualAgainstItself(t *testing.T) {
	lib, err := filepath.Abs("../../../build/lib")
	if err != nil {
		t.Fatal(err)
	}
	p, err := gpu.Load("a100-40")
	if err != nil {
		t.Fatal(err)
	}
	v := Virtual{Python: torchtest.Python(t, "2.6.0"), LibDir: lib, Profile: p, Limit: time.Minute}
	if err := v.Open(); err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	var lines bytes.Buffer
	for _, like := range []Row{{Name: "mlp_adam"}, {Name: "mlp_adam", Env: map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}, {Name: "no_such_workload"}} {
		row, err := v.Run(t.Context(), &like)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(data, '\n'))
	}
	path := filepath.Join(t.TempDir(), ResultsFile)
	if err := os.WriteFile(path, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	rows, err := ReadResults(path)
	if err != nil {
		t.Fatal(err)
	}
	var pairs []Pair
	for i := range rows {
		pair := Pair{Real: rows[i]}
		if rows[i].ok() {
			if pair.Virtual, err = v.Run(t.Context(), &rows[i]); err != nil {
				t.Fatal(err)
			}
		}
		pairs = append(pairs, pair)
	}
	s := Summarize(pairs, p)
	if s.Rows != 3 || s.Compared != 2 || s.Worst != 0 || s.MedianAllocated != 0 || s.Proposal != nil {
		t.Errorf("%+v\n%s", s, lines.String())
	}
	if rows[0].MaxReservedBytes < 100*mibBytes || rows[0].MaxReservedBytes == rows[1].MaxReservedBytes || !strings.Contains(rows[2].Error, "no_such_workload") {
		t.Errorf("%+v", rows)
	}
	if _, err := capture.Check(t.Context(), capture.Options{Python: torchtest.Python(t, "2.6.0")}); err == nil {
		t.Error("a GPU is here: run gresize calibrate")
	}
	var none *capture.NoGPUError
	if err := Measure(t.Context(), torchtest.Python(t, "2.6.0"), t.TempDir(), time.Second, &lines); !errors.As(err, &none) {
		t.Errorf("measured without a GPU: %v", err)
	}
}

func pair(name string, real, virtual, outside int64) Pair {
	return Pair{Real: Row{Name: name, MaxReservedBytes: real * mibBytes, MaxAllocatedBytes: real * mibBytes / 2, OutsideBytes: outside * mibBytes},
		Virtual: Row{Name: name, MaxReservedBytes: virtual * mibBytes, MaxAllocatedBytes: virtual * mibBytes / 2, OutsideBytes: 500 * mibBytes}}
}

func TestSummaryAndProposal(t *testing.T) {
	p, err := gpu.Load("a100-40")
	if err != nil {
		t.Fatal(err)
	}
	pairs := []Pair{pair("a", 1000, 1010, 520), pair("b", 1000, 980, 510), pair("c", 1000, 1000, 530),
		{Real: Row{Name: "d", Error: "OutOfMemoryError: \x1b[2J"}}, {Real: Row{Name: "e", Skipped: "budget"}}, {Real: Row{Name: "f", MaxReservedBytes: 1}, Virtual: Row{Error: "timeout"}}}
	s := Summarize(pairs, p)
	if s.Rows != 6 || s.Compared != 3 || s.MedianReserved != 1 || s.P95Reserved != 2 || s.Worst != 2 || s.OutsideMedianBytes != 20*mibBytes ||
		s.Proposal == nil || s.Proposal.Bytes != p.Context.Bytes+20*mibBytes || s.Proposal.HighBytes != p.Context.Bytes+30*mibBytes || !s.Proposal.Measured {
		t.Errorf("%+v %+v", s, s.Proposal)
	}
	var b bytes.Buffer
	if err := Print(&b, pairs, p); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+1.00 %", "-2.00 %", "3 of 6 workloads compared", "median 1.00 %", "largest 2.00 %", "10 to 30 MiB more", `proposed for the profile a100-40: "context": {"bytes": `,
		"not compared: d: on the real GPU", "not compared: e: skipped", "not compared: f: on the virtual GPU: \"timeout\""} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("a result steers the terminal")
	}
	b.Reset()
	if err := Print(&b, pairs[3:], p); err != nil || !strings.Contains(b.String(), "0 of 3 workloads compared") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestResultsAreReadAsAStrangers(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"empty":           {"\n\n", "no rows"},
		"no JSON":         {`{"name":"a"}` + "\nTraceback", "line 2"},
		"a path":          {`{"name":"../../x"}`, "line 1: name"},
		"an option":       {`{"name":"--list"}`, "name"},
		"LD_PRELOAD":      {`{"name":"a","env":{"LD_PRELOAD":"/tmp/x.so"}}`, `"LD_PRELOAD" may not be set`},
		"PATH":            {`{"name":"a","env":{"PATH":"/tmp"}}`, "may not be set"},
		"a negative size": {`{"name":"a","max_reserved_bytes":-1}`, "a size of -1"},
		"a great size":    {`{"name":"a","outside_bytes":35184372088833}`, "a size of"},
		"a long line":     {`{"name":"` + strings.Repeat("a", maxLineBytes) + `"}`, "too long"},
		"many rows":       {strings.Repeat(`{"name":"a"}`+"\n", maxRows+1), "more than 4096 rows"},
	} {
		if _, err := readRows(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	rows, err := readRows(strings.NewReader(`{"name":"a","env":{},"cap":null,"alloc_conf":"max_split_size_mb:64","rows":[{"seconds":1}]}`))
	if err != nil || rows[0].Title() != "a PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64" {
		t.Errorf("%v %+v", err, rows)
	}
}

func FuzzReadRows(f *testing.F) {
	f.Add([]byte(`{"name":"a","env":{"CUDA_MODULE_LOADING":"EAGER"},"max_reserved_bytes":5}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := readRows(bytes.NewReader(data))
		if err == nil && len(rows) == 0 {
			t.Fatal("neither rows nor an error")
		}
	})
}
