package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
	"github.com/gresize/gresize/slurm/minicluster"
)

// fourCards is a site with four sizes of card, so that the next smaller one than the right one exists.
func fourCards() minicluster.Options {
	node := func(name, model, gpuType, feature string) minicluster.Node {
		return minicluster.Node{Name: name, CPUs: 8, RealMemoryMiB: 64 << 10, GPUModel: model, GPUType: gpuType, GPUs: 1, Features: []string{feature}}
	}
	return minicluster.Options{Nodes: []minicluster.Node{
		{Name: "cpu1", CPUs: 8, RealMemoryMiB: 64 << 10},
		node("gpu8", "rtx4060", "rtx4060", "gpu8g"),
		node("gpu12", "rtx3060", "rtx3060", "gpu12g"),
		node("gpu40", "a100-40", "a100-40", "gpu40g"),
		node("gpu80", "a100-80", "a100-80", "gpu80g"),
	}}
}

// python is that of a user who has activated an environment with PyTorch; tools/setup makes it.
func python(t *testing.T) string {
	t.Helper()
	return filepath.Join(torchtest.Environment(t, "2.6.0"), "bin")
}

// submitExample runs sbatch on a script in the user's folder with the environment that a user would have.
func submitExample(t *testing.T, s *site.Site, env []string, args ...string) string {
	t.Helper()
	id, _, err := s.Sbatch(t.Context(), python(t), env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func jobOutput(t *testing.T, s *site.Site, name string) string {
	t.Helper()
	text, err := s.Output(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestExamplesGetTheCardThatTheyNeed submits the examples unchanged: those that fit a smaller card run to their end on it
// and die of memory on the next smaller one; the one that needs its large card keeps it; the one that cannot be known is
// left alone.
func TestExamplesGetTheCardThatTheyNeed(t *testing.T) {
	s, err := site.Start(t.Context(), site.Options{Build: filepath.Join("..", "build"), Cluster: fourCards(), Hold: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs(60))
		}
		s.Stop()
	})
	copyExamples(t, s)
	dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
	if err != nil {
		t.Fatal(err)
	}
	// Steps of the job: the inner srun reads the environment that sbatch left behind.
	step := "#!/bin/bash\n#SBATCH --gres=gpu:1 --constraint=gpu80g --cpus-per-task=2 --mem=3G --time=15 --output=step-%j.out\nset -eu\nmkdir -p runs/exp1\necho begun > runs/exp1/log\nsrun python train_gpt.py --size 124M --batch-size 7\n"
	if err := os.WriteFile(filepath.Join(dir, "step.sh"), []byte(step), 0o755); err != nil {
		t.Fatal(err)
	}

	cases := []struct{ name, node, tooSmall string }{
		{"small", "gpu12", "gpu8g"},
		{"medium", "gpu12", "gpu8g"},
		{"large", "gpu80", "gpu40g"},
		{"unknown", "gpu80", ""},
		{"step", "gpu12", "gpu8g"},
	}
	ids := map[string]string{}
	for _, c := range cases {
		ids[c.name] = submitExample(t, s, nil, c.name+".sh")
		if c.tooSmall != "" {
			// The owner's own word: this job is not looked at.
			ids[c.name+" too small"] = submitExample(t, s, []string{"GRESIZE=off"}, "--constraint="+c.tooSmall, c.name+".sh")
		}
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			job, err := s.Cluster.WaitJob(t.Context(), ids[c.name], "COMPLETED", 5*time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if job["NodeList"] != c.node {
				t.Errorf("ran on %s, want %s", job["NodeList"], c.node)
			}
			// What the owner had asked for beside the card is in force as it was.
			for field, want := range map[string]string{"TimeLimit": "00:15:00", "MinMemoryNode": "3G", "CPUs/Task": "2", "TresPerNode": "gres:gpu:1"} {
				if job[field] != want {
					t.Errorf("%s is %q, want %q", field, job[field], want)
				}
			}
			if !strings.HasPrefix(job["UserId"], minicluster.DefaultUser+"(") {
				t.Errorf("UserId is %s", job["UserId"])
			}
			out := jobOutput(t, s, fmt.Sprintf("%s-%s.out", c.name, ids[c.name]))
			if !strings.Contains(out, "done: 12 steps") {
				t.Errorf("the job did not train to its end:\n%s", out)
			}
			if c.tooSmall == "" {
				return
			}
			id := ids[c.name+" too small"]
			if _, err := s.Cluster.WaitJob(t.Context(), id, "FAILED", 5*time.Minute); err != nil {
				t.Fatal(err)
			}
			if out := jobOutput(t, s, fmt.Sprintf("%s-%s.out", c.name, id)); !strings.Contains(out, "CUDA out of memory") {
				t.Errorf("on %s the job did not die of memory:\n%s", c.tooSmall, out)
			}
		})
	}
	checkLog(t, s, ids)
	if n := counted(t, s, `gresize_decisions_total\{.*verdict="rewrite"\}`); n < 3 {
		t.Errorf("%d rewrites were counted", n)
	}
	if n := counted(t, s, `gresize_submit_answer_duration_seconds_count\{verdict="hold"\}`); n != len(cases) {
		t.Errorf("%d jobs were held as counted, want %d", n, len(cases))
	}
}

func copyExamples(t *testing.T, s *site.Site) {
	t.Helper()
	if err := s.CopyScripts(filepath.Join("..", "examples")); err != nil {
		t.Fatal(err)
	}
}

// checkLog reads the decisions as an operator would.
func checkLog(t *testing.T, s *site.Site, ids map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := s.Gresize(ctx, "log", "--db", s.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"small": "rewrite", "medium": "rewrite", "large": "keep", "unknown": "leave alone"} {
		row := regexp.MustCompile(`(?m)^.* ` + ids[name] + ` +\S+ +` + name + ` .*$`).FindString(out)
		if !strings.Contains(row, want) {
			t.Errorf("gresize log says of %s: %q, want %q in it; all of it:\n%s", name, row, want, out)
		}
	}
	story, err := s.Gresize(ctx, "show", "--db", s.LogPath(), ids["small"])
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"held", "found", "probing", "reported", "estimated", "tried_on_the_new_card", "decided", "updating", "updated", "verified"} {
		if !strings.Contains(story, word) {
			t.Errorf("gresize show does not tell of %s:\n%s", word, story)
		}
	}
}
