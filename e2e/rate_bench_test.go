package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/plugin/bench"
)

// BenchmarkSubmitRate measures what a whole site adds to a submission at 100 a second, which sbatch cannot make: one client of slurmctld, with a script of 16 KiB, to a slurmctld without
// the plugin and to one that holds each job, by turns of a second each. No probe runs here: they run on other machines than the controller.
func BenchmarkSubmitRate(b *testing.B) {
	const (
		perSecond, turns = 100, 10
		later, bytes     = "86400", "16384"
	)
	s := benchSite(b)
	dir, err := os.MkdirTemp("", "gresize-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	program := filepath.Join(dir, "submitter")
	buildSubmitter(b, program)
	type lane struct {
		name    string
		cluster *minicluster.Cluster
		sent    sent
		elapsed time.Duration
	}
	lanes := []*lane{
		{name: "no plugin", cluster: minicluster.ForTest(b, minicluster.Default())},
		{name: "gresized", cluster: s.Cluster},
	}
	turn := func(l *lane) {
		began := time.Now()
		runSubmitter(b, program, l.cluster, &l.sent, perSecond, perSecond, later, bytes)()
		l.elapsed += time.Since(began)
	}
	for _, l := range lanes {
		l.sent.ids = map[uint32]int64{}
		turn(l) // to warm up
		l.sent.took, l.elapsed = nil, 0
	}
	before, err := s.DaemonCPU()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		for range turns {
			for _, i := range rand.Perm(len(lanes)) {
				turn(lanes[i])
			}
		}
	}
	after, err := s.DaemonCPU()
	if err != nil {
		b.Fatal(err)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	held, err := s.Cluster.Run(b.Context(), "root", "sh", "-c", "scontrol -o show job | grep -c AdminComment=gresize:v1:")
	if err != nil {
		b.Fatal(err)
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%-10s %5s %6s %8s %8s %8s\n", "lane", "n", "a s", "p50 ms", "p90 ms", "p99 ms")
	for _, l := range lanes {
		if len(l.sent.refused) > 0 || l.sent.again > 0 {
			b.Fatalf("%s: %d asked for again, refused: %v", l.name, l.sent.again, l.sent.refused)
		}
		fmt.Fprintf(&table, "%-10s %5d %6.0f %8.2f %8.2f %8.2f\n", l.name, len(l.sent.took), float64(len(l.sent.took))/l.elapsed.Seconds(),
			bench.Millis(l.sent.quantile(.5)), bench.Millis(l.sent.quantile(.9)), bench.Millis(l.sent.quantile(.99)))
	}
	plain, with := &lanes[0].sent, &lanes[1].sent
	b.ReportMetric(0, "ns/op") // of all turns together it says nothing
	for _, q := range []float64{.5, .99} {
		b.ReportMetric(bench.Millis(with.quantile(q)-plain.quantile(q)), fmt.Sprintf("added-p%.0f-ms", 100*q))
		b.ReportMetric(float64(with.quantile(q))/float64(plain.quantile(q)), fmt.Sprintf("ratio-p%.0f", 100*q))
	}
	b.Logf("\n%sheld: %s, gresized and what it starts: %.1f ms of a CPU for each, load %s", table.String(), strings.TrimSpace(held), bench.Millis(after-before)/float64(len(with.took)), load)
}
