package timeline

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gresize/gresize/estimator/snapshot"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/trace/events"
)

const mib = 1 << 20

func alloc(addr, size uint64) snapshot.Entry {
	return snapshot.Entry{Action: snapshot.ActionAlloc, Addr: addr, SizeBytes: size}
}

func free(addr uint64) snapshot.Entry {
	return snapshot.Entry{Action: snapshot.ActionFreeCompleted, Addr: addr}
}

func handBack(addr uint64) snapshot.Entry {
	return snapshot.Entry{Action: snapshot.ActionFreeRequested, Addr: addr}
}

func segment(action snapshot.Action, addr, size uint64) snapshot.Entry {
	return snapshot.Entry{Action: action, Addr: addr, SizeBytes: size}
}

// sizes makes blocks as large as their requests.
func sizes(h *events.History) (list []uint64) {
	for _, e := range h.Entries {
		if e.Action == snapshot.ActionAlloc {
			list = append(list, e.SizeBytes)
		}
	}
	return list
}

// Two steps of a module with one parameter: what each block is for follows from the marks and owners.
func twoSteps() *events.History {
	return &events.History{
		Entries: []snapshot.Entry{
			segment(snapshot.ActionSegmentAlloc, 0, 100*mib),
			alloc(0, 8*mib), // the parameter
			alloc(10*mib, 1*mib),
			alloc(20*mib, 3*mib), free(20 * mib), // scratch
			alloc(30*mib, 4*mib),                 // activation
			alloc(40*mib, 12*mib),                // workspace of a library
			alloc(60*mib, 5*mib), free(60 * mib), // gradient of an activation
			alloc(70*mib, 8*mib), free(30 * mib), // gradient
			alloc(80*mib, 8*mib), // optimizer state
			free(70 * mib),
			alloc(30*mib, 4*mib), alloc(70*mib, 8*mib), free(30 * mib),
		},
		Marks: []events.Mark{
			{At: 3, Kind: events.Enter, Name: "Net"}, {At: 3, Kind: events.Enter, Name: "fc"}, {At: 5, Kind: events.Leave},
			{At: 5, Kind: events.Enter, Name: "head"}, {At: 7, Kind: events.Leave}, {At: 7, Kind: events.Leave},
			{At: 7, Kind: events.Backward}, {At: 11, Kind: events.BackwardEnd}, {At: 11, Kind: events.Optimizer}, {At: 12, Kind: events.OptimizerEnd},
			{At: 12, Kind: events.Step, Value: 1},
			{At: 13, Kind: events.Enter, Name: "head"}, {At: 14, Kind: events.Leave}, {At: 14, Kind: events.Backward}, {At: 16, Kind: events.BackwardEnd},
			{At: 16, Kind: events.Step, Value: 2},
		},
		Owners: []events.Owner{
			{At: 12, Addr: 0, Purpose: events.Parameter, Name: "fc.weight"}, {At: 12, Addr: 70 * mib, Purpose: events.Gradient, Name: "fc.weight"},
			{At: 12, Addr: 80 * mib, Purpose: events.State, Name: "exp_avg of fc.weight"}, {At: 12, Addr: 99, Purpose: events.Buffer, Name: "nowhere"},
			{At: 16, Addr: 70 * mib, Purpose: events.Gradient, Name: "fc.weight"},
		},
	}
}

func TestCategories(t *testing.T) {
	h := twoSteps()
	tl, err := New(h, sizes(h))
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		SizeMiB  uint64
		Category Category
		Owner    string
	}
	var got []row
	for _, b := range tl.Blocks {
		got = append(got, row{b.SizeBytes / mib, b.Category, b.Owner})
	}
	want := []row{
		{8, Parameters, "fc.weight"}, {1, Other, ""}, {3, Workspace, "fc"}, {4, Activations, "head"}, {12, Workspace, "kept by a library"},
		{5, BackwardTemporaries, ""}, {8, Gradients, "fc.weight"}, {8, OptimizerState, "exp_avg of fc.weight"}, {4, Activations, "head"}, {8, Gradients, "fc.weight"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if tl.PeakAllocatedBytes != 41*mib || tl.PeakAt != 14 || tl.PeakReservedBytes != 100*mib {
		t.Errorf("peak of %d MiB at %d, %d MiB reserved; want 41 at 14, 100", tl.PeakAllocatedBytes/mib, tl.PeakAt, tl.PeakReservedBytes/mib)
	}
	if diff := cmp.Diff([]Step{{12, 1}, {16, 2}}, tl.Steps); diff != "" {
		t.Error(diff)
	}
	owners := tl.OwnersAtPeak()
	if owners[0].Name != "kept by a library" || owners[0].SizeBytes != 12*mib || len(owners) != 6 {
		t.Errorf("owners at the peak: %v", owners)
	}
}

// What a program keeps, or uses between two layers, is its own and no library's, whatever its size.
func TestTensorsOfTheProgramAreNoWorkspaces(t *testing.T) {
	h := &events.History{
		Entries: []snapshot.Entry{
			alloc(0, 32*mib),                             // 0: kept, in each step, of the size of a workspace
			alloc(100*mib, 32*mib),                       // 1: cuBLAS's
			alloc(200*mib, 7*mib),                        // 2: a mask that the first forward makes and keeps
			alloc(300*mib, 5*mib), alloc(400*mib, 6*mib), // 3, 4: between two layers; the output
			handBack(300 * mib), free(300 * mib), // 5, 6
			alloc(500*mib, 32*mib), // 7: kept, in the next step
			alloc(600*mib, 1*mib),  // 8
		},
		Marks: []events.Mark{
			{At: 0, Kind: events.Enter, Name: "head"}, {At: 1, Kind: events.Leave}, {At: 1, Kind: events.Enter, Name: "fc"}, {At: 2, Kind: events.Leave},
			{At: 2, Kind: events.Enter, Name: "Net"}, {At: 6, Kind: events.Leave}, {At: 7, Kind: events.Step, Value: 1},
			{At: 7, Kind: events.Enter, Name: "head"}, {At: 8, Kind: events.Leave}, {At: 8, Kind: events.Step, Value: 2}, {At: 9, Kind: events.Step, Value: 3},
		},
	}
	tl, err := New(h, sizes(h))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"activations head, kept beyond its step", "workspace kept by a library", "activations Net, kept beyond its step", "activations Net",
		"activations Net, kept beyond its step", "activations head, kept beyond its step", "other ",
	}
	for i, b := range tl.Blocks {
		if got := b.Category.String() + " " + b.Owner; got != want[i] {
			t.Errorf("block %d: %q, want %q", i, got, want[i])
		}
	}
}

