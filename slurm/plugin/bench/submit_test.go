package bench

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/wire"
)

// rounds of submissions make one iteration of the benchmark.
const rounds = 200

// The lanes. A dead daemon is one whose socket is not there; as in a real outage
// the plugin's breaker soon stops trying. BenchmarkExchange measures the tries.
const (
	noPlugin = "no plugin"
	healthy  = "healthy daemon"
	dead     = "dead daemon"
)

// BenchmarkSubmit measures sbatch against three clusters of a real Slurm.
func BenchmarkSubmit(b *testing.B) {
	lanes := startLanes(b)
	for b.Loop() {
		if err := Rounds(b.Context(), lanes, rounds, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op") // of 600 submissions together it says nothing
	for _, l := range lanes[1:] {
		b.ReportMetric(Millis(l.AddedMedian(lanes[0])), "added-ms/"+strings.Fields(l.Name)[0])
	}
	table, err := Table(b.Context(), lanes)
	if err != nil {
		b.Fatal(err)
	}
	b.Log("\n" + table)
}

func startLanes(b *testing.B) []*Lane {
	b.Helper()
	dir := openDir(b)
	plugin := buildPlugin(b, dir)
	socket := filepath.Join(dir, "healthy.sock")
	serveHolds(b, socket)

	sockets := map[string]string{healthy: socket, dead: filepath.Join(dir, "none.sock")}
	var lanes []*Lane
	for _, name := range []string{noPlugin, healthy, dead} {
		options := minicluster.Options{Nodes: []minicluster.Node{{
			Name: "gpu1", CPUs: 8, RealMemoryMiB: 64 << 10, GPUType: "a100", GPUs: 1, Features: []string{"gpu80g"},
		}}}
		if sockets[name] != "" {
			options.Plugin = plugin
			options.PluginConf = filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".conf")
			if err := os.WriteFile(options.PluginConf, []byte("socket = "+sockets[name]+"\n"), 0o644); err != nil {
				b.Fatal(err)
			}
		}
		lanes = append(lanes, &Lane{Name: name, Cluster: minicluster.ForTest(b, options), Check: func(job minicluster.Job) error {
			if stamped := strings.HasPrefix(job["AdminComment"], wire.TokenPrefix); stamped != (name == healthy) {
				return fmt.Errorf("the job has AdminComment=%q", job["AdminComment"])
			}
			return nil
		}})
	}
	return lanes
}

// openDir is a folder that slurmctld, another user, can read.
func openDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("", "gresize-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	return dir
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
