package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
	"github.com/gresize/gresize/slurm/minicluster"
)

// TestJAXJobGetsASmallerCard submits a job of JAX that asks for 80 GB and needs the smallest card of the site.
func TestJAXJobGetsASmallerCard(t *testing.T) {
	const release = "0.10.2"
	bin := filepath.Join(torchtest.Cache(), "venv-jax-"+release, "bin")
	if _, err := os.Stat(filepath.Join(bin, "python")); err != nil {
		t.Skipf("%v: `tools/setup jax %s` prepares it", err, release)
	}
	s, err := site.Start(t.Context(), site.Options{Build: filepath.Join("..", "build"), Cluster: fourCards(), Hold: 5 * time.Minute, ProbeBudget: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs(60))
		}
		s.Stop()
	})
	if err := s.CopyScripts(filepath.Join("..", "estimator", "vgpu", "testdata", "jax")); err != nil {
		t.Fatal(err)
	}
	dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/bash\n#SBATCH --job-name=jax --gres=gpu:1 --constraint=gpu80g --cpus-per-task=2 --mem=6G --time=15 --output=jax-%j.out\nset -eu\n" +
		"python perceptron.py --width 512 --layers 2 --batch-size 256 --steps 40\necho done\n"
	if err := os.WriteFile(filepath.Join(dir, "jax.sh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	id, _, err := s.Sbatch(t.Context(), bin, nil, "jax.sh")
	if err != nil {
		t.Fatal(err)
	}
	job, err := s.Cluster.WaitJob(t.Context(), id, "COMPLETED", 12*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	story, err := s.Gresize(ctx, "show", "--db", s.LogPath(), id)
	if err != nil {
		t.Fatal(err)
	}
	if job["NodeList"] != "gpu8" || job["Features"] != "gpu8g" || !strings.Contains(story, "share_of_card") {
		t.Errorf("ran on %s, asking for %s:\n%s", job["NodeList"], job["Features"], story)
	}
	if out := jobOutput(t, s, "jax-"+id+".out"); !strings.Contains(out, "done") { // on the CPU: JAX finds a card by its device file, and a node of the mini-cluster has none
		t.Errorf("the job did not come to its end:\n%s", out)
	}
}
