package epilog

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gresize/gresize/estimator"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "scan" {
		for _, path := range os.Args[2:] {
			if line, err := ScanFile(path); err == nil {
				os.Stdout.WriteString(line + "\n")
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestMemoryLine(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "loss 1.0\nout of patience\n": "",
		"Traceback\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB\nsrun: error\n": "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
		"torch.OutOfMemoryError: first\n torch.OutOfMemoryError: last":                                           " torch.OutOfMemoryError: last",
		"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`":               "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
		"\x1b[2JCUDA error: out of memory\r\n":                                                                   "?[2JCUDA error: out of memory?",
		"step 1\n" + SlowStep + "1.3 times\n":                                                                    SlowStep + "1.3 times", "it says " + SlowStep + "nothing": "",
		"slurmstepd: error: Detected 1 oom-kill event(s)":             "",
		strings.Repeat("#", 5000) + "CUDA out of memory" + "\xff\xfe": strings.Repeat("#", 100) + "CUDA out of memory?",
	} {
		if got := MemoryLine([]byte(text)); got != want {
			t.Errorf("%.60q: %q, want %q", text, got, want)
		}
	}
}

func FuzzMemoryLine(f *testing.F) {
	f.Add([]byte("x\nCUDA out of memory\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if line := MemoryLine(text); len(line) > MaxLineBytes || strings.ContainsAny(line, "\n\x1b") {
			t.Fatalf("%q", line)
		}
	})
}

func TestScanFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	if err := os.WriteFile(path, []byte(strings.Repeat("CUDA out of memory, but long ago\n", 1)+strings.Repeat("x\n", scanBytes)+"CUDA out of memory now\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if line, err := ScanFile(path); err != nil || line != "CUDA out of memory now" {
		t.Errorf("%q %v", line, err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for _, bad := range []string{fifo, dir, "/dev/zero", filepath.Join(dir, "none")} {
		if line, err := ScanFile(bad); err == nil || line != "" {
			t.Errorf("%s: %q %v", bad, line, err)
		}
	}
	if time.Since(begin) > 5*time.Second {
		t.Error("a file that is none made the Epilog wait")
	}
}

// TestScanAsHasTheRightsOfTheUser: a job whose output is named like a file of root's learns nothing of it.
func TestScanAsHasTheRightsOfTheUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test runs as root, as an Epilog does")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	secret, open := filepath.Join(dir, "secret"), filepath.Join(dir, "open")
	for path, mode := range map[string]os.FileMode{secret: 0o600, open: 0o644} {
		if err := os.WriteFile(path, []byte("CUDA out of memory\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if line := ScanAs(t.Context(), 65534, 65534, "scan", []string{secret}); line != "" {
		t.Errorf("a file of root's was read for a user: %q", line)
	}
	if line := ScanAs(t.Context(), 0, 0, "scan", []string{open}); line != "" {
		t.Errorf("looked through as root: %q", line)
	}
	if line := ScanAs(t.Context(), 65534, 65534, "scan", []string{open}); line != "CUDA out of memory" {
		t.Errorf("%q", line)
	}
}

func TestPeaksAreThoseOfTheLastJob(t *testing.T) {
	dir := t.TempDir()
	list, smi := filepath.Join(dir, "list"), filepath.Join(dir, "nvidia-smi")
	if err := os.WriteFile(smi, []byte("#!/bin/sh\n[ \"$1\" = --query-accounted-apps=gpu_uuid,pid,time,max_memory_usage ] || exit 9\n[ \"$4\" = 0 ] || exit 8\ncat "+list+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	a := Accounting{NvidiaSMI: smi, Folder: filepath.Join(dir, "state")}
	text := ""
	for i, c := range []struct {
		more string
		want []Peak
	}{
		{"GPU-1, 10, 5000, 700\nGPU-1, 11, 5000, 800\n", nil}, // whose they are is not known
		{"", nil},
		{"GPU-1, 12, 100, 900\n", []Peak{{"0", 900 << 20, 1}}},
		{"GPU-1, 13, 7, 300\nGPU-1, 14, 7, [N/A]\nGPU-1, 15, 9, 450 MiB\nNo running processes found\n", []Peak{{"0", 450 << 20, 2}}},
		{"GPU-1, 12, 101, 950\n", []Peak{{"0", 950 << 20, 1}}}, // the same number, another process
	} {
		text += c.more
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := a.Peaks(t.Context(), "0")
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%d: %s %v", i, diff, err)
		}
	}
	if got, err := a.Peaks(t.Context(), "1"); err == nil || len(got) != 0 {
		t.Errorf("%v %v", got, err)
	}
	if got, err := (Accounting{NvidiaSMI: "/nonexistent", Folder: dir}).Peaks(t.Context(), "0,../x y,"); err == nil || got != nil {
		t.Errorf("%v %v", got, err)
	}
}

func TestParseReport(t *testing.T) {
	good := Report{Schema: Schema, JobID: 7, UID: 1001, Node: "gpu1", Peaks: []Peak{{"GPU-1", 5, 1}}, MemoryLine: "x"}
	text, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseReport(text); err != nil || cmp.Diff(good, got) != "" {
		t.Errorf("%+v %v", got, err)
	}
	for name, spoil := range map[string]func(*Report){
		"schema": func(r *Report) { r.Schema = "x" }, "job_id": func(r *Report) { r.JobID = 0 }, "node": func(r *Report) { r.Node = "a b" }, "peaks": func(r *Report) { r.Peaks = make([]Peak, 65) },
		"peaks[0]": func(r *Report) { r.Peaks = []Peak{{"GPU-1", -1, 1}} }, "memory_line": func(r *Report) { r.MemoryLine = strings.Repeat("x", 301) },
	} {
		bad := good
		spoil(&bad)
		text, err := json.Marshal(bad)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseReport(text); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{`{"scan":["relative"]}`, `{"scan":["/a","/b","/c"]}`, "x"} {
		if _, err := ParseAnswer([]byte(bad)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add([]byte(`{"schema":"gresize.epilog/1","job_id":7,"uid":1,"node":"n","peaks":[{"gpu":"0","peak_bytes":5,"processes":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := ParseReport(data); err == nil && (r.JobID == 0 || len(r.Peaks) > MaxPeaks) {
			t.Fatalf("%+v", r)
		}
		_, _ = ParseAnswer(data)
	})
}

func FuzzParseWanted(f *testing.F) {
	f.Add([]byte(`{"schema":"gresize.explain/1","job_id":7}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if w, err := ParseWanted(data, SchemaExplain); err == nil && (w.JobID == 0 || w.Schema != SchemaExplain) {
			t.Fatalf("%+v", w)
		}
	})
}

func FuzzParseTold(f *testing.F) {
	f.Add([]byte(`{"schema":"gresize.actual/1","job_id":7,"run":1,"node":"gpu1","peak_bytes":1073741824,"outcome":"completed"}`))
	f.Add([]byte(`{"schema":"gresize.actual/1","job_id":7,"peak_bytes":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		told, err := ParseTold(data)
		if err == nil && (told.JobID == 0 || told.PeakBytes < 1 || told.PeakBytes > estimator.MaxBytes || told.Run != nil && *told.Run < 0) {
			t.Fatalf("%+v", told)
		}
	})
}
