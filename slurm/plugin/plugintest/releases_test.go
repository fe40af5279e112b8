package plugintest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/slurm/minicluster"
)

// TestOtherReleases builds the plugin for the releases of Slurm that tools/setup puts into folders, and submits to the slurmctld of each. In
// the tests of every change that is the newest only.
func TestOtherReleases(t *testing.T) {
	releases := []string{"24.11"}
	if os.Getenv("GRESIZE_NIGHTLY") != "" {
		releases = append(releases, "20.11")
	}
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			root := minicluster.RootDir(release)
			plugin := buildFor(t, root)
			checkSymbols(t, plugin, slurmLibrary(t, root))
			c, peer := realSlurm(t, plugin, root)
			if v := c.Version().String(); !strings.HasPrefix(v, release+".") || v != stampOf(t, root) {
				t.Errorf("slurmctld is %s, the plugin is stamped for %s", v, stampOf(t, root))
			}
			submitEverything(t, c, peer)
		})
	}
}

func includeOf(root string) string { return "SLURM_INCLUDE=" + filepath.Join(root, "usr", "include") }

// buildFor builds the plugin with the headers of another root.
func buildFor(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("make", "-s", "-C", "..", "OUT="+dir, includeOf(root)).CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	return filepath.Join(dir, "job_submit_gresize.so")
}

func stampOf(t *testing.T, root string) string {
	t.Helper()
	out, err := exec.Command("make", "-s", "-C", "..", "release", includeOf(root)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
