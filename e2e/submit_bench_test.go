package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/plugin/bench"
	"github.com/gresize/gresize/slurm/wire"
)

// benchSite is a site whose probes wait for ever: they run on other machines than
// the controller, so here they must not run at all.
func benchSite(b *testing.B) *site.Site {
	b.Helper()
	build, err := buildFake()
	if err != nil {
		b.Fatal(err)
	}
	s, err := site.Start(b.Context(), site.Options{Build: build})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Stop)
	if _, err := s.Cluster.Run(b.Context(), "root", "scontrol", "update", "NodeName=cpu1", "State=DRAIN", "Reason=benchmark"); err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkAnswer measures how long the plugin waits for the real gresized, with
// a script of 16 KiB, at a calm and at a hurried pace. No job comes of it.
func BenchmarkAnswer(b *testing.B) {
	s := benchSite(b)
	request := &wire.Request{
		SlurmVersion: 0x160508, SubmitUID: 1000, UserID: 1000, GroupID: 1000, Name: "train.sh", Partition: "gpu",
		TresPerNode: "gres:gpu:1", WorkDir: "/home/ada", Argv: []string{"train.sh"}, ArgvTotal: 1,
		Environment: []string{"HOME=/home/ada", "PATH=/usr/bin:/bin"}, EnvironmentTotal: 2,
		Script: "#!/bin/sh\n" + strings.Repeat("#", 16<<10), ScriptTotal: 10 + 16<<10,
	}
	for _, pace := range []time.Duration{10 * time.Millisecond, 0} {
		b.Run(fmt.Sprintf("pause-%s", pace), func(b *testing.B) {
			var took []time.Duration
			verdicts := map[wire.Verdict]int{}
			for b.Loop() {
				for range 200 {
					time.Sleep(pace)
					start := time.Now()
					reply, err := exchange(filepath.Join(filepath.Dir(filepath.Dir(s.ConfigPath())), "run", "submit.sock"), request)
					if err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(start))
					verdicts[reply.Verdict]++
				}
			}
			b.ReportMetric(0, "ns/op") // of 200 exchanges and pauses it says nothing
			b.ReportMetric(bench.Millis(bench.Quantile(took, 0.5)), "p50-ms")
			b.ReportMetric(bench.Millis(bench.Quantile(took, 0.99)), "p99-ms")
			b.ReportMetric(float64(verdicts[wire.VerdictHold])/float64(len(took)), "held")
		})
	}
}

func exchange(socket string, request *wire.Request) (*wire.Reply, error) {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	if err := wire.WriteRequest(connection, request); err != nil {
		return nil, err
	}
	return wire.ReadReply(connection)
}

// BenchmarkSubmit measures what a whole site adds to sbatch: the plugin, the real
// gresized, its log, and its submitting of probe jobs; and what gresized takes of
// a processor for each submission. The load of the machine falls on both lanes.
func BenchmarkSubmit(b *testing.B) {
	const rounds = 200
	s := benchSite(b)
	plain := minicluster.ForTest(b, minicluster.Default())
	// A busy site, three jobs a second, and as fast as sbatch goes, while hundreds are held.
	for _, pause := range []time.Duration{300 * time.Millisecond, 0} {
		b.Run(fmt.Sprintf("pause-%s", pause), func(b *testing.B) {
			lanes := []*bench.Lane{
				{Name: "no plugin", Cluster: plain},
				{Name: "gresized", Cluster: s.Cluster, Check: func(job minicluster.Job) error {
					if !strings.HasPrefix(job["AdminComment"], wire.TokenPrefix) {
						return fmt.Errorf("the job has AdminComment=%q", job["AdminComment"])
					}
					return nil
				}},
			}
			before, err := s.DaemonCPU()
			if err != nil {
				b.Fatal(err)
			}
			submitted, start := 0, time.Now()
			for b.Loop() {
				if err := bench.Rounds(b.Context(), lanes, rounds, pause); err != nil {
					b.Fatal(err)
				}
				submitted += rounds
			}
			took := time.Since(start)
			after, err := s.DaemonCPU()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(0, "ns/op") // of all submissions together it says nothing
			b.ReportMetric(bench.Millis(lanes[1].AddedMedian(lanes[0])), "added-ms/gresized")
			b.ReportMetric(float64(submitted)/took.Seconds(), "submissions/s")
			b.ReportMetric(bench.Millis(after-before)/float64(submitted), "daemon-cpu-ms/submission")
			table, err := bench.Table(b.Context(), lanes)
			if err != nil {
				b.Fatal(err)
			}
			b.Log("\n" + table)
		})
	}
}
