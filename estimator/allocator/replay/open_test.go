package replay

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
)

func bundleWith(events string) *trace.Bundle {
	return &trace.Bundle{
		Manifest: trace.Manifest{Schema: trace.Schema, Versions: estimator.Versions{Torch: "2.6.0+cu124"}, RankCount: 1, Outcome: trace.Stopped,
			GPU: trace.GPU{CapacityBytes: 80 << 30, Devices: 1}},
		Ranks: []trace.Rank{{Report: []byte("{}"), Events: []byte(events), EventsFormat: trace.EventsJSON}},
	}
}

// The events of a bundle are the history of a process from its start, so they replay like the snapshot that they were taken from.
func TestBundleReplaysWithoutDifference(t *testing.T) {
	for _, name := range []string{"default_02", "expandable_3streams_00", "recordstream_01"} {
		source := readOracle(t, "testdata/"+name+".txt.gz")
		s, _, err := source.Snapshot(RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var events strings.Builder
		for _, e := range s.Traces[0] {
			key := "addr"
			if e.Action.String() == "oom" {
				key = "device_free"
			}
			fmt.Fprintf(&events, `{"action":%q,%q:%d,"size":%d,"stream":%d,"device":0}`+"\n", e.Action, key, e.Addr, e.SizeBytes, e.Stream)
		}
		b := bundleWith(events.String())
		b.Manifest.GPU.CapacityBytes = int64(source.TotalBytes)
		path := filepath.Join(t.TempDir(), "b.gresize")
		if err := trace.WriteFile(path, b); err != nil {
			t.Fatal(err)
		}
		p, err := Open(path, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		res, err := p.Check()
		if err != nil {
			t.Fatal(err)
		}
		if res.Differences != 0 || res.Events != len(s.Traces[0]) {
			t.Errorf("%s: %d of %d events compared, %d differences; the first at %v", name, res.Events, len(s.Traces[0]), res.Differences, res.First)
		}
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		bundle *trace.Bundle
		text   string
		device int
		says   string
	}{
		"no events":        {bundle: bundleWith(""), says: "holds no allocator events"},
		"no such rank":     {bundle: bundleWith("x"), device: 3, says: "rank 3 was asked for, the bundle has 1"},
		"no JSON":          {bundle: bundleWith("{\"action\":\"alloc\"}\nx\n"), says: "ranks/0/events.jsonl: line 2"},
		"unknown block":    {bundle: bundleWith(`{"action":"free_requested","addr":512,"size":5,"stream":0}`), says: "device_traces[0][0]: free_requested at 0x200: no block is live there"},
		"negative size":    {bundle: bundleWith(`{"action":"alloc","addr":512,"size":-5,"stream":0}`), says: "line 1"},
		"twice the same":   {bundle: bundleWith(strings.Repeat(`{"action":"alloc","addr":512,"size":5,"stream":0}`+"\n", 2)), says: "device_traces[0][1]: alloc at 0x200: the block there is live"},
		"huge size":        {bundle: bundleWith(`{"action":"alloc","addr":512,"size":18446744073709551615,"stream":0}`), says: "impossible"},
		"no such device":   {text: `{"segments":[],"device_traces":[[]]}`, device: 1, says: "device 1 was asked for, the snapshot has 1"},
		"block taken back": {text: `{"segments":[],"device_traces":[[["alloc",512,5,0]]]}`, says: "device_traces[0][0]: alloc at 0x200: no live block is there afterwards"},
		"free of nothing":  {text: `{"segments":[],"device_traces":[[["free_completed",512,5,0]]]}`, says: "no segment is there"},
		"segments overlap": {text: `{"segments":[{"address":4096,"total_size":2097152,"segment_type":"small","blocks":[[2097152,0,"inactive"]]},{"address":8192,"total_size":2097152,"segment_type":"small","blocks":[[2097152,0,"inactive"]]}],"device_traces":[[]]}`, says: "overlaps"},
		"text":             {text: "hello", says: "is neither"},
		"empty":            {text: "", says: "is neither"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "_"))
			if c.bundle != nil {
				if err := trace.WriteFile(path, c.bundle); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open(path, OpenOptions{Device: c.device})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

// TestBundleOfAnotherMode: a run on the CPU has no allocator of a GPU, and who asks is told how to have one.
func TestBundleOfAnotherMode(t *testing.T) {
	b := &trace.Bundle{Manifest: trace.Manifest{Mode: trace.ModeProfile}, Ranks: []trace.Rank{{}}}
	if _, err := FromBundle(b, OpenOptions{}, "x.bundle"); err == nil || !strings.Contains(err.Error(), "x.bundle is the bundle of a run in the mode profile, made for another estimator") ||
		!strings.Contains(err.Error(), "without --estimator") {
		t.Errorf("%v", err)
	}
}
