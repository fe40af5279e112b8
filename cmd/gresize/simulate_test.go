package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/snapshot"
)

const recordedTraces = "../../estimator/allocator/replay/testdata"

func runSimulate(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), append([]string{"simulate"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

func TestSimulateCheckEndsWithTheCount(t *testing.T) {
	files, err := filepath.Glob(recordedTraces + "/*.txt.gz")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	shared := os.Getenv("GRESIZE_SHARED")
	if shared == "" {
		shared = "../../../shared"
	}
	for _, pattern := range []string{"data/allocator_oracle/*.txt.gz", "data/real_traces/*.json.gz"} {
		more, _ := filepath.Glob(filepath.Join(shared, pattern))
		if len(more) == 0 {
			t.Logf("no %s in %s: only the traces in the tree are checked", pattern, shared)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		code, out, errs := runSimulate(t, file, "--check")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		last := lines[len(lines)-1]
		if code != exitOK || !strings.HasPrefix(last, "checked ") || !strings.HasSuffix(last, " events: 0 differences") || errs != "" {
			t.Errorf("%s: exit %d, %q, %q", file, code, last, errs)
		}
	}
}

func TestSimulateCheckShowsTheFirstDifference(t *testing.T) {
	file := filepath.Join(t.TempDir(), "wrong.txt")
	text := "@ torch=2.6.0 conf=- total=4294967296 fraction=-\n> a v0 1000 0\n# segment_alloc addr=7f0000000000 size=2097152 stream=0x0\n# alloc addr=7f0000000200 size=1000 stream=0x0\n= v0 0x7f0000000200\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, _ := runSimulate(t, file, "--check")
	for _, want := range []string{"request 0", "recorded: alloc addr=7f0000000200", "computed: alloc addr=7f0000000000", "checked 2 events: 2 differences"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if code != exitError {
		t.Errorf("exit %d", code)
	}
}

func TestSimulateAnswersWhatIf(t *testing.T) {
	file := recordedTraces + "/default_02.txt.gz"
	code, out, errs := runSimulate(t, file, "--capacity", "80GiB", "--json")
	var big simulation
	if err := json.Unmarshal([]byte(out), &big); err != nil || code != exitOK || !big.Fits || errs != "" {
		t.Fatalf("exit %d, %v, %+v, %s", code, err, big, errs)
	}
	code, out, _ = runSimulate(t, file, "--capacity", "300MiB", "--no-minimum")
	if code != exitDoesNotFit || !strings.Contains(out, "does not fit: request") || strings.Contains(out, " bytes") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	_, out, _ = runSimulate(t, file, "--capacity", "80GiB", "--alloc-conf", "expandable_segments:True", "--json")
	var expandable simulation
	if err := json.Unmarshal([]byte(out), &expandable); err != nil {
		t.Fatal(err)
	}
	if expandable.PeakReservedBytes == big.PeakReservedBytes || expandable.Minimum.MinimumBytes >= big.Minimum.MinimumBytes {
		t.Errorf("the settings changed nothing: %+v, %+v", expandable, big)
	}
}

func TestSimulateExports(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.pickle")
	if code, out, errs := runSimulate(t, recordedTraces+"/default_02.txt.gz", "--export", file, "--no-minimum"); code != exitDoesNotFit {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if s, err := snapshot.Read(f, file, snapshot.DefaultLimits); err != nil || len(s.Traces) != 1 || len(s.Segments) == 0 {
		t.Errorf("%v, %+v", err, s)
	}
	if code, out, errs := runSimulate(t, file, "--check"); code != exitOK {
		t.Errorf("the export does not replay: exit %d: %s%s", code, out, errs)
	}
}

func TestSimulateRefuses(t *testing.T) {
	file := recordedTraces + "/default_02.txt.gz"
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("@ torch=2.6.0 conf=- total=1000000 fraction=-\n> f v7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no file":           {nil, exitUsage, "one file"},
		"missing file":      {[]string{"/nonexistent"}, exitError, "no such file"},
		"a directory":       {[]string{"."}, exitError, "is a directory"},
		"another file":      {[]string{"simulate.go"}, exitError, "is neither"},
		"capacity":          {[]string{file, "--capacity", "20"}, exitUsage, "for example 20GiB"},
		"version":           {[]string{file, "--torch-version", "1.2"}, exitUsage, "not known"},
		"version to come":   {[]string{file, "--torch-version", "9.9"}, exitUsage, "PyTorch 9.9 is not known: the newest that is simulated is"},
		"settings":          {[]string{file, "--alloc-conf", "max_split_size_mb:20"}, exitUsage, "too small, must be > 20"},
		"unknown settings":  {[]string{file, "--alloc-conf", "foo:1", "--torch-version", "2.11"}, exitUsage, "Unrecognized key 'foo'"},
		"async backend":     {[]string{file, "--alloc-conf", "backend:cudaMallocAsync"}, exitError, "not simulated"},
		"check and what-if": {[]string{file, "--check", "--capacity", "1GiB"}, exitUsage, "--check"},
		"broken file":       {[]string{broken, "--check"}, exitError, "broken:2: block v7 is not allocated"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, errs := runSimulate(t, c.args...)
			if code != c.code || !strings.Contains(errs, c.says) {
				t.Errorf("exit %d, want %d: %s", code, c.code, errs)
			}
		})
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]uint64{"20GiB": 20 << 30, "1.5 MiB": 3 << 19, "7B": 7, "": 0, "20": 0, "GiB": 0, "-1GiB": 0, "NaNGiB": 0, "9000TiB": 0, "20GB": 0} {
		got, err := parseSize(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("parseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	if replay.Unlimited < 1<<50 {
		t.Error("the unlimited card is small")
	}
}
