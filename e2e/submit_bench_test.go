package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/plugin/bench"
	"github.com/gresize/gresize/slurm/wire"
)

// BenchmarkSubmit measures what a whole site adds to sbatch: the plugin, the real
// gresized with its log, and the probes that it starts meanwhile.
func BenchmarkSubmit(b *testing.B) {
	const rounds = 200
	s, err := site.Start(b.Context(), site.Options{Build: buildDir(b)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Stop)
	lanes := []*bench.Lane{
		{Name: "no plugin", Cluster: minicluster.ForTest(b, minicluster.Default())},
		{Name: "gresized", Cluster: s.Cluster, Check: func(job minicluster.Job) error {
			if !strings.HasPrefix(job["AdminComment"], wire.TokenPrefix) {
				return fmt.Errorf("the job has AdminComment=%q", job["AdminComment"])
			}
			return nil
		}},
	}
	for b.Loop() {
		if err := bench.Rounds(b.Context(), lanes, rounds); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op") // of all submissions together it says nothing
	b.ReportMetric(bench.Millis(lanes[1].AddedMedian(lanes[0])), "added-ms/gresized")
	table, err := bench.Table(b.Context(), lanes)
	if err != nil {
		b.Fatal(err)
	}
	b.Log("\n" + table)
}
