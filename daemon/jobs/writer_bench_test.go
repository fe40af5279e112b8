package jobs

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/slurm/wire"
)

// BenchmarkWriter measures how many submissions a second are made durable when they come faster than that: held ones, each with a script of 16 KiB in the spool, and those that are left alone.
func BenchmarkWriter(b *testing.B) {
	held := sample()
	held.Script += strings.Repeat("#", 16<<10)
	held.ScriptTotal = uint64(len(held.Script))
	alone := sample()
	alone.TresPerNode = "gres:shard:1"
	for name, r := range map[string]*wire.Request{"held": held, "left alone": alone} {
		b.Run(name, func(b *testing.B) {
			const burst = 500
			m := newBench(b, Enforce, time.Hour)
			var written atomic.Int64
			m.log.Observe(func(decisionlog.Observation) { written.Add(1) })
			m.slurm.mu.Lock() // no look at the queue meanwhile
			defer m.slurm.mu.Unlock()
			var sum time.Duration
			n := 0
			for b.Loop() {
				began, until := time.Now(), written.Load()+burst
				for range burst {
					m.manager.Answer(r)
				}
				for written.Load() < until {
					time.Sleep(time.Millisecond)
				}
				sum, n = sum+time.Since(began), n+burst
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(n)/sum.Seconds(), "submissions/s")
		})
	}
}
