package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
	"github.com/gresize/gresize/slurm/minicluster"
)

const trains = `import torch
net = torch.nn.Linear(512, 512).cuda()
step = torch.optim.Adam(net.parameters())
for _ in range(8):
    net(torch.zeros(64, 512, device="cuda")).sum().backward(); step.step(); step.zero_grad()
`

// TestContainersThroughSlurm is the whole way of a job whose program runs in a container of Apptainer: sbatch, the plugin, the daemon, the probe on a node that has Apptainer, and the job on the small
// card. The nodes are Debian's newest Slurm laid over a Debian with Apptainer.
func TestContainersThroughSlurm(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("a part of make nightly: GRESIZE_NIGHTLY is not set")
	}
	const release = "26.05"
	image, host := filepath.Join(torchtest.Cache(), "container-image"), filepath.Join(torchtest.Cache(), "container-host")
	for _, dir := range []string{image, host} {
		if _, err := os.Stat(dir); err != nil {
			t.Skipf("%v: tools/setup container-host container-image prepares it", err)
		}
	}
	torch := torchtest.Environment(t, "2.6.0")
	over := t.TempDir()
	must(t, syscall.Mount("none", over, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = syscall.Unmount(over, syscall.MNT_DETACH) })
	root := filepath.Join(over, "root")
	for _, dir := range []string{"root", "upper", "work"} {
		must(t, os.Mkdir(filepath.Join(over, dir), 0o755))
	}
	if err := syscall.Mount("none", root, "overlay", 0, fmt.Sprintf("lowerdir=%s:%s,upperdir=%s/upper,workdir=%s/work", minicluster.RootForTest(t, release), host, over, over)); err != nil {
		t.Skipf("no overlay can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(root, syscall.MNT_DETACH) })
	s := otherRelease(t, release, true, func(o *site.Options) {
		o.Build, o.Cluster.Root, o.Cluster.Show = filepath.Join("..", "build"), root, []string{image, torch}
		o.Hold, o.ProbeBudget = 5*time.Minute, 4*time.Minute
	})
	dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "train.py"), []byte(trains), 0o644))
	python := filepath.Join(torch, "bin", "python")
	for name, start := range map[string]string{
		"exec":       "apptainer exec --nv --bind " + torch + " " + image + " " + python + " train.py",
		"under srun": "srun --ntasks=1 apptainer exec --nv --bind " + torch + " " + image + " " + python + " train.py",
	} {
		id, _, err := s.Sbatch(t.Context(), filepath.Dir(python), nil, append(tooLarge, "--wrap", start)...)
		must(t, err)
		story := s.finished(id, 6*time.Minute)
		if len(story.Estimates) == 0 || len(story.Decisions) != 1 || story.Decisions[0].Verdict != decision.Rewrite {
			t.Errorf("%s: %q with %+v and %+v", name, states(story), story.Decisions, story.Estimates)
			continue
		}
		last := story.Estimates[len(story.Estimates)-1]
		t.Logf("%s: %s; %s, from %d steps, %d reasons", name, states(story), last.Confidence, last.Steps, len(last.Reasons))
	}
}
