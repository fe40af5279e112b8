package plugintest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/wire"
)

// jobLimit is how long a job of some milliseconds may take on a busy machine.
const jobLimit = 60 * time.Second

// moodyDaemon is a daemon whose behaviour a test changes between submissions.
type moodyDaemon struct {
	mu       sync.Mutex
	act      func(net.Conn, *wire.Request)
	requests []*wire.Request
}

func (p *moodyDaemon) handle(connection net.Conn) {
	request, err := wire.ReadRequest(connection)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.requests = append(p.requests, request)
	act := p.act
	p.mu.Unlock()
	act(connection, request)
}

func (p *moodyDaemon) behave(act func(net.Conn, *wire.Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.act, p.requests = act, nil
}

func (p *moodyDaemon) answer(reply *wire.Reply) {
	p.behave(func(connection net.Conn, _ *wire.Request) { _ = wire.WriteReply(connection, reply) })
}

// heard returns the requests since the behaviour was set.
func (p *moodyDaemon) heard() []*wire.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// realSlurm is a cluster with the plugin, and the daemon that the plugin asks. The root is that of another release, or empty.
func realSlurm(t *testing.T, plugin, root string) (*minicluster.Cluster, *moodyDaemon) {
	t.Helper()
	return realSlurmWith(t, plugin, root, func(*minicluster.Options) {})
}

// realSlurmWith is realSlurm on another cluster.
func realSlurmWith(t *testing.T, plugin, root string, change func(*minicluster.Options)) (*minicluster.Cluster, *moodyDaemon) {
	t.Helper()
	peer := &moodyDaemon{}
	peer.answer(&wire.Reply{Verdict: wire.VerdictPass})
	socket := serve(t, peer.handle)
	dir := filepath.Dir(socket)
	conf := filepath.Join(dir, "plugin.conf")
	if err := os.WriteFile(conf, []byte("socket = "+socket+"\ndeadline_ms = 500\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// slurmctld is another user.
	for path, mode := range map[string]os.FileMode{dir: 0o755, socket: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	options := minicluster.Default()
	options.Plugin, options.PluginConf = plugin, conf
	options.Root, options.Show = root, []string{dir}
	change(&options)
	return minicluster.ForTest(t, options), peer
}

// sbatch submits as the second user and insists that nothing but the id is printed.
func sbatch(t *testing.T, c *minicluster.Cluster, script string, args ...string) string {
	t.Helper()
	cmd, err := c.Command(t.Context(), minicluster.DefaultUser, "sbatch", append([]string{"--output=out-%j"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(script), &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("sbatch %q: %v\n%s", args, err, out.String())
	}
	id, ok := strings.CutPrefix(out.String(), "Submitted batch job ")
	if id = strings.TrimSpace(id); !ok || strings.ContainsAny(id, " \n") {
		t.Fatalf("sbatch %q must print what it always does, it printed %q", args, out.String())
	}
	return id
}

func completed(t *testing.T, c *minicluster.Cluster, id string) (job minicluster.Job, output string) {
	t.Helper()
	job, err := c.WaitJob(t.Context(), id, "COMPLETED", jobLimit)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := c.WorkDir(minicluster.DefaultUser)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "out-"+id))
	if err != nil {
		t.Fatal(err)
	}
	return job, string(content)
}

// TestRealSlurm submits through sbatch to the real slurmctld of this machine with the plugin.
func TestRealSlurm(t *testing.T) {
	c, peer := realSlurm(t, shipped.plugin, "")
	submitEverything(t, c, peer)
}

// submitEverything is what must hold on every release.
func submitEverything(t *testing.T, c *minicluster.Cluster, peer *moodyDaemon) {
	prefix := c.Version().Prefix()
	const showGPUs = "#!/bin/sh\nenv | grep ^SLURM_GPUS_PER_NODE=\necho end\n"

	t.Run("pass", func(t *testing.T) {
		peer.answer(&wire.Reply{Verdict: wire.VerdictPass})
		id := sbatch(t, c, showGPUs, "--gpus-per-node=1", "--comment=caf\xe9", "--mem=100M")
		job, output := completed(t, c, id)
		if !strings.Contains(output, "SLURM_GPUS_PER_NODE=1\n") || job["AdminComment"] != "" {
			t.Errorf("AdminComment=%q, output:\n%s", job["AdminComment"], output)
		}
		requests := peer.heard()
		if len(requests) != 1 {
			t.Fatalf("%d requests, want 1", len(requests))
		}
		r := requests[0]
		workDir, _ := c.WorkDir(minicluster.DefaultUser)
		if r.Script != showGPUs || r.TresPerNode != prefix+"gpu:1" || r.Comment != "caf\xe9" || r.WorkDir != workDir || r.SkipReason != "" ||
			r.PnMinMemory == nil || *r.PnMinMemory != 100 || r.SubmitUID == 0 || r.SubmitUID != r.UserID || len(r.Environment) == 0 {
			t.Errorf("request %+v", r)
		}
	})

	t.Run("hold", func(t *testing.T) {
		peer.answer(&wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 200, Token: "tok-1", EnvDrop: []string{"SLURM_GPUS_PER_NODE"}})
		id := sbatch(t, c, showGPUs, "--gpus-per-node=1")
		job, err := c.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if job["AdminComment"] != "gresize:v1:tok-1" || job["JobState"] != "PENDING" || job["Reason"] != "BeginTime" || job["Priority"] == "0" {
			t.Fatalf("held job: %v", job)
		}
		// The owner has the last word.
		if _, err := c.Run(t.Context(), minicluster.DefaultUser, "scontrol", "update", "JobId="+id, "StartTime=now"); err != nil {
			t.Fatal(err)
		}
		if _, output := completed(t, c, id); output != "end\n" {
			t.Errorf("the variable is still there:\n%s", output)
		}
	})

	t.Run("a hold ends by itself", func(t *testing.T) {
		peer.answer(&wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 1, Token: "tok-2"})
		completed(t, c, sbatch(t, c, showGPUs, "--gres=gpu:1"))
	})

	t.Run("stamp", func(t *testing.T) {
		peer.answer(&wire.Reply{Verdict: wire.VerdictHold, Token: "tok-s"})
		if job, _ := completed(t, c, sbatch(t, c, showGPUs, "--gres=gpu:1")); job["AdminComment"] != "gresize:v1:tok-s" {
			t.Errorf("AdminComment=%q", job["AdminComment"])
		}
	})

	t.Run("rewrite", func(t *testing.T) {
		peer.answer(&wire.Reply{Verdict: wire.VerdictRewrite, Rewrite: wire.Rewrite{
			Features: ptr("gpu80g"), TresPerNode: ptr(""), TresPerJob: ptr(prefix + "gpu:a100:1"), PnMinMemory: ptr(uint64(300)),
		}})
		job, _ := completed(t, c, sbatch(t, c, showGPUs, "--gres=gpu:1"))
		if job["Features"] != "gpu80g" || job["TresPerJob"] != prefix+"gpu:a100:1" || job["TresPerNode"] != "" ||
			job["MinMemoryNode"] != "300M" || job["NodeList"] != "gpu2" {
			t.Errorf("rewritten job: %v", job)
		}
	})

	t.Run("array", func(t *testing.T) {
		peer.answer(&wire.Reply{Verdict: wire.VerdictPass})
		sbatch(t, c, showGPUs, "--gres=gpu:1", "--array=0-3", "--begin=now+1hour")
		if requests := peer.heard(); len(requests) != 1 || requests[0].ArrayInx != "0-3" {
			t.Errorf("an array of four made %d requests", len(requests))
		}
	})

	// These are told, and a hold is not heeded.
	skipped := []struct {
		reason  string
		program string
		args    []string
	}{
		{wire.SkipNoScript, "srun", []string{"--gres=gpu:1", "true"}},
		{wire.SkipNoScript, "salloc", []string{"--gres=gpu:1", "true"}},
		{wire.SkipHet, "sbatch", []string{"--gres=gpu:1", ":", "--gres=gpu:1", "script"}},
		{wire.SkipOnHold, "sbatch", []string{"--gres=gpu:1", "--hold", "script"}},
		{wire.SkipDeadline, "sbatch", []string{"--gres=gpu:1", "--deadline=now+1hour", "--time=1", "script"}},
		{wire.SkipOptOut, "sbatch", []string{"--gres=gpu:1", "--comment=gresize:off", "script"}},
		{wire.SkipOptOut, "sbatch", []string{"--gres=gpu:1", "--export=ALL,GRESIZE=off", "script"}},
	}
	dir, err := c.WorkDir(minicluster.DefaultUser)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte("#!/bin/sh\ntrue\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, s := range skipped {
		t.Run("skip "+s.program+" "+s.reason, func(t *testing.T) {
			peer.answer(&wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 300, Token: "never"})
			ctx, cancel := context.WithTimeout(t.Context(), jobLimit)
			defer cancel()
			if _, err := c.Run(ctx, minicluster.DefaultUser, s.program, s.args...); err != nil {
				t.Fatal(err)
			}
			requests := peer.heard()
			if len(requests) == 0 {
				t.Fatal("the daemon heard nothing")
			}
			for _, request := range requests {
				if request.SkipReason != s.reason || request.Script != "" || len(request.Environment) != 0 {
					t.Errorf("skip_reason %q, want %q; %d bytes of script", request.SkipReason, s.reason, len(request.Script))
				}
			}
		})
	}
	if jobs, err := c.Run(t.Context(), "root", "scontrol", "show", "job"); err != nil || strings.Contains(jobs, wire.TokenPrefix+"never") {
		t.Errorf("a job that must be left alone carries a token: %v\n%s", err, jobs)
	}

	t.Run("no GPU", func(t *testing.T) {
		peer.answer(&wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 300, Token: "never"})
		completed(t, c, sbatch(t, c, showGPUs, "--partition="+minicluster.ProbePartition))
		if requests := peer.heard(); len(requests) != 0 {
			t.Errorf("%d requests for a job without a GPU", len(requests))
		}
	})

	t.Run("a broken daemon", func(t *testing.T) {
		for _, act := range []func(net.Conn, *wire.Request){
			func(connection net.Conn, _ *wire.Request) {
				_, _ = connection.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			},
			func(net.Conn, *wire.Request) { time.Sleep(600 * time.Millisecond) },
			func(net.Conn, *wire.Request) {},
		} {
			peer.behave(act)
			job, output := completed(t, c, sbatch(t, c, showGPUs, "--gpus-per-node=1"))
			if job["AdminComment"] != "" || !strings.Contains(output, "SLURM_GPUS_PER_NODE=1") {
				t.Errorf("the job was changed: %v\n%s", job, output)
			}
		}
		// Three failures: the breaker keeps the daemon out of it.
		peer.answer(&wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 300, Token: "never"})
		completed(t, c, sbatch(t, c, showGPUs, "--gpus-per-node=1"))
		if requests := peer.heard(); len(requests) != 0 {
			t.Errorf("%d requests while the breaker is open", len(requests))
		}
	})

	t.Run("a restart tries again", func(t *testing.T) {
		peer.answer(&wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 1, Token: "tok-3"})
		if err := c.RestartController(t.Context()); err != nil {
			t.Fatal(err)
		}
		job, _ := completed(t, c, sbatch(t, c, showGPUs, "--gres=gpu:1"))
		if job["AdminComment"] != "gresize:v1:tok-3" {
			t.Errorf("AdminComment=%q", job["AdminComment"])
		}
	})
}

// TestSlurmStartsWithABrokenConfig is the worst that a plugin can do: stop the
// controller. Ours stays off and says so in its log.
func TestSlurmStartsWithABrokenConfig(t *testing.T) {
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(dir, "plugin.conf")
	if err := os.WriteFile(conf, []byte("socket = nowhere\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	options := minicluster.Options{Plugin: shipped.plugin, PluginConf: conf, Nodes: []minicluster.Node{
		{Name: "gpu1", CPUs: 2, RealMemoryMiB: 4096, GPUType: "a100", GPUs: 1},
	}}
	c := minicluster.ForTest(t, options)
	completed(t, c, sbatch(t, c, "#!/bin/sh\ntrue\n", "--gres=gpu:1"))
	log, err := os.ReadFile(filepath.Join(c.Dir(), "log", "slurmctld.log"))
	if err != nil {
		t.Fatal(err)
	}
	if want := conf + ":1: socket must be an absolute path; the plugin stays off"; !strings.Contains(string(log), want) {
		t.Errorf("slurmctld.log does not say %q", want)
	}
}