func TestUnmapCutsThroughRanges(t *testing.T) {
	h := &events.History{Entries: []snapshot.Entry{
		segment(snapshot.ActionSegmentMap, 0, 20), segment(snapshot.ActionSegmentMap, 20, 20), segment(snapshot.ActionSegmentMap, 60, 20),
		segment(snapshot.ActionSegmentUnmap, 10, 20), alloc(0, 1),
	}}
	tl, err := New(h, sizes(h))
	if err != nil {
		t.Fatal(err)
	}
	want := []Range{{0, 10, 3, 5}, {30, 10, 3, 5}, {60, 20, 2, 5}}
	if diff := cmp.Diff(want, tl.RangesAtPeak()); diff != "" {
		t.Error(diff)
	}
}

func TestRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		h    events.History
		size []uint64
		says string
	}{
		"lost":          {events.History{Lost: 3}, nil, "no room for 3 requests"},
		"twice":         {events.History{Entries: []snapshot.Entry{alloc(1, 1), alloc(1, 1)}}, []uint64{1, 1}, "event 1: the block at 0x1 is handed out twice"},
		"free":          {events.History{Entries: []snapshot.Entry{free(1)}}, nil, "event 0: the block at 0x1 is given back"},
		"no size":       {events.History{Entries: []snapshot.Entry{alloc(1, 1)}}, nil, "event 0: no block of the replay"},
		"small size":    {events.History{Entries: []snapshot.Entry{alloc(1, 9)}}, []uint64{8}, "event 0: no block of the replay"},
		"segment twice": {events.History{Entries: []snapshot.Entry{segment(snapshot.ActionSegmentAlloc, 0, 1), segment(snapshot.ActionSegmentAlloc, 0, 1)}}, nil, "event 1: the segment at 0x0 is taken twice"},
		"segment free":  {events.History{Entries: []snapshot.Entry{segment(snapshot.ActionSegmentFree, 0, 1)}}, nil, "event 0: the segment at 0x0"},
		"unmap":         {events.History{Entries: []snapshot.Entry{segment(snapshot.ActionSegmentMap, 0, 10), segment(snapshot.ActionSegmentUnmap, 5, 10)}}, nil, "event 1: 10 bytes at 0x5 are unmapped, 5 of them"},
	} {
		if _, err := New(&c.h, c.size); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want an error that says %q", name, err, c.says)
		}
	}
}

// Whatever the run: the samples hold the peak, the owners add up to it, and no sample is above it.
func TestSamplesHoldThePeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		h := &events.History{}
		live := map[uint64]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			addr := uint64(random.IntN(20)) * mib
			if live[addr] {
				h.Entries = append(h.Entries, free(addr))
			} else {
				h.Entries = append(h.Entries, alloc(addr, uint64(1+random.IntN(mib))))
			}
			live[addr] = !live[addr]
		}
		tl, err := New(h, sizes(h))
		if err != nil {
			t.Fatal(err)
		}
		most := uint64(0)
		for _, s := range tl.Samples(rapid.IntRange(1, 300).Draw(t, "parts")) {
			most = max(most, s.AllocatedBytes())
		}
		sum := uint64(0)
		for _, o := range tl.OwnersAtPeak() {
			sum += o.SizeBytes
		}
		if most != tl.PeakAllocatedBytes || sum != most {
			t.Fatalf("peak %d, samples %d, owners %d", tl.PeakAllocatedBytes, most, sum)
		}
	})
}

// TestXLA: arrays and temporaries of XLA have their purposes at once, and the sizes to which its allocator rounds up.
func TestXLA(t *testing.T) {
	const recorded = `{"name":0,"text":"w"}
{"name":1,"text":"jit_step"}
{"history":1,"device":0,"fraction":1,"allocator":"xla","allocations":2}
{"action":"alloc","addr":4096,"size":1000}
{"own":"parameter","addr":4096,"name":0}
{"action":"alloc","addr":8192,"size":256}
{"own":"temporary","addr":8192,"name":1}
{"action":"free_completed","addr":8192,"size":256}
{"mark":"step","value":1}
`
	line, err := Read(&trace.Bundle{Ranks: []trace.Rank{{Events: []byte(recorded), EventsFormat: trace.EventsJSON}}}, 0, "the run")
	if err != nil {
		t.Fatal(err)
	}
	want := []Owner{{Category: Parameters, Name: "w", SizeBytes: 1024, Blocks: 1}, {Category: Temporaries, Name: "jit_step", SizeBytes: 256, Blocks: 1}}
	if diff := cmp.Diff(want, line.OwnersAtPeak()); diff != "" || !line.XLA || line.PeakAllocatedBytes != 1280 || len(line.Steps) != 1 {
		t.Errorf("%+v\n%s", line, diff)
	}
}
