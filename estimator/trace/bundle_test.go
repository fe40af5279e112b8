package trace

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/gresize/gresize/estimator"
	"pgregory.net/rapid"
)

func sample() *Bundle {
	return &Bundle{
		Manifest: Manifest{
			Schema: Schema, Versions: estimator.Versions{Gresize: "0.1.0", Torch: "2.6.0+cu124"},
			GPU:     GPU{ID: "h100", Name: "NVIDIA H100 80GB HBM3", CapacityBytes: 84929347584, Devices: 1},
			Command: []string{"python", "train.py"}, RankCount: 1, Steps: 4, Outcome: Stopped,
			Libraries: []string{"cublas"}, UnansweredSymbols: []Symbol{{"cusparse", "cusparseSpSV_solve", 2}},
			Reasons: []estimator.Reason{{Code: "values_read_back", Detail: "3 values"}}, Sandboxed: true,
			Notes: []string{}, Calls: []Call{{"sbatch", "refused", []string{"next.sh"}}}, HostPeakBytes: 1 << 30,
		},
		Ranks: []Rank{{Report: json.RawMessage(`{"peak":1}`), Events: []byte("abc"), EventsFormat: EventsBinary, Profile: []byte("\x1f\x8bpacked"),
			Parts: map[Part][]byte{PartModules: []byte("{}"), PartOperators: []byte("{}\n")}}},
	}
}

func encode(t testing.TB, b *Bundle) []byte {
	var out bytes.Buffer
	if err := Write(&out, b); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRoundTripAndDeterminism(t *testing.T) {
	data := encode(t, sample())
	if !bytes.Equal(data, encode(t, sample())) {
		t.Error("equal bundles gave other bytes")
	}
	got, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), got); diff != "" {
		t.Error(diff)
	}
}

func TestRoundTripOfAnyBundle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := sample()
		b.Manifest.Command = rapid.SliceOfN(rapid.String(), 1, 5).Draw(t, "command")
		b.Manifest.OutputTail = ClipOutput([]byte(rapid.String().Draw(t, "output")))
		b.Manifest.Steps = rapid.IntRange(0, 1000).Draw(t, "steps")
		b.Ranks = nil
		for range rapid.IntRange(0, 4).Draw(t, "ranks") {
			report, err := json.Marshal(rapid.MapOf(rapid.String(), rapid.Int64()).Draw(t, "report"))
			if err != nil {
				t.Fatal(err)
			}
			r := Rank{Report: report}
			if rapid.Bool().Draw(t, "has events") {
				r.Events, r.EventsFormat = rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "events"), EventsJSON
			}
			b.Ranks = append(b.Ranks, r)
		}
		var out bytes.Buffer
		if err := Write(&out, b); err != nil {
			t.Fatal(err)
		}
		got, err := Decode(out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Ranks) == 0 {
			b.Ranks = []Rank{}
		}
		if diff := cmp.Diff(b, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestAnotherFileIsNamedSo holds that what is no bundle at all is not called a broken one, and that the way to one is named.
func TestAnotherFileIsNamedSo(t *testing.T) {
	for name, content := range map[string]string{"README.md": "# gresize\n", "empty": "", "snapshot.pickle": "\x80\x04}"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(path); !errors.Is(err, ErrNotBundle) || errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name+" is none: gresize estimate --bundle") {
			t.Errorf("%s: %v", name, err)
		}
	}
	path := filepath.Join(t.TempDir(), "cut")
	if err := os.WriteFile(path, []byte(zipMagic+"..."), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); !errors.Is(err, ErrInvalid) {
		t.Errorf("a bundle that was cut off: %v", err)
	}
}

