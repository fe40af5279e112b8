package replay

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator/allocator"
)

func resnet50(tb testing.TB) *Program {
	p, err := Open("testdata/resnet50_2.6.json.gz", OpenOptions{Version: allocator.Version{Major: 2, Minor: 6}})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// rounds replays the program again and again on one allocator; what is left is freed after each round, so that the cache is reused.
func rounds(tb testing.TB, p *Program, n int, o RunOptions) (stats allocator.Stats, events int) {
	card, err := allocator.NewCard(Unlimited, allocator.Ascending)
	if err != nil {
		tb.Fatal(err)
	}
	r := &runner{program: p}
	if err := r.open(o, card, nil); err != nil {
		tb.Fatal(err)
	}
	for range n {
		for i := range p.Ops {
			if _, err := r.step(&p.Ops[i]); err != nil {
				tb.Fatal(err)
			}
			events++
			if p.Ops[i].Kind == OpFree {
				events++ // requested and completed
			}
		}
		for b := range r.ids {
			if r.ids[b] != allocator.NoBlock {
				if err := r.a.Free(r.ids[b]); err != nil {
					tb.Fatal(err)
				}
				r.ids[b] = allocator.NoBlock
				events += 2
			}
		}
	}
	return *r.a.Stats(), events
}

// BenchmarkReplay replays resnet50. The cost of an event must not depend on how many came before it.
func BenchmarkReplay(b *testing.B) {
	p := resnet50(b)
	_, perRound := rounds(b, p, 1, RunOptions{})
	expandable := allocator.Config{ExpandableSegments: true}
	for _, size := range []int{10_000, 10_000_000} {
		for name, o := range map[string]RunOptions{"default": {}, "expandable": {Config: &expandable}} {
			b.Run(fmt.Sprintf("%s/events=%d", name, size), func(b *testing.B) {
				n := max(size/perRound, 1)
				total := 0
				for b.Loop() {
					_, events := rounds(b, p, n, o)
					total += events
				}
				b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "events/s")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(total), "ns/event")
			})
		}
	}
}

// BenchmarkAgainstPython runs the same algorithm in plain Python on the same requests, in the same run, and prints the ratio.
func BenchmarkAgainstPython(b *testing.B) {
	python, err := exec.LookPath("python3")
	if err != nil {
		b.Fatalf("the peer needs python3: %v", err)
	}
	p := resnet50(b)
	const n = 20
	var in strings.Builder
	for i := range p.Ops {
		switch op := &p.Ops[i]; op.Kind {
		case OpAlloc:
			fmt.Fprintf(&in, "a %d %d\n", op.Block, op.Bytes)
		case OpFree:
			fmt.Fprintf(&in, "f %d\n", op.Block)
		}
	}
	for b.Loop() {
		cmd := exec.Command(python, "testdata/peer.py", fmt.Sprint(n))
		cmd.Stdin = strings.NewReader(in.String())
		out, err := cmd.Output()
		if err != nil {
			b.Fatal(err)
		}
		var peer float64
		var peak, peakAllocated int64
		if _, err := fmt.Sscan(string(out), &peer, &peak, &peakAllocated); err != nil {
			b.Fatalf("%q: %v", out, err)
		}
		begin := time.Now()
		stats, events := rounds(b, p, n, RunOptions{})
		own := time.Since(begin).Seconds()
		if stats.ReservedBytes.All.Peak != peak || stats.AllocatedBytes.All.Peak != peakAllocated {
			b.Fatalf("the peer is another algorithm: reserved %d and %d, allocated %d and %d", stats.ReservedBytes.All.Peak, peak, stats.AllocatedBytes.All.Peak, peakAllocated)
		}
		b.ReportMetric(float64(events)/own, "own-events/s")
		b.ReportMetric(float64(events)/peer, "python-events/s")
		b.ReportMetric(peer/own, "times-faster")
	}
}

func BenchmarkSnapshotCheck(b *testing.B) {
	p := resnet50(b)
	for b.Loop() {
		if res, err := p.Check(); err != nil || res.Differences != 0 {
			b.Fatal(err, res)
		}
	}
}
