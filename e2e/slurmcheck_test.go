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

// buildGresize puts the command-line tool into a folder, for the root of any Debian.
func buildGresize(t *testing.T, dir string) {
	t.Helper()
	build := exec.Command("go", "build", "-tags", "osusergo netgo", "-ldflags", "-extldflags=-static", "-o", filepath.Join(dir, "gresize"), "./cmd/gresize")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestSlurmCheck asks `gresize slurm check` of each release about the plugin of each: it takes its own and refuses the others.
func TestSlurmCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	buildGresize(t, dir)
	var here []string
	for _, release := range minicluster.KnownReleases() {
		t.Run("plugin "+release, func(t *testing.T) {
			root := minicluster.RootForTest(t, release)
			buildPlugin(t, filepath.Join(dir, release), root)
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

// TestSlurmCheckOfRunningDaemons asks it beside the slurmctld, slurmdbd and slurmds of each release, with the slurm.conf and the plugin that they have: all that it looks at is well. While
// slurmctld is away it says what it could not try, and that is no refusal.
func TestSlurmCheckOfRunningDaemons(t *testing.T) {
	t.Parallel()
	tool := t.TempDir()
	buildGresize(t, tool)
	for _, name := range minicluster.Releases() {
		t.Run(name, func(t *testing.T) {
			options := minicluster.Default()
			options.Root, options.Accounting = minicluster.RootForTest(t, name), true
			plugin := t.TempDir()
			buildPlugin(t, plugin, options.Root)
			options.Plugin = filepath.Join(plugin, "job_submit_gresize.so")
			c := minicluster.ForTest(t, options)
			program, err := c.Install(filepath.Join(tool, "gresize"))
			must(t, err)
			says := func(wanted ...string) {
				t.Helper()
				out, err := c.Run(t.Context(), "root", program, "slurm", "check", c.PluginPath())
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				for _, want := range wanted {
					if !strings.Contains(out, want) {
						t.Errorf("it does not say %q:\n%s", want, out)
					}
				}
				if strings.Contains(wanted[0], "squeue prints") && strings.Contains(out, "note") {
					t.Errorf("something is not well:\n%s", out)
				}
				t.Logf("%s", out)
			}
			says("squeue prints all that gresized reads", "sacct knows all that gresized asks it for", "is of the same release", "names gresize, as the last")
			must(t, c.KillController())
			says("no slurmctld answers")
		})
	}
}
