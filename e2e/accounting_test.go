package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/release"
)

// typeTable is a site's table of GPU types, for the cluster of minicluster.Default.
const typeTable = `
[[target]]
fits = "12000MiB"
gres = "gpu:rtx3060:1"

[[target]]
fits = "80000MiB"
gres = "gpu:a100:1"
`

// otherRelease is a site on a release of Slurm that tools/setup has put into a folder, with no feature on any node unless they are kept.
func otherRelease(t *testing.T, release string, keepFeatures bool, change func(*site.Options)) *fakeSite {
	t.Helper()
	build, err := buildFake()
	must(t, err)
	cluster := minicluster.Default()
	cluster.Root = minicluster.RootForTest(t, release)
	// Another process that made the folder made the plugin, too.
	plugins := filepath.Join(build, "plugin", release)
	if os.Getenv(builtVariable) == "" {
		plugins = t.TempDir()
		buildPlugin(t, plugins, cluster.Root)
	}
	cluster.Plugin = filepath.Join(plugins, "job_submit_gresize.so")
	for i := range cluster.Nodes {
		if !keepFeatures {
			cluster.Nodes[i].Features = nil
		}
	}
	options := site.Options{Build: build, Cluster: cluster, Mode: "enforce", Hold: time.Minute}
	change(&options)
	return started(t, options)
}

// buildPlugin builds the plugin for the release in a root.
func buildPlugin(t *testing.T, dir, root string) {
	t.Helper()
	if out, err := exec.Command("make", "-s", "-C", "../slurm/plugin", "OUT="+dir, minicluster.IncludeArgument(root)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// takesMemory holds 60 MB of host memory for some samples of jobacct_gather.
const takesMemory = `#!/bin/sh
srun true
dd if=/dev/zero bs=60M count=1 2>/dev/null | (sleep 4; cat >/dev/null)
`

// TestSlurmAccounting is a site with slurmdbd: what a job took comes from a real sacct, and a change that a limit of the accounting forbids is taken back.
func TestSlurmAccounting(t *testing.T) {
	t.Parallel()
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: the parts are tested with every change: the reading of sacct, and what a limit means for a change")
	}
	for _, name := range minicluster.Releases() {
		t.Run(name, func(t *testing.T) { slurmAccounting(t, name) })
	}
}

func slurmAccounting(t *testing.T, name string) {
	// Where a type cannot be changed the nodes keep their features, which can.
	v, err := release.Parse(name + ".99") // the last of its micro releases
	must(t, err)
	typed, asks, table := release.ReplacesGres.In(v), tooLarge, ""
	if typed {
		asks, table = []string{"--gpus=a100:1"}, typeTable
	}
	s := otherRelease(t, name, !typed, func(o *site.Options) {
		o.Cluster.Accounting = true
		var err error
		o.Cluster.GPUPlugin, err = minicluster.BuildGPUPlugin(t.Context(), o.Cluster.Root, filepath.Join("..", "slurm", "minicluster", "gpumem"), t.TempDir())
		must(t, err)
		o.Config = "[policy]\nwatch = \"15s\"\nmax_wait = \"12s\"\n" + table
	})
	s.answer(says(t, 7, estimator.Exact))

	// accounted is what sacct said of a job.
	accounted := func(t *testing.T, script string) decisionlog.Actual {
		t.Helper()
		s := s.in(t)
		id := s.submitScript("memory.sh", script, asks...)
		if job := s.completed(id, 90*time.Second); job["NodeList"] != "gpu1" {
			t.Errorf("it ran on %s", job["NodeList"])
		}
		var told []decisionlog.Actual
		waitUntil(t, 60*time.Second, "sacct's word on the job", func() bool {
			story, err := s.story(id)
			told = nil
			for _, a := range story.Actuals {
				if a.Source == decisionlog.SacctGPUMem {
					told = append(told, a)
				}
			}
			return err == nil && len(told) > 0
		})
		return told[0]
	}

	t.Run("the GPU memory that Slurm gathers", func(t *testing.T) {
		minicluster.NeedsRelease(t, name, release.GPUMemory)
		const held = 7400 << 20
		a := accounted(t, fmt.Sprintf("#!/bin/sh\nGRESIZE_TEST_GPUMEM=%d sleep 4\n", held))
		if a.Outcome != decisionlog.Completed || !a.AfterRewrite || a.PeakBytes != held || a.Detail != "" {
			t.Errorf("%+v", a)
		}
		log, err := decisionlog.OpenReadOnly(t.Context(), s.LogPath())
		must(t, err)
		defer log.Close()
		measured, err := log.Measured(t.Context(), 0, 10)
		if err != nil || len(measured) != 1 || measured[0].PeakBytes != held || measured[0].GPU != "rtx3060" {
			t.Errorf("%+v %v", measured, err)
		}
	})

	t.Run("what sacct says", func(t *testing.T) {
		a := accounted(t, takesMemory)
		if a.Outcome != decisionlog.Completed || !a.AfterRewrite || a.ExitCode == nil || *a.ExitCode != 0 || a.ElapsedGPUSeconds == nil || *a.ElapsedGPUSeconds < 3 {
			t.Errorf("%+v", a)
		}
		if a.HostPeakBytes < 60<<20 || a.HostPeakBytes > 120<<20 {
			t.Errorf("%d bytes of host memory, the job took 60 MiB and a shell", a.HostPeakBytes)
		}
		if a.PeakBytes != 0 || a.Detail != "Slurm reported no GPU memory" {
			t.Errorf("a peak that nobody measured: %+v", a)
		}
		t.Logf("%.1f MiB of host memory, %d GPU-seconds", float64(a.HostPeakBytes)/(1<<20), *a.ElapsedGPUSeconds)
	})

	for _, c := range []struct {
		name, limit, code string
	}{
		{"a limit on one job", "MaxTRESPerJob=gres/gpu:rtx3060=0", "limit_forbids"},
		{"a limit that jobs share", "GrpTRES=gres/gpu:rtx3060=0", "waited_too_long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			minicluster.NeedsRelease(t, name, release.ReplacesGres) // a limit on a type does not see a GPU without one
			s := s.in(t)
			key, _, _ := strings.Cut(c.limit, "=")
			if _, err := s.Cluster.Sacctmgr(t.Context(), "modify", "user", minicluster.DefaultUser, "set", c.limit); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if _, err := s.Cluster.Sacctmgr(t.Context(), "modify", "user", minicluster.DefaultUser, "set", key+"=gres/gpu:rtx3060=-1"); err != nil {
					t.Error(err)
				}
			}()
			id := s.submitScript("limited.sh", "#!/bin/sh\n# "+c.name+"\nsrun true\n", "--gpus=a100:1")
			job := s.completed(id, 120*time.Second)
			story := s.finished(id, 30*time.Second)
			last := story.Events[len(story.Events)-1]
			if job["NodeList"] != "gpu2" || last.State != jobs.StateRestored || last.Code != c.code {
				t.Errorf("on %s; %q: %s %s", job["NodeList"], states(story), last.Code, last.Detail)
			}
			for _, e := range story.Events {
				t.Logf("%s %s %s", e.State, e.Code, e.Detail)
			}
		})
	}
}
