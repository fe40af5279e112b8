package allocator

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The answers were recorded from PyTorch itself by testdata/make_conf_answers.py.
func TestSettingsAreReadAsPyTorchReadsThem(t *testing.T) {
	files, err := filepath.Glob("testdata/conf_answers_*.jsonl")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "conf_answers_"), ".jsonl")
		version, err := ParseVersion(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			var answer struct {
				Conf     string
				Error    string
				Settings *struct {
					MaxSplit   int64             `json:"max_split_size"`
					GC         float64           `json:"garbage_collection_threshold"`
					Expandable bool              `json:"expandable_segments"`
					Divisions  map[string]uint64 `json:"roundup_power2_divisions"`
				}
			}
			if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			config, _, err := ParseConfig(answer.Conf, version)
			if answer.Settings == nil {
				if err == nil || !sameMessage(err.Error(), answer.Error) {
					t.Errorf("PyTorch %s, %q: PyTorch says %q, we say %v", name, answer.Conf, answer.Error, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("PyTorch %s, %q: PyTorch takes it, we say %v", name, answer.Conf, err)
				continue
			}
			split := int64(-1)
			if config.MaxSplitBytes != 0 {
				split = int64(config.MaxSplitBytes)
			}
			s := answer.Settings
			if split != s.MaxSplit || math.Abs(config.GCThreshold-s.GC) > 1e-12 || config.ExpandableSegments != s.Expandable {
				t.Errorf("PyTorch %s, %q: %+v, we have %+v", name, answer.Conf, s, config)
			}
			for i, d := range config.RoundupDivisions {
				if s.Divisions[strconv.Itoa(1<<i)] != d {
					t.Errorf("PyTorch %s, %q: divisions %v, we have %v", name, answer.Conf, s.Divisions, config.RoundupDivisions)
					break
				}
			}
		}
	}
}

// sameMessage compares messages; an internal assertion of PyTorch carries its place in the source with it.
func sameMessage(ours, theirs string) bool {
	return ours == theirs || strings.Contains(theirs, "INTERNAL ASSERT FAILED") && strings.Contains(theirs, ours)
}

func FuzzParseConfig(f *testing.F) {
	for _, s := range []string{"max_split_size_mb:32", "roundup_power2_divisions:[1:4,8:2,>:1],expandable_segments:True", "a:[", "backend:native"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, text string, newest bool) {
		v := Version{2, 6}
		if newest {
			v = Newest
		}
		config, _, err := ParseConfig(text, v)
		if err != nil {
			return
		}
		for _, bytes := range []uint64{1, 511, 513, 1 << 20, 1<<20 + 1, 1<<33 + 7} {
			if size := config.RoundSize(bytes, v); size < bytes || size%minBlockBytes != 0 {
				t.Fatalf("%q rounds %d to %d", text, bytes, size)
			}
		}
	})
}
