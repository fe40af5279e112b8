package e2e

import (
	"os"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
)

// TestTypesAndShards is a site whose table has types and shards, on a release that can change them: the whole way from sbatch through the plugin, the
// daemon and a probe to the job on another card, with an srun in the job that takes what it has.
func TestTypesAndShards(t *testing.T) {
	t.Parallel()
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		return // the parts are tested with every change: the rewrites on 24.11 and the daemon without Slurm
	}
	s := otherRelease(t, "24.11", false, func(o *site.Options) { o.Config = "[policy]\nwatch = \"15s\"\n" + typeTable })
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

// TestOldestRelease is the whole way on 20.11: submit, probe, rewrite, run; what that release cannot change is left alone, and what it cannot run is taken back.
func TestOldestRelease(t *testing.T) {
	t.Parallel()
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		return // Debian 11 leaves the mirrors: its release must not stop the test of a change
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
