package events

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gresize/gresize/estimator/snapshot"
)

func TestHoldings(t *testing.T) {
	alloc := func(addr, bytes uint64) snapshot.Entry {
		return snapshot.Entry{Action: snapshot.ActionAlloc, Addr: addr, SizeBytes: bytes}
	}
	free := func(addr uint64) snapshot.Entry {
		return snapshot.Entry{Action: snapshot.ActionFreeRequested, Addr: addr}
	}
	h := History{
		Entries: []snapshot.Entry{
			alloc(1, 100), alloc(2, 50), // a parameter and a batch
			alloc(3, 30), alloc(4, 20), // activations of fc and of the model
			alloc(5, 70),                                                                   // a gradient: the peak
			free(4), {Action: snapshot.ActionFreeCompleted, Addr: 4}, free(3), alloc(3, 1), // the address is used again
			free(9), // never seen
		},
		Marks: []Mark{{At: 2, Kind: Enter, Name: ""}, {At: 2, Kind: Enter, Name: "fc"}, {At: 3, Kind: Leave}, {At: 4, Kind: Leave}, {At: 4, Kind: Leave},
			{At: 4, Kind: Backward}, {At: 8, Kind: BackwardEnd}, {At: 8, Kind: Optimizer}, {At: 9, Kind: OptimizerEnd}, {At: 10, Kind: Step, Value: 1}},
		// The owners are named after the peak.
		Owners: []Owner{{At: 10, Addr: 1, Purpose: Parameter, Name: "fc.weight"}, {At: 10, Addr: 5, Purpose: Gradient, Name: "fc.weight"},
			{At: 10, Addr: 3, Purpose: State, Name: "fc.weight"}, {At: 10, Addr: 77, Purpose: State, Name: "nobody"}},
	}
	got, sum := h.Holdings()
	want := []Holding{{Parameter, "fc.weight", 100, 1}, {Gradient, "fc.weight", 70, 1}, {Elsewhere, "", 50, 1}, {Activation, "fc", 30, 1}, {Activation, "", 20, 1}}
	if diff := cmp.Diff(want, got); diff != "" || sum != 270 {
		t.Errorf("%d\n%s", sum, diff)
	}
	if got, sum := new(History).Holdings(); len(got) != 0 || sum != 0 {
		t.Errorf("%v %d", got, sum)
	}
}

// TestHoldingsAddUp: whatever the history, the holdings are the peak, no more and no less.
func TestHoldingsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h History
		live := map[uint64]int64{}
		var now, peak int64
		for i := range rapid.IntRange(0, 60).Draw(t, "entries") {
			addr := uint64(rapid.IntRange(1, 12).Draw(t, "addr"))
			if bytes, ok := live[addr]; ok {
				now -= bytes
				delete(live, addr)
				h.Entries = append(h.Entries, snapshot.Entry{Action: snapshot.ActionFreeRequested, Addr: addr})
			} else {
				bytes := int64(rapid.IntRange(1, 1000).Draw(t, "bytes"))
				live[addr], now = bytes, now+bytes
				h.Entries = append(h.Entries, snapshot.Entry{Action: snapshot.ActionAlloc, Addr: addr, SizeBytes: uint64(bytes)})
			}
			peak = max(peak, now)
			kinds := []MarkKind{Enter, Leave, Backward, BackwardEnd, Optimizer, OptimizerEnd, Step}
			h.Marks = append(h.Marks, Mark{At: i, Kind: rapid.SampledFrom(kinds).Draw(t, "mark"), Name: "m"})
			h.Owners = append(h.Owners, Owner{At: i, Addr: addr, Purpose: Parameter, Name: "p"})
		}
		list, sum := h.Holdings()
		var added int64
		for _, x := range list {
			added += x.Bytes
		}
		if sum != peak || added != peak {
			t.Fatalf("holdings of %d bytes, a sum of %d, a peak of %d", added, sum, peak)
		}
	})
}
