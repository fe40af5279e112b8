package events

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gresize/gresize/estimator/snapshot"
)

const small = `{"name":0,"text":"Net"}
{"name":1,"text":"fc.weight"}
{"history":1,"device":0,"conf":"","expandable_segments":false,"fraction":1,"total_bytes":1000,"free_bytes":900,"allocations":2,"private_pools":false}
{"action":"segment_alloc","addr":4096,"size":2097152,"stream":0}
{"mark":"enter","value":0}
{"action":"alloc","addr":4096,"size":100,"stream":0}
{"mark":"leave","value":0}
{"mark":"backward","value":0}
{"action":"alloc","addr":8192,"size":8,"stream":3}
{"own":"parameter","addr":4096,"name":1}
{"mark":"step","value":1}
{"action":"oom","size":77,"stream":0,"device_free":12}
{"mark":"of a later release","value":0}
{"own":"of a later release","addr":1,"name":0}
`

func TestRead(t *testing.T) {
	got, err := Read([]byte(small + `{"history":1,"device":1,"fraction":1,"allocations":9}` + "\n" + `{"action":"alloc","addr":1,"size":1}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &History{
		MemoryFraction: 1, TotalBytes: 1000, FreeBytes: 900,
		Entries: []snapshot.Entry{
			{Action: snapshot.ActionSegmentAlloc, Addr: 4096, SizeBytes: 2097152}, {Action: snapshot.ActionAlloc, Addr: 4096, SizeBytes: 100},
			{Action: snapshot.ActionAlloc, Addr: 8192, SizeBytes: 8, Stream: 3}, {Action: snapshot.ActionOOM, Addr: 12, SizeBytes: 77},
		},
		Marks:  []Mark{{At: 1, Kind: Enter, Name: "Net"}, {At: 2, Kind: Leave}, {At: 2, Kind: Backward}, {At: 3, Kind: Step, Value: 1}},
		Owners: []Owner{{At: 3, Addr: 4096, Purpose: Parameter, Name: "fc.weight"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadXLA(t *testing.T) {
	got, err := Read([]byte(`{"name":0,"text":"w"}
{"history":1,"device":0,"fraction":1,"allocator":"xla","allocations":1}
{"action":"alloc","addr":1,"size":7}
{"own":"temporary","addr":1,"name":0}`))
	if err != nil || got.Allocator != XLA || len(got.Owners) != 1 || got.Owners[0].Purpose != Temporary {
		t.Errorf("%+v, %v", got, err)
	}
}

// A ring that ran over holds the last events only; the allocator's own counter tells.
func TestReadTellsWhatWasLost(t *testing.T) {
	got, err := Read([]byte(strings.Replace(small, `"allocations":2`, `"allocations":7`, 1)))
	if err != nil || got.Lost != 5 {
		t.Errorf("lost %d, %v; want 5", got.Lost, err)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"no JSON":           {"{}\nx", "line 2: invalid character"},
		"negative size":     {`{"action":"alloc","addr":1,"size":-1}`, "line 1"},
		"enormous size":     {`{"action":"alloc","addr":1,"size":281474976710657}`, "line 1: address 0x1 or size 281474976710657"},
		"enormous address":  {`{"action":"alloc","addr":9223372036854775807,"size":1}`, "is impossible"},
		"name out of order": {`{"name":1,"text":"a"}`, "line 1: name: want the number 0"},
		"long name":         {`{"name":0,"text":"` + strings.Repeat("a", 1025) + `"}`, "at most 1024"},
		"unknown name":      {`{"own":"parameter","addr":1,"name":0}`, "line 1: name"},
		"no name":           {`{"own":"parameter","addr":1}`, "line 1: name"},
		"unknown module":    {`{"mark":"enter","value":0}`, "line 1: value: 0"},
		"negative module":   {`{"mark":"enter","value":-1}`, "line 1: value: -1"},
		"other version":     {`{"history":2}`, "line 1: history: version 2"},
		"allocator":         {`{"history":1,"allocator":"other"}`, `line 1: allocator: "other" is not known`},
		"fraction":          {`{"history":1,"fraction":1.5}`, "fraction: 1.5"},
		"device":            {`{"history":1,"device":-1}`, "device: -1"},
		"free over total":   {`{"history":1,"total_bytes":1,"free_bytes":2}`, "out of range"},
	} {
		if _, err := Read([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want an error that says %q", name, err, c.says)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(`{"name":0,"text":""}` + "\n" + `{"history":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := Read(data)
		if err != nil {
			return
		}
		for _, m := range h.Marks {
			if m.At < 0 || m.At > len(h.Entries) {
				t.Fatalf("a mark at %d of %d entries", m.At, len(h.Entries))
			}
		}
	})
}
