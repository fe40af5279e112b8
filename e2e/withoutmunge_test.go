package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/release"
)

// TestReportsWithoutMunge is a cluster whose Slurm does without munge: Epilogs prove by Slurm's own key who they are, and nobody else can.
func TestReportsWithoutMunge(t *testing.T) {
	t.Parallel()
	for _, name := range minicluster.Releases() {
		t.Run(name, func(t *testing.T) {
			minicluster.NeedsRelease(t, name, release.AuthSlurm)
			s := otherRelease(t, name, true, func(o *site.Options) {
				o.Config = "[policy]\nwatch = \"15s\"\n"
				o.Cluster.SlurmAuth = true
			})
			s.answer(says(t, 7, estimator.Exact))
			id := s.submitScript("dies.sh", dies, tooLarge...)
			waitUntil(t, 90*time.Second, "the Epilog's word on a job that died", func() bool {
				story, err := s.story(id)
				return err == nil && slices.ContainsFunc(story.Actuals, func(a decisionlog.Actual) bool {
					return a.Source == decisionlog.EpilogOOM && a.AfterRewrite && strings.Contains(a.Detail, "Tried to allocate 2.00 GiB")
				})
			})
			if said, err := s.EpilogLog(); err != nil || strings.Contains(said, "prove") || strings.Contains(said, "gresized") {
				t.Errorf("gresize-epilog says: %s %v", said, err)
			}

			// A user has neither Slurm's key nor one that is believed, and root without a key is told which to give.
			program, url := s.Epilog()
			dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
			must(t, err)
			own := filepath.Join(dir, "own.key")
			must(t, os.WriteFile(own, []byte(strings.Repeat("k", 1024)), 0o600))
			must(t, os.Chown(own, 1001, 1001))
			for _, c := range []struct{ as, options, want string }{
				{minicluster.DefaultUser, s.Proof(), "permission denied"},
				{"root", "-key " + own, "403 Forbidden"},
				{"root", "", "give -key /etc/slurm/slurm.key"},
			} {
				cmd, err := s.Cluster.Command(t.Context(), c.as, "sh", "-c", "SLURM_JOB_ID=1 SLURM_JOB_UID=1001 SLURM_JOB_GPUS=0 SLURMD_NODENAME=gpu1 "+program+" -url "+url+" -folder "+dir+"/epilog "+c.options)
				must(t, err)
				if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), c.want) {
					t.Errorf("%s with %q: %v\n%s\nwant %q", c.as, c.options, err, out, c.want)
				}
			}
		})
	}
}
