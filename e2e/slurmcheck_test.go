package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/slurm/minicluster"
)

// inRoot runs a program of a folder in another root, which sees the folder as /tmp.
const inRoot = `
root=$1 dir=$2
shift 2
mount --bind "$dir" "$root/tmp"
exec chroot "$root" "$@"
`

// TestSlurmCheck asks `gresize slurm check` of each release about the plugin of each: it takes its own and refuses the others.
func TestSlurmCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	build := exec.Command("go", "build", "-tags", "osusergo netgo", "-ldflags", "-extldflags=-static", "-o", filepath.Join(dir, "gresize"), "./cmd/gresize")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var here []string
	for _, release := range minicluster.KnownReleases() {
		t.Run("plugin "+release, func(t *testing.T) {
			root := minicluster.RootForTest(t, release)
			if out, err := exec.Command("make", "-s", "-C", "../slurm/plugin", "OUT="+filepath.Join(dir, release), minicluster.IncludeArgument(root)).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			here = append(here, release)
		})
	}
	for _, controller := range minicluster.Releases() {
		if !slices.Contains(here, controller) {
			continue // said above
		}
		t.Run("slurmctld "+controller, func(t *testing.T) {
			for _, plugin := range here {
				out, err := exec.Command("unshare", "--mount", "--propagation", "private", "--", "sh", "-euc", inRoot, "in-root", minicluster.RootDir(controller), dir,
					"/tmp/gresize", "slurm", "check", "--conf=", "/tmp/"+plugin+"/job_submit_gresize.so").CombinedOutput()
				if taken, want := err == nil, plugin == controller; taken != want || !taken && !strings.Contains(string(out), "would not start with it") {
					t.Errorf("the plugin for %s: %v\n%s", plugin, err, out)
				}
			}
		})
	}
}
