package minicluster

import (
	"os"
	"strings"
	"testing"
)

// TestOtherReleases runs jobs on the releases of Slurm that tools/setup puts into folders, and looks for anything that is left of them.
func TestOtherReleases(t *testing.T) {
	for _, release := range Releases() {
		t.Run(release, func(t *testing.T) {
			options := Default()
			options.Root = RootForTest(t, release)
			options.Nodes[2].Counted = []string{"vram:80"}
			c := ForTest(t, withGPU(options))
			if v := c.Version().String(); !strings.HasPrefix(v, release+".") {
				t.Errorf("slurmctld is %s", v)
			}
			job, out := run(t, c, "--gpus=a100:1", "--gres=vram:40", "--wrap", "id -un; pwd; env; srun sh -c 'echo step on $SLURMD_NODENAME'")
			if job["NodeList"] != "gpu2" {
				t.Errorf("ran on %s", job["NodeList"])
			}
			dir, err := c.WorkDir(DefaultUser)
			if err != nil {
				t.Fatal(err)
			}
			wantLines(t, out, DefaultUser, dir, "step on gpu2", "CUDA_VISIBLE_DEVICES=0", "GRESIZE_TEST_VALUE=it's $HOME of gpu2")
			restart(t, c)
			c.Stop()
			if left := clusterProcesses(c.Dir()); len(left) > 0 {
				t.Errorf("left after Stop: %v", left)
			}
			// Other tests mount and unmount meanwhile.
			if now, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(now), c.Dir()) || strings.Contains(string(now), options.Root) {
				t.Errorf("mounts are left: %v\n%s", err, now)
			}
		})
	}
}
