package swap

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator/analysis/planning/layout"
)

// manyBlocks is a training run of many iterations: activations that are made on the way forward, used again on the way back, and pieces in between.
func manyBlocks(n int) *Job {
	r := rand.New(rand.NewPCG(5, 6))
	const layers = 100
	j := &Job{}
	for now := int64(0); len(j.Blocks) < n; now += 2 * layers {
		for i := range int64(layers) {
			j.StepNanos = append(j.StepNanos, 20_000+r.Int64N(80_000), 20_000+r.Int64N(80_000))
			made, used := now+i, now+2*layers-1-i
			j.Blocks = append(j.Blocks, layout.Block{Start: made, End: used + 1, SizeBytes: uint64(1+r.IntN(64)) << 18})
			accesses := []int32{int32(made)}
			if used > made {
				accesses = append(accesses, int32(used))
			}
			j.Accesses = append(j.Accesses, accesses)
			for _, at := range []int64{made, made, used, used} {
				j.Blocks = append(j.Blocks, layout.Block{Start: at, End: at + 1, SizeBytes: uint64(1+r.IntN(256)) << 9})
				j.Accesses = append(j.Accesses, []int32{int32(at)})
			}
		}
	}
	return j
}

// BenchmarkHundredThousandBlocks plans what a job of 100,000 blocks swaps on a card of four fifths of what it needs: at most 2 s on two free processors.
func BenchmarkHundredThousandBlocks(b *testing.B) { benchmarkBlocks(b, 100_000, 2) }

// BenchmarkMillionBlocks is the same for a million: at most 30 s.
func BenchmarkMillionBlocks(b *testing.B) { benchmarkBlocks(b, 1_000_000, 30) }

// benchmarkBlocks reports the time of a plan, and its ratio to the time that it may take. On a machine that others use too, processor time says more.
func benchmarkBlocks(b *testing.B, blocks int, limitSeconds float64) {
	j := manyBlocks(blocks)
	target := layout.LiveBound(j.Blocks) / 5 * 4
	cpu := func() float64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	for b.Loop() {
		begin, used := time.Now(), cpu()
		p, _, err := Make(b.Context(), j, target, PublishedLink, 0)
		if err != nil {
			b.Fatal(err)
		}
		took, computed := time.Since(begin).Seconds(), cpu()-used
		hold(b, j, p, target)
		b.ReportMetric(took, "plan-s")
		b.ReportMetric(took/limitSeconds, "plan/limit")
		b.ReportMetric(computed, "plan-cpu-s")
		b.ReportMetric(float64(len(p.Moves)), "moves")
		b.ReportMetric(float64(p.StallNanos())/float64(p.BaseNanos), "stall/base")
	}
}
