package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/release"
)

// TestTypesAndShards is a site whose table has types and shards, on a release that can change them: the whole way from sbatch through the plugin, the
// daemon and a probe to the job on another card, with an srun in the job that takes what it has.
func TestTypesAndShards(t *testing.T) {
	t.Parallel()
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: the parts are tested with every change: the rewrites and the daemon without Slurm")
	}
	for _, name := range minicluster.Releases() {
		t.Run(name, func(t *testing.T) { typesAndShards(t, name) })
	}
}

func typesAndShards(t *testing.T, name string) {
	minicluster.NeedsRelease(t, name, release.ReplacesGres)
	s := otherRelease(t, name, false, func(o *site.Options) { o.Config = "[policy]\nwatch = \"15s\"\n" + typeTable })
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

// TestShares is the whole way to shards: from shards, of which fewer suffice, and from a GPU that brings memory and CPUs with it.
func TestShares(t *testing.T) {
	t.Parallel()
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: the parts are tested with every change: the rewrites and the daemon without Slurm")
	}
	for _, name := range minicluster.Releases() {
		t.Run(name, func(t *testing.T) { shares(t, name) })
	}
}

func shares(t *testing.T, name string) {
	minicluster.NeedsRelease(t, name, release.ReplacesGres)
	s := otherRelease(t, name, false, func(o *site.Options) {
		o.Config = "[policy]\nwatch = \"15s\"\n\n[shard]\nper = \"1GiB\"\nmax = 80\n\n[[target]]\nfits = \"80000MiB\"\ngres = \"gpu:a100:1\"\n"
	})
	s.answer(says(t, 7, estimator.Exact))
	gres := s.Cluster.Version().Prefix()
	dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "share.sh"), []byte("#!/bin/sh\nsrun sh -c 'echo step ok, CPUs $SLURM_CPUS_ON_NODE, tasks $SLURM_STEP_NUM_TASKS' && sleep 1\n"), 0o644))
	for _, c := range []struct {
		args []string
		want map[string]string
	}{
		{[]string{"--gres=shard:40", "--mem=200M"}, map[string]string{"TresPerNode": gres + "shard:9"}},
		{[]string{"--gpus=1", "--mem-per-gpu=200M", "--cpus-per-gpu=2"}, map[string]string{"TresPerNode": gres + "shard:9", "TresPerJob": "", "MinMemoryNode": "200M", "MinCPUsNode": "2", "NumCPUs": "2", "MemPerTres": "", "CpusPerTres": ""}},
	} {
		id, err := s.Cluster.Sbatch(t.Context(), minicluster.DefaultUser, append(append([]string{"--time=5", "--output=share-%j"}, c.args...), "share.sh")...)
		must(t, err)
		job := s.completed(id, 90*time.Second)
		story := s.finished(id, 30*time.Second)
		if story.Job.State != jobs.StateVerified || len(story.Decisions) != 1 {
			t.Errorf("%v: %q with %+v", c.args, states(story), story.Decisions)
		}
		for key, want := range c.want {
			if job[key] != want {
				t.Errorf("%v: %s=%s, want %q", c.args, key, job[key], want)
			}
		}
		// An srun in the job has what it has in the job as its owner wrote it.
		asked, err := s.Cluster.Sbatch(t.Context(), minicluster.DefaultUser, append(append([]string{"--time=5", "--output=share-%j", "--comment=gresize:off"}, c.args...), "share.sh")...)
		must(t, err)
		s.completed(asked, 60*time.Second)
		if got, want := stepLine(t, filepath.Join(dir, "share-"+id)), stepLine(t, filepath.Join(dir, "share-"+asked)); got != want || got == "" {
			t.Errorf("%v: an srun in the job says %q, and %q in one that is left alone", c.args, got, want)
		}
		t.Logf("%v: %s; %v", c.args, story.Decisions[0].Reason, story.Events[0].Detail)
	}
}

// stepLine is what the srun of share.sh has printed.
func stepLine(t *testing.T, path string) string {
	t.Helper()
	out, err := os.ReadFile(path)
	must(t, err)
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "step ok") {
			return line
		}
	}
	return ""
}

// TestOldestRelease is the whole way on 20.11: submit, probe, rewrite, run; what that release cannot change is left alone, and what it cannot run is taken back.
func TestOldestRelease(t *testing.T) {
	t.Parallel()
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: Debian 11 leaves the mirrors: its release must not stop the test of a change")
	}
	s := otherRelease(t, "20.11", true, func(o *site.Options) {
		for i := range o.Cluster.Nodes {
			if o.Cluster.Nodes[i].Name == "gpu1" {
				o.Cluster.Nodes[i].RealMemoryMiB = smallNodeMiB
			}
		}
		o.Config = "[policy]\nwatch = \"15s\"\n"
	})
	s.answer(says(t, 7, estimator.Exact))
	for _, c := range []struct {
		args              []string
		state, code, node string
	}{
		{tooLarge, jobs.StateVerified, "smaller_row_fits", "gpu1"},
		{[]string{"--gres=gpu:1"}, jobs.StateVerified, "row_chosen", "gpu1"},
		{[]string{"--gpus=1", "--constraint=gpu80g"}, jobs.StateVerified, "smaller_row_fits", "gpu1"},
		{[]string{"--gpus-per-node=1", "--constraint=gpu80g"}, jobs.StateVerified, "smaller_row_fits", "gpu1"},
		{[]string{"--ntasks=1", "--gpus-per-task=1", "--constraint=gpu80g"}, jobs.StateVerified, "smaller_row_fits", "gpu1"},
		{[]string{"--gres=gpu:a100:1"}, jobs.StateReleased, "already_smallest", "gpu2"},
		{impossible, jobs.StateRestored, "smaller_row_fits", "gpu2"},
	} {
		id := s.submit(c.args...)
		job := s.completed(id, 90*time.Second)
		story := s.finished(id, 30*time.Second)
		if story.Job.State != c.state || len(story.Decisions) != 1 || story.Decisions[0].Code != c.code || job["NodeList"] != c.node {
			t.Errorf("%v: %q with %+v, ran on %s", c.args, states(story), story.Decisions, job["NodeList"])
		}
		if story.Job.SlurmVersion != s.Cluster.Version().String() {
			t.Errorf("recorded for Slurm %s, the cluster is %s", story.Job.SlurmVersion, s.Cluster.Version())
		}
	}
}
