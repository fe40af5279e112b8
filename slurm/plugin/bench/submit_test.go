package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/wire"
)

// lane is one cluster; the lanes differ in the plugin and its daemon alone.
type lane struct {
	name    string
	cluster *minicluster.Cluster
	took    []time.Duration
}

// The lanes. A dead daemon is one whose socket is not there; as in a real outage
// the plugin's breaker soon stops trying. BenchmarkExchange measures the tries.
const (
	noPlugin = "no plugin"
	healthy  = "healthy daemon"
	dead     = "dead daemon"
)

// rounds of submissions make one iteration of the benchmark.
const rounds = 200

// BenchmarkSubmit submits one GPU job to each lane in each round, in random
// order, so that whatever else the machine does falls on all alike.
func BenchmarkSubmit(b *testing.B) {
	lanes := startLanes(b)
	for b.Loop() {
		for range rounds {
			for _, i := range rand.Perm(len(lanes)) {
				lanes[i].submit(b)
			}
		}
	}
	report(b, lanes)
}

// jobScript is 16 KiB of script, a large one.
func jobScript() string {
	return "#!/bin/sh\n" + strings.Repeat("# what this experiment is about, in many words\n", 348) + "exit 0\n"
}

func startLanes(b *testing.B) []*lane {
	b.Helper()
	// slurmctld runs as another user: what it reads must be open to it.
	dir, err := os.MkdirTemp("", "gresize-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	plugin := buildPlugin(b, dir)
	socket := filepath.Join(dir, "healthy.sock")
	serveHolds(b, socket)

	confs := map[string]string{noPlugin: "", healthy: socket, dead: filepath.Join(dir, "none.sock")}
	var lanes []*lane
	for _, name := range []string{noPlugin, healthy, dead} {
		options := minicluster.Options{Nodes: []minicluster.Node{{
			Name: "gpu1", CPUs: 8, RealMemoryMiB: 64 << 10, GPUType: "a100", GPUs: 1, Features: []string{"gpu80g"},
		}}}
		if confs[name] != "" {
			options.Plugin = plugin
			options.PluginConf = filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".conf")
			if err := os.WriteFile(options.PluginConf, []byte("socket = "+confs[name]+"\n"), 0o644); err != nil {
				b.Fatal(err)
			}
		}
		lanes = append(lanes, &lane{name: name, cluster: minicluster.ForTest(b, options)})
	}
	for _, l := range lanes {
		l.submit(b) // the first one of each finds nothing warm
		l.took = nil
	}
	return lanes
}

func buildPlugin(b *testing.B, dir string) string {
	b.Helper()
	if output, err := exec.Command("make", "-s", "-C", "..", "OUT="+dir).CombinedOutput(); err != nil {
		b.Fatalf("build the plugin: %v\n%s", err, output)
	}
	return filepath.Join(dir, "job_submit_gresize.so")
}

// serveHolds is a daemon that answers at once with the largest kind of answer.
func serveHolds(b *testing.B, socket string) {
	b.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		b.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for count := 0; ; count++ {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			if _, err := wire.ReadRequest(connection); err != nil {
				b.Errorf("request: %v", err)
			} else if err := wire.WriteReply(connection, &wire.Reply{
				Verdict: wire.VerdictHold, HoldSeconds: 120, Token: fmt.Sprintf("bench-%d", count),
				EnvDrop: []string{"SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_MEM_PER_GPU"},
			}); err != nil {
				b.Errorf("reply: %v", err)
			}
			connection.Close()
		}
	})
	b.Cleanup(func() { listener.Close(); serving.Wait() })
}

// submit times one sbatch of a GPU job that stays in the queue.
func (l *lane) submit(b *testing.B) {
	b.Helper()
	sbatch, err := l.cluster.Command(b.Context(), minicluster.DefaultUser, "sbatch",
		"--parsable", "--gres=gpu:1", "--begin=now+1day", "--output=/dev/null")
	if err != nil {
		b.Fatal(err)
	}
	sbatch.Stdin = strings.NewReader(jobScript())
	var complaint strings.Builder
	sbatch.Stderr = &complaint
	start := time.Now()
	id, err := sbatch.Output()
	l.took = append(l.took, time.Since(start))
	if err != nil || complaint.Len() > 0 {
		b.Fatalf("%s: sbatch: %v: %s", l.name, err, complaint.String())
	}
	if len(l.took) == 1 {
		l.check(b, strings.TrimSpace(string(id)))
	}
}

// check makes sure that the lane is what its name says.
func (l *lane) check(b *testing.B, id string) {
	b.Helper()
	job, err := l.cluster.Job(context.Background(), id)
	if err != nil {
		b.Fatal(err)
	}
	if held := strings.HasPrefix(job["AdminComment"], wire.TokenPrefix); held != (l.name == healthy) {
		b.Fatalf("%s: job has AdminComment=%q", l.name, job["AdminComment"])
	}
}

func quantile(durations []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// addedMedian is the median over the iterations of what the lane took more than
// the first lane in the same iteration.
func (l *lane) addedMedian(base *lane) time.Duration {
	added := make([]time.Duration, len(l.took))
	for i := range added {
		added[i] = l.took[i] - base.took[i]
	}
	return quantile(added, 0.5)
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

var submitRPC = regexp.MustCompile(`REQUEST_SUBMIT_BATCH_JOB\s*\(\s*\d+\)\s*count:(\d+)\s+ave_time:(\d+)`)

// rpcAverage is slurmctld's own clock around a submission, without the client.
func (l *lane) rpcAverage(b *testing.B) time.Duration {
	b.Helper()
	text, err := l.cluster.Run(b.Context(), "root", "sdiag")
	if err != nil {
		b.Fatal(err)
	}
	match := submitRPC.FindStringSubmatch(text)
	if match == nil {
		b.Fatalf("sdiag says nothing of submissions:\n%s", text)
	}
	micros, err := strconv.Atoi(match[2])
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(micros) * time.Microsecond
}

func report(b *testing.B, lanes []*lane) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // of 600 submissions together it says nothing
	var table strings.Builder
	base := lanes[0]
	baseRPC := base.rpcAverage(b)
	fmt.Fprintf(&table, "\n%-16s %5s %11s %11s %15s %15s %15s %15s\n", "sbatch", "n", "median ms", "p99 ms",
		"median - none", "paired median", "RPC average ms", "RPC - none")
	for _, l := range lanes {
		rpc := l.rpcAverage(b)
		fmt.Fprintf(&table, "%-16s %5d %11.2f %11.2f %+15.2f %+15.2f %15.2f %+15.2f\n", l.name, len(l.took),
			millis(quantile(l.took, 0.5)), millis(quantile(l.took, 0.99)),
			millis(quantile(l.took, 0.5)-quantile(base.took, 0.5)), millis(l.addedMedian(base)),
			millis(rpc), millis(rpc-baseRPC))
		if l != base {
			b.ReportMetric(millis(l.addedMedian(base)), "added-ms/"+strings.Fields(l.name)[0])
		}
	}
	b.Log(table.String())
}
