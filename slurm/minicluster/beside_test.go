package minicluster

import (
	"strings"
	"testing"

	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/release"
)

// TestCommandsOfAnotherRelease asks each slurmctld with the commands of each other release, as in the middle of an upgrade: release.Beside says which it answers, and what it answers
// is read whole.
func TestCommandsOfAnotherRelease(t *testing.T) {
	for _, name := range Releases() {
		t.Run("slurmctld "+name, func(t *testing.T) {
			options := Default()
			options.Root = RootForTest(t, name)
			c := ForTest(t, options)
			id, err := c.Sbatch(t.Context(), DefaultUser, "--begin=now+1hour", "--gres=gpu:1", "--wrap", "true")
			if err != nil {
				t.Fatal(err)
			}
			for _, commands := range KnownReleases() {
				t.Run("commands "+commands, func(t *testing.T) { askedFrom(t, c, RootForTest(t, commands), id) })
			}
		})
	}
}

func askedFrom(t *testing.T, c *Cluster, root, id string) {
	other, err := c.Beside(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	why := release.Beside(other.Version(), c.Version())
	refused := strings.Contains(why, "refuses them")
	out, err := other.Run(t.Context(), "root", "squeue", client.QueueArguments()...)
	if (err != nil) != refused {
		t.Fatalf("%q, and squeue of %s on slurmctld %s: %v", why, other.Version(), c.Version(), err)
	}
	if refused {
		t.Logf("refused: %v", err)
		return
	}
	seen := 0
	if err := client.ReadQueue(strings.NewReader(out), func(j client.Job) {
		if seen++; j.Request.TresPerNode != c.Version().Prefix()+"gpu:1" {
			t.Errorf("%+v", j)
		}
	}); err != nil || seen != 1 {
		t.Errorf("%d jobs, %v:\n%s", seen, err, out)
	}
	// The words of an update are slurmctld's own, whatever the release of scontrol.
	want := c.Version().Prefix() + "gpu:2"
	if _, err := other.Run(t.Context(), "root", "scontrol", "update", "JobId="+id, "TresPerNode="+want); err != nil {
		t.Fatal(err)
	}
	if job, err := c.Job(t.Context(), id); err != nil || job["TresPerNode"] != want {
		t.Errorf("%v, %v", job["TresPerNode"], err)
	}
	if _, err := other.Run(t.Context(), "root", "scontrol", "update", "JobId="+id, "TresPerNode="+c.Version().Prefix()+"gpu:1"); err != nil {
		t.Fatal(err)
	}
}
