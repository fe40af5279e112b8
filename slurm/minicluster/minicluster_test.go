package minicluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// jobLimit is how long a job of some milliseconds may take, on a machine that is busy with other tests.
const jobLimit = 60 * time.Second

// withGPU gives the nodes a profile and an environment that a job can show, without needing a virtual GPU.
func withGPU(opts Options) Options {
	opts.UserEnv = []string{"PATH=/nonexistent/venv/bin:" + searchPath}
	for i := range opts.Nodes {
		n := &opts.Nodes[i]
		if n.GPUs > 0 {
			n.GPUProfile = []byte("name=" + n.GPUModel + "\n")
			n.GPUEnv = []string{"GRESIZE_TEST_VALUE=it's $HOME of " + n.Name, "LD_LIBRARY_PATH=/nonexistent/vgpu"}
		}
	}
	return opts
}

// output is what a finished job printed.
func output(t *testing.T, c *Cluster, name string) string {
	t.Helper()
	dir, err := c.WorkDir(DefaultUser)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// run submits a job as the second user and waits for its end.
func run(t *testing.T, c *Cluster, args ...string) (Job, string) {
	t.Helper()
	id, err := c.Sbatch(t.Context(), DefaultUser, append([]string{"--output=out-%j"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	job, err := c.WaitJob(t.Context(), id, "COMPLETED", jobLimit)
	if err != nil {
		t.Fatal(err)
	}
	return job, output(t, c, "out-"+id)
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("no line %q in:\n%s", line, text)
		}
	}
}

func TestDefaultCluster(t *testing.T) {
	t.Setenv("GRESIZE_TEST_LEAK", "of the test's own environment")
	begin := time.Now()
	c := ForTest(t, withGPU(Default()))
	took := time.Since(begin)
	t.Logf("idle after %.1f s", took.Seconds())
	if took > 15*time.Second {
		t.Errorf("start took %v, promised are 15 s", took)
	}

	t.Run("constraint and prolog", func(t *testing.T) {
		job, out := run(t, c, "--gres=gpu:1", "--constraint=gpu80g", "--wrap", "id -un; env; cat $GRESIZE_VGPU_PROFILE")
		if job["NodeList"] != "gpu2" {
			t.Errorf("ran on %s", job["NodeList"])
		}
		wantLines(t, out, DefaultUser, "SLURMD_NODENAME=gpu2", "GRESIZE_TEST_VALUE=it's $HOME of gpu2", "name=a100-80",
			"LD_LIBRARY_PATH=/nonexistent/vgpu", "CUDA_VISIBLE_DEVICES=0", "PATH=/nonexistent/venv/bin:"+searchPath)
		if strings.Contains(out, "GRESIZE_TEST_LEAK") {
			t.Errorf("the job inherited our environment:\n%s", out)
		}
	})
	t.Run("type and inner srun", func(t *testing.T) {
		job, out := run(t, c, "--gpus=rtx3060:1", "--export=ALL,LD_LIBRARY_PATH=/own", "--wrap",
			"srun sh -c 'echo step $SLURM_STEP_ID on $SLURMD_NODENAME; env'")
		if job["NodeList"] != "gpu1" {
			t.Errorf("ran on %s", job["NodeList"])
		}
		wantLines(t, out, "step 0 on gpu1", "GRESIZE_TEST_VALUE=it's $HOME of gpu1", "LD_LIBRARY_PATH=/nonexistent/vgpu:/own")
	})
	t.Run("shards", func(t *testing.T) {
		job, out := run(t, c, "--gres=shard:24", "--wrap", "env")
		if job["NodeList"] != "gpu2" {
			t.Errorf("ran on %s: gpu1 has only 12 shards", job["NodeList"])
		}
		wantLines(t, out, "GRESIZE_TEST_VALUE=it's $HOME of gpu2", "SLURM_SHARDS_ON_NODE=24")
	})
	t.Run("no GPU", func(t *testing.T) {
		job, out := run(t, c, "--partition="+ProbePartition, "--wrap", "env")
		if job["NodeList"] != "cpu1" {
			t.Errorf("ran on %s", job["NodeList"])
		}
		if strings.Contains(out, "GRESIZE_TEST_VALUE") {
			t.Errorf("a job without a GPU was given one:\n%s", out)
		}
	})
	t.Run("no GPU asked for on a GPU node", func(t *testing.T) {
		if _, out := run(t, c, "--wrap", "env"); strings.Contains(out, "GRESIZE_TEST_VALUE") {
			t.Errorf("a job without a GPU was given one:\n%s", out)
		}
	})
	t.Run("impossible request", func(t *testing.T) {
		if id, err := c.Sbatch(t.Context(), DefaultUser, "--gres=gpu:rtx3060:2", "--wrap", "true"); err == nil {
			t.Errorf("job %s was accepted", id)
		}
	})
	t.Run("failed job", func(t *testing.T) {
		id, err := c.Sbatch(t.Context(), DefaultUser, "--output=/dev/null", "--wrap", "exit 3")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.WaitJob(t.Context(), id, "COMPLETED", jobLimit); err == nil || !strings.Contains(err.Error(), "FAILED") {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("controller restart keeps jobs", func(t *testing.T) { restart(t, c) })
}

// restart ends slurmctld in order and by force, with one job running and one held.
func restart(t *testing.T, c *Cluster) {
	ctx := t.Context()
	running, err := c.Sbatch(ctx, DefaultUser, "--output=/dev/null", "--wrap", "sleep 600")
	if err != nil {
		t.Fatal(err)
	}
	held, err := c.Sbatch(ctx, DefaultUser, "--output=/dev/null", "--begin=now+1hour", "--gres=gpu:1", "--wrap", "true")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.WaitJob(ctx, running, "RUNNING", jobLimit); err != nil {
		t.Fatal(err)
	}
	before := c.ControllerPID()
	if err := c.RestartController(ctx); err != nil {
		t.Fatal(err)
	}
	if after := c.ControllerPID(); after == 0 || after == before {
		t.Fatalf("slurmctld had id %d and now has %d", before, after)
	}
	if err := c.KillController(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, err := c.Job(short, held); err == nil {
		t.Fatal("a killed slurmctld answers")
	}
	if err := c.StartController(); err != nil {
		t.Fatal(err)
	}
	if job, err := c.WaitJob(ctx, running, "RUNNING", jobLimit); err != nil {
		t.Error(err)
	} else if job["Restarts"] != "0" {
		t.Errorf("the running job was started again: %v", job)
	}
	if _, err := c.WaitJob(ctx, held, "PENDING", jobLimit); err != nil {
		t.Error(err)
	}
	if _, err := c.Run(ctx, DefaultUser, "scontrol", "update", "JobId="+held, "StartTime=now"); err != nil {
		t.Error(err)
	}
	if _, err := c.WaitJob(ctx, held, "COMPLETED", jobLimit); err != nil {
		t.Error(err)
	}
	if _, err := c.Run(ctx, DefaultUser, "scancel", running); err != nil {
		t.Error(err)
	}
	if _, err := c.WaitJob(ctx, running, "CANCELLED", jobLimit); err != nil {
		t.Error(err)
	}
}

func TestTwoAtOnceAndStopLeavesNothing(t *testing.T) {
	small := Options{Nodes: []Node{{Name: "n1", CPUs: 2, RealMemoryMiB: 4096}}}
	first, second := ForTest(t, small), ForTest(t, small)
	ctx := t.Context()
	var dirs []string
	for _, c := range []*Cluster{first, second} {
		// The job does what it can to get away: a session of its own, an empty environment, no file of the cluster.
		id, err := c.Sbatch(ctx, DefaultUser, "--output=/dev/null", "--wrap", "cd /; env -i setsid sleep 601 & sleep 602")
		if err != nil {
			t.Fatal(err)
		}
		if id != "1" {
			t.Errorf("the first job of a fresh cluster is %s", id)
		}
		if _, err := c.WaitJob(ctx, id, "RUNNING", jobLimit); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, c.Dir())
	}
	// Slurm calls a job running a moment before its shell is there.
	for until := time.Now().Add(10 * time.Second); len(clusterProcesses(second.Dir())) < 5 && time.Now().Before(until); {
		time.Sleep(50 * time.Millisecond)
	}
	if n := len(clusterProcesses(second.Dir())); n < 5 {
		t.Errorf("%d processes found, there are at least munged, slurmctld, slurmd, a slurmstepd and the job's shell", n)
	}
	first.Stop()
	first.Stop()
	if left := clusterProcesses(dirs[0]); len(left) > 0 {
		t.Errorf("left after Stop: %v", left)
	}
	if _, err := os.Stat(dirs[0]); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
	if _, err := second.WaitJob(ctx, "1", "RUNNING", jobLimit); err != nil {
		t.Error(err)
	}
	if err := first.StartController(); err == nil {
		t.Error("a stopped cluster started its controller")
	}
	second.Stop()
	if left := clusterProcesses(dirs[1]); len(left) > 0 {
		t.Errorf("left after Stop: %v", left)
	}
	for _, p := range allProcesses() {
		if line, err := os.ReadFile(filepath.Join("/proc", itoa(p.pid), "cmdline")); err == nil &&
			(string(line) == "sleep\x00601\x00" || string(line) == "sleep\x00602\x00") {
			t.Errorf("process %d of a job is left", p.pid)
		}
	}
}

func TestNewClusterClearsAwayACrashedOne(t *testing.T) {
	small := Options{Nodes: []Node{{Name: "n1", CPUs: 1, RealMemoryMiB: 1024}}}
	crashed := ForTest(t, small)
	if _, err := Start(t.Context(), Options{Dir: crashed.Dir(), Nodes: small.Nodes}); err == nil || !strings.Contains(err.Error(), "running") {
		t.Errorf("a second cluster in one folder: %v", err)
	}
	// What the kernel does when a process dies.
	crashed.lock.Close()
	crashed.ports.lock.Close()
	crashed.ports.claim.Close()
	next := ForTest(t, small)
	if _, err := os.Stat(crashed.Dir()); !os.IsNotExist(err) {
		t.Errorf("the crashed cluster's folder is still there: %v", err)
	}
	if left := clusterProcesses(crashed.Dir()); len(left) > 0 {
		t.Errorf("left of the crashed cluster: %v", left)
	}
	if crashed.ControllerPID() != 0 {
		t.Error("slurmctld of the crashed cluster runs")
	}
	if _, err := next.Run(t.Context(), "root", "scontrol", "ping"); err != nil {
		t.Error(err)
	}
}

func TestPrivatePathIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mc")
	_, err := Start(t.Context(), Options{Dir: dir, Nodes: []Node{{Name: "n1", CPUs: 1, RealMemoryMiB: 1}}})
	if err == nil || !strings.Contains(err.Error(), "closed to other users") {
		t.Errorf("err = %v", err)
	}
}
