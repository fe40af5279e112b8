package plugintest

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/wire"
)

// TestOtherReleases builds the plugin for the releases of Slurm that tools/setup puts into folders, and submits to the slurmctld of each.
func TestOtherReleases(t *testing.T) {
	for _, release := range minicluster.Releases() {
		t.Run(release, func(t *testing.T) {
			root := minicluster.RootForTest(t, release)
			plugin := buildFor(t, root)
			checkSymbols(t, plugin, slurmLibrary(t, root))
			c, peer := realSlurm(t, plugin, root)
			if v := c.Version().String(); !strings.HasPrefix(v, release+".") || v != stampOf(t, root) {
				t.Errorf("slurmctld is %s, the plugin is stamped for %s", v, stampOf(t, root))
			}
			submitEverything(t, c, peer)
			t.Run("many at once", func(t *testing.T) { submitAtOnce(t, c, peer) })
		})
	}
}

// submitAtOnce submits from many clients at the same time: from 23.02 on slurmctld calls the plugin from as many threads. A busy machine may make some
// answers late, and such a job passes unchanged; none is lost, and no token is given to two.
func submitAtOnce(t *testing.T, c *minicluster.Cluster, peer *moodyDaemon) {
	const many = 24
	var tokens atomic.Int32
	peer.behave(func(connection net.Conn, _ *wire.Request) {
		_ = wire.WriteReply(connection, &wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 300, Token: fmt.Sprintf("many-%d", tokens.Add(1))})
	})
	var wait sync.WaitGroup
	ids := make([]string, many)
	for i := range many {
		wait.Go(func() {
			var err error
			if ids[i], err = c.Sbatch(t.Context(), minicluster.DefaultUser, "--gres=gpu:1", "--begin=now+1hour", "--output=/dev/null", "--wrap", "true"); err != nil {
				t.Errorf("submission %d: %v", i, err)
			}
		})
	}
	wait.Wait()
	seen, stamped := map[string]bool{}, 0
	for _, id := range ids {
		job, err := c.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		switch mark := job["AdminComment"]; {
		case mark == "":
		case seen[mark] || !strings.HasPrefix(mark, wire.TokenPrefix+"many-"):
			t.Errorf("job %s has the mark %q", id, mark)
		default:
			seen[mark] = true
			stamped++
		}
	}
	t.Logf("%d of %d stamped", stamped, many)
	if stamped < many/2 {
		t.Errorf("only %d of %d jobs were stamped", stamped, many)
	}
}

// buildFor builds the plugin with the headers of another root.
func buildFor(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("make", "-s", "-C", "..", "OUT="+dir, minicluster.IncludeArgument(root)).CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	return filepath.Join(dir, "job_submit_gresize.so")
}

func stampOf(t *testing.T, root string) string {
	t.Helper()
	out, err := exec.Command("make", "-s", "-C", "..", "release", minicluster.IncludeArgument(root)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
