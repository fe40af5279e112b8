package faketensor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
)

const sound = `{"schema":"gresize.fake/1","form":"whole","reason":"stopped","torch":"2.6.0","steps":3,"world_size":null,"exception":null,"peaks":[{"index":0,"peak_bytes":1000}],"replaced":[]}`

func changed(t *testing.T, change string) []byte {
	t.Helper()
	content := map[string]any{}
	for _, text := range []string{sound, change} {
		if err := json.Unmarshal([]byte(text), &content); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParseRefuses(t *testing.T) {
	if r, err := Parse([]byte(sound)); err != nil || r.PeakBytes() != 1000 {
		t.Fatalf("%+v, %v", r, err)
	}
	for change, want := range map[string]string{
		`{"schema":"x"}`: "schema", `{"form":"x"}`: "form", `{"steps":-1}`: "steps", `{"world_size":2000000000}`: "world_size",
		`{"peaks":[{"index":64}]}`: "peaks", `{"peaks":[{"peak_bytes":-1}]}`: "peaks", `{"after_backward_bytes":-1}`: "peaks",
		`{"wall_seconds":-1}`: "wall_seconds", `{"torch":"` + strings.Repeat("x", 5000) + `"}`: "a text of 5000 bytes",
		`{"exception":{"text":"` + strings.Repeat("x", 5000) + `"}}`: "a text of 5000 bytes",
	} {
		if _, err := Parse(changed(t, change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", change, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sound))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := Parse(data); err == nil && (r.PeakBytes() < 0 || r.PeakBytes() > maxMemoryBytes || r.Steps < 0) {
			t.Errorf("%+v", r)
		}
	})
}

func TestEstimate(t *testing.T) {
	card, err := gpu.Load("a100-80")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change string
		ask    func(*trace.Bundle, *gpu.Profile) (estimator.Estimate, error)
		code   string
		bytes  int64
	}{
		"whole":              {`{}`, Estimate, "fake_tensors", 1000},
		"values":             {`{"values_read":2}`, Estimate, "values_read_back", 1000},
		"compiled":           {`{"replaced":["compile"]}`, Estimate, "fake_tensors", 1000},
		"one step":           {`{"steps":1}`, Estimate, "no_step_seen", 0},
		"without content":    {`{"without_content":"aten.nonzero.default"}`, Estimate, "not_covered", 0},
		"two cards":          {`{"peaks":[{"index":0,"peak_bytes":1},{"index":1,"peak_bytes":1}]}`, Estimate, "not_covered", 0},
		"two ranks":          {`{"world_size":2}`, Estimate, "not_covered", 0},
		"the other form":     {`{"form":"published"}`, Estimate, "recorded_otherwise", 0},
		"published":          {`{"form":"published","steps":0,"after_backward_bytes":900}`, Published, "fake_tensors", 900},
		"published, nothing": {`{"form":"published","steps":0}`, Published, "no_step_seen", 0},
	} {
		b := &trace.Bundle{Ranks: []trace.Rank{{Report: changed(t, c.change)}}}
		e, err := c.ask(b, card)
		if err != nil || e.Reasons[len(e.Reasons)-1].Code != c.code || (e.Confidence == estimator.Unknown) != (c.bytes == 0) {
			t.Errorf("%s: %v, %+v", name, err, e)
			continue
		}
		if c.bytes > 0 && (e.Ranks[0].PeakReservedBytes != c.bytes || (e.Ranks[0].OutsideBytes == 0) != strings.HasPrefix(name, "published")) {
			t.Errorf("%s: %+v", name, e.Ranks)
		}
	}
	if _, err := Estimate(&trace.Bundle{Ranks: []trace.Rank{{Report: []byte("{}")}}}, card); err == nil || !strings.Contains(err.Error(), "ranks/0/report.json") {
		t.Errorf("a damaged report: %v", err)
	}
}

func TestReadRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"fake-1.json": sound, "fake-2.json": `{"schema":"gresize.fake/1","form":"whole","reason":"cpu_only_torch"}`, "python-1.json": "{"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run, err := ReadRun(dir)
	if err != nil || len(run.Reports) != 2 || len(run.Ranks) != 1 || !run.Stopped() || run.CPUOnly() || run.BudgetSpent() {
		t.Fatalf("%+v, %v", run, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "fake-4.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRun(dir); err == nil || !strings.Contains(err.Error(), "fake-4.json") {
		t.Errorf("%v", err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "fake-3.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRun(dir); err == nil || !strings.Contains(err.Error(), "fake-3.json") {
		t.Errorf("%v", err)
	}
}