func TestWriteFileReplacesAtomically(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "b.zip")
	if err := WriteFile(path, sample()); err != nil {
		t.Fatal(err)
	}
	bad := sample()
	bad.Manifest.Outcome = "vanished"
	if err := WriteFile(path, bad); err == nil {
		t.Error("a wrong outcome was written")
	}
	if _, err := ReadFile(path); err != nil {
		t.Errorf("the old file is gone: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

// pack makes a zip file that Write would not make.
func pack(t testing.TB, entries ...string) []byte {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for i := 0; i < len(entries); i += 2 {
		w, err := z.Create(entries[i])
		if err == nil {
			_, err = w.Write([]byte(entries[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestReadRefuses(t *testing.T) {
	valid, err := json.Marshal(sample().Manifest)
	if err != nil {
		t.Fatal(err)
	}
	m := string(valid)
	noRanks := strings.Replace(m, `"ranks":1`, `"ranks":0`, 1)
	report := `{"a":1}`
	many := []string{manifestName, noRanks}
	for i := range maxEntries {
		many = append(many, fmt.Sprintf("ranks/%d/report.json", i), report)
	}
	cases := map[string]struct {
		data []byte
		want string
	}{
		"empty":                {nil, "0 bytes"},
		"not a zip":            {bytes.Repeat([]byte("x"), 100), "end record"},
		"no manifest":          {pack(t, "ranks/0/report.json", report), "no manifest.json"},
		"parent path":          {pack(t, manifestName, noRanks, "../x", "y"), `"../x"`},
		"absolute path":        {pack(t, manifestName, noRanks, "/etc/passwd", "y"), "no place"},
		"stray entry":          {pack(t, manifestName, noRanks, "ranks/0/other.json", "{}"), "no place"},
		"odd number":           {pack(t, manifestName, noRanks, "ranks/007/report.json", "{}"), "no place"},
		"twice":                {pack(t, manifestName, noRanks, manifestName, noRanks), "twice"},
		"count differs":        {pack(t, manifestName, m), "manifest says 1"},
		"hole":                 {pack(t, manifestName, m, "ranks/1/report.json", report), "no rank 0"},
		"events in two forms":  {pack(t, manifestName, m, "ranks/0/report.json", report, "ranks/0/events.bin", "a", "ranks/0/events.jsonl", "b"), "two forms"},
		"report is no JSON":    {pack(t, manifestName, m, "ranks/0/report.json", "{"), "report.json"},
		"report is deep":       {pack(t, manifestName, m, "ranks/0/report.json", strings.Repeat("[", 40)+strings.Repeat("]", 40)), "deep"},
		"manifest is deep":     {pack(t, manifestName, strings.Repeat("[", 1000)), "deep"},
		"manifest too large":   {pack(t, manifestName, strings.Repeat(" ", MaxManifestBytes+1)), "more than"},
		"report is a bomb":     {pack(t, manifestName, m, "ranks/0/report.json", strings.Repeat(" ", MaxReportBytes+1)), "more than"},
		"too many entries":     {pack(t, many...), "directory of"},
		"schema":               {pack(t, manifestName, strings.Replace(noRanks, Schema, "gresize.bundle/9", 1)), "schema"},
		"negative size":        {pack(t, manifestName, strings.Replace(noRanks, `"host_peak_bytes":1073741824`, `"host_peak_bytes":-1`, 1)), "host_peak_bytes"},
		"reason code":          {pack(t, manifestName, strings.Replace(noRanks, `"code":"values_read_back"`, `"code":"Values"`, 1)), "reasons[0]"},
		"something at the end": {append(encode(t, sample()), 0), "end record"},
		"something in front":   {append([]byte("#!/bin/sh\n"), encode(t, sample())...), "directory of"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(c.data)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a complaint with %q", err, c.want)
			}
		})
	}
}

func TestNewerKeysAreIgnored(t *testing.T) {
	m, err := json.Marshal(sample().Manifest)
	if err != nil {
		t.Fatal(err)
	}
	data := pack(t, manifestName, strings.Replace(string(m), `{"schema"`, `{"from_the_future":{"a":[1]},"schema"`, 1), "ranks/0/report.json", "{}")
	if _, err := Decode(data); err != nil {
		t.Error(err)
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct{ in, want string }{{"short", "short"}, {"0123456789abc", "3456789abc"}, {"ääääää", "äääää"}, {"a\xff\xfeb", "a\uFFFD\uFFFDb"}} {
		if got := Clip([]byte(c.in), 10); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.Byte()).Draw(t, "in")
		if got := Clip(in, 16); len(got) > 16 || !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
	})
}

func FuzzRead(f *testing.F) {
	data := encode(f, sample())
	f.Add(data)
	f.Add(data[:len(data)-1])
	f.Add(pack(f, manifestName, "{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Decode(data)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%v is not marked", err)
			}
			return
		}
		var out bytes.Buffer
		if err := Write(&out, b); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}
