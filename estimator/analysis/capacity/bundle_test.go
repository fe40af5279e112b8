package capacity

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/trace"
)

// randomRecord has requests of few sizes, freed at random: that is where the order of addresses decides.
func randomRecord(seed uint64) string {
	random := rand.New(rand.NewPCG(seed, 0))
	sizes := make([]int, 5)
	for i := range sizes {
		sizes[i] = 1 + random.IntN(60<<20)
	}
	var record strings.Builder
	live := map[int]int{}
	line := func(action string, block int) {
		fmt.Fprintf(&record, `{"action":%q,"addr":%d,"size":%d,"stream":0,"device":0}`+"\n", action, (block+1)<<30, live[block])
	}
	for block := range 600 {
		if len(live) > 25 || len(live) > 0 && random.IntN(3) == 0 {
			for freed := range block {
				if _, ok := live[freed]; ok && random.IntN(4) == 0 {
					line("free_requested", freed)
					line("free_completed", freed)
					delete(live, freed)
				}
			}
		}
		live[block] = sizes[random.IntN(len(sizes))]
		line("alloc", block)
	}
	return record.String()
}

// TestTheOtherOrderIsInTheUpperEnd: the upper end holds the peak of both orders of addresses, and the figure stays that of the driver's.
func TestTheOtherOrderIsInTheUpperEnd(t *testing.T) {
	larger := 0
	for seed := range uint64(60) {
		b := &trace.Bundle{
			Manifest: trace.Manifest{Schema: trace.Schema, Versions: estimator.Versions{Torch: "2.6.0+cu124"}, RankCount: 1, Outcome: trace.Stopped,
				GPU: trace.GPU{CapacityBytes: 80 << 30, Devices: 1}},
			Ranks: []trace.Rank{{Report: []byte("{}"), Events: []byte(randomRecord(seed)), EventsFormat: trace.EventsJSON}},
		}
		program, err := replay.FromBundle(b, replay.OpenOptions{}, "record")
		if err != nil {
			t.Fatal(err)
		}
		peak := func(order allocator.AddressPolicy) int64 {
			res, err := program.Run(replay.RunOptions{CapacityBytes: replay.Unlimited, Policy: order})
			if err != nil {
				t.Fatal(err)
			}
			return res.Stats.ReservedBytes.All.Peak
		}
		const outside, allowance = 100 << 20, 50 << 20
		chunked, ascending := peak(allocator.Chunked), peak(allocator.Ascending)
		e := estimator.Estimate{Ranks: []estimator.Rank{{
			PeakReservedBytes: chunked, OutsideBytes: outside, ComfortableBytes: chunked + outside, ComfortableHighBytes: chunked + outside + allowance,
		}}}
		Complete(&e, b)
		r := e.Ranks[0]
		if want := max(chunked, ascending) + outside + allowance; r.ComfortableHighBytes != want || r.ComfortableBytes != chunked+outside {
			t.Errorf("seed %d: %d, at most %d; want %d, at most %d", seed, r.ComfortableBytes, r.ComfortableHighBytes, chunked+outside, want)
		}
		if r.MinimumBytes == 0 || r.MinimumBytes > r.ComfortableBytes {
			t.Errorf("seed %d: the smallest card is %d of %d", seed, r.MinimumBytes, r.ComfortableBytes)
		}
		if ascending > chunked {
			larger++
		}
	}
	if larger == 0 {
		t.Error("no record needs more in the other order")
	}
}
