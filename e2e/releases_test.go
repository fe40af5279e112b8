package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
)

// TestTypesAndShards is a site whose table has types and shards, on a release that can change them: the whole way from sbatch through the plugin, the
// daemon and a probe to the job on another card, with an srun in the job that takes what it has.
func TestTypesAndShards(t *testing.T) {
	t.Parallel()
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		return // the parts are tested with every change: the rewrites on 24.11 and the daemon without Slurm
	}
	build, err := buildFake()
	must(t, err)
	root := minicluster.RootDir("24.11")
	plugin := t.TempDir()
	if out, err := exec.Command("make", "-s", "-C", "../slurm/plugin", "OUT="+plugin, "SLURM_INCLUDE="+filepath.Join(root, "usr", "include")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cluster := minicluster.Default()
	cluster.Root, cluster.Plugin = root, filepath.Join(plugin, "job_submit_gresize.so")
	for i := range cluster.Nodes {
		cluster.Nodes[i].Features = nil
	}
	started, err := site.Start(t.Context(), site.Options{Build: build, Cluster: cluster, Mode: "enforce", Hold: time.Minute, Config: `
[policy]
watch = "15s"

[[target]]
fits = "12000MiB"
gres = "gpu:rtx3060:1"

[[target]]
fits = "80000MiB"
gres = "gpu:a100:1"
`})
	must(t, err)
	s := &fakeSite{Site: started, t: t, hold: time.Minute}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(started.Logs(60))
		}
		started.Stop()
	})
	s.answer(says(t, 7, estimator.Exact))
	for _, args := range [][]string{{"--gpus=a100:1"}, {"--gres=gpu:a100:1"}, {"--gpus-per-node=a100:1"}, {"--ntasks=1", "--gpus-per-task=a100:1"}} {
		id := s.submit(args...)
		job := s.completed(id, 90*time.Second)
		story := s.finished(id, 30*time.Second)
		if story.Job.State != jobs.StateVerified || len(story.Decisions) != 1 || story.Decisions[0].Code != "smaller_row_fits" || job["NodeList"] != "gpu1" {
			t.Errorf("%v: %q with %+v, ran on %s", args, states(story), story.Decisions, job["NodeList"])
		}
	}
}
