package layout

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// training makes n blocks as a training run of many iterations does: layers of activations that end in reverse order, with short-lived pieces between.
func training(n int) []Block {
	r := rand.New(rand.NewPCG(3, 4))
	var blocks []Block
	for now := int64(0); len(blocks) < n; {
		layers := 200 + r.IntN(200)
		end := now + int64(layers)*20
		for layer := range layers {
			at := now + int64(layer)*8
			size := uint64(1+r.IntN(64)) << 16
			blocks = append(blocks, Block{at, end + int64(layers-layer)*8, size})
			for k := range int64(3) {
				blocks = append(blocks, Block{at + k, at + k + 2 + int64(r.IntN(4)), uint64(1+r.IntN(512)) << 9})
			}
			back := end + int64(layers-layer)*8 - 5
			blocks = append(blocks, Block{back, back + 1 + int64(r.IntN(6)), size})
		}
		now = end + int64(layers)*8 + 10
	}
	return blocks[:n]
}

// cpuSeconds is what this process has computed so far; on a machine that others use too, it says more than the clock.
func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkMillionBlocks plans a million blocks, and the published method beside it. The published code keeps a matrix of n x n
// numbers and cannot hold these at all, so its method runs on the index here.
func BenchmarkMillionBlocks(b *testing.B) {
	blocks := training(1_000_000)
	for b.Loop() {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin, cpu := time.Now(), cpuSeconds(b)
		r, err := Plan(b.Context(), blocks, Options{})
		used := cpuSeconds(b) - cpu
		took := time.Since(begin).Seconds()
		if err != nil {
			b.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if err := r.Verify(blocks); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(took, "plan-s")
		b.ReportMetric(used, "plan-cpu-s")
		b.ReportMetric(float64(after.HeapSys+after.StackSys)/(1<<20), "from-system-MiB")
		b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/(1<<20), "allocated-MiB")
		b.ReportMetric(float64(r.HeightBytes)/float64(r.LiveBoundBytes), "height/bound")
		if r.SmartPoolBytes > 0 {
			b.ReportMetric(float64(r.SmartPoolBytes)/float64(r.LiveBoundBytes), "SmartPool/bound")
		}
	}
}

// BenchmarkOrders compares the one-pass methods on blocks of growing number: the cost of a block must not grow with them.
func BenchmarkOrders(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		blocks := training(n)
		for name, method := range map[string]func() *Layout{
			"SmartPool": func() *Layout { return SmartPool(b.Context(), blocks) },
			"skyline":   func() *Layout { return skyline(b.Context(), blocks, newOrder(blocks), ranks(blocks, nil, "WA", nil)) },
		} {
			b.Run(fmt.Sprintf("%s/blocks=%d", name, n), func(b *testing.B) {
				for b.Loop() {
					l := method()
					if l == nil {
						b.Skip("too many pairs")
					}
					b.ReportMetric(float64(l.HeightBytes)/float64(LiveBound(blocks)), "height/bound")
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/block")
			})
		}
	}
}

// BenchmarkPublishedInstances solves each of the eleven, with the published method in the same run.
func BenchmarkPublishedInstances(b *testing.B) {
	all := instances(b)
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		blocks := all[name]
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r, err := Plan(b.Context(), blocks, Options{GoalBytes: 1 << 20})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(r.HeightBytes), "height")
				b.ReportMetric(float64(r.BoundBytes), "bound")
				b.ReportMetric(float64(r.SmartPoolBytes)/float64(r.HeightBytes), "SmartPool/height")
				b.ReportMetric(float64(r.Nodes), "nodes")
			}
		})
	}
}
