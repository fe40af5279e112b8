// Command demo shows the main job: a real three-node Slurm on this machine,
// gresized, and four unmodified training scripts submitted with sbatch, whose
// requests are rewritten or left alone. It prints each request before and
// after, where the job ran to its end, and the decision log. Run it by `make demo`.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/slurm/minicluster"
)

// jobTimeout is far above what a job of the demo takes, hold included.
const jobTimeout = 6 * time.Minute

func main() { site.Guided("demo", demo) }

// job is one of the examples and what the demo says of it.
type job struct {
	name, why string
	id        string
	before    minicluster.Job
	after     minicluster.Job
}

func demo(ctx context.Context, g *site.Guide) error {
	begin := time.Now()
	fmt.Println("Starting a Slurm of three nodes on this machine: cpu1 (no GPU), gpu1 (RTX 3060, 12 GB), gpu2 (A100, 80 GB); gresized in enforce mode.\nNo GPU is used: both cards are virtual. Slurm, gresize, PyTorch and its memory allocator are real.")
	s, err := g.Start(ctx, site.Options{})
	if err != nil {
		return err
	}
	out, err := s.Cluster.Run(ctx, minicluster.DefaultUser, "sinfo", "-N", "-o", "%8N %10P %8T %20G %f")
	if err != nil {
		return err
	}
	fmt.Println(indent(out))

	jobs := []*job{
		{name: "small", why: "ResNet-50, batch 92"},
		{name: "medium", why: "GPT of 124 M parameters, batch 7 x 1024, bf16"},
		{name: "large", why: "GPT of 774 M parameters, batch 12 x 1024, bf16"},
		{name: "unknown", why: "trains on what it got wrong: memory depends on values"},
	}
	if err := submit(ctx, s, g.Python, jobs); err != nil {
		return err
	}
	for _, j := range jobs {
		if err := follow(ctx, s, j); err != nil {
			return err
		}
	}
	fmt.Println("\nThe decision log (gresize log):")
	text, err := s.Gresize(ctx, "log", "--db", s.LogPath())
	if err != nil {
		return err
	}
	fmt.Println(indent(text))
	fmt.Printf("\nOne job's whole story (gresize show %s):\n", jobs[1].id)
	if text, err = s.Gresize(ctx, "show", "--db", s.LogPath(), jobs[1].id); err != nil {
		return err
	}
	fmt.Println(indent(text))
	if err := check(jobs); err != nil {
		return err
	}
	fmt.Printf("\nDone in %s: two jobs moved to the small card, one kept the large one that it needs, one was left alone.\n", time.Since(begin).Round(time.Second))
	return nil
}

// submit copies the examples to the user's folder and runs a plain sbatch in it for each.
func submit(ctx context.Context, s *site.Site, python string, jobs []*job) error {
	if err := s.CopyScripts("examples"); err != nil {
		return err
	}
	fmt.Println("Four jobs, each asks for one 80 GB card:")
	for _, j := range jobs {
		id, printed, err := s.Sbatch(ctx, python, nil, j.name+".sh")
		if err != nil {
			return err
		}
		j.id = id
		if j.before, err = s.Cluster.Job(ctx, j.id); err != nil {
			return err
		}
		fmt.Printf("  $ sbatch %-11s %-38s # %s\n", j.name+".sh", printed, j.why)
	}
	fmt.Println()
	return nil
}

// follow waits for the job's end and prints the request before and after.
func follow(ctx context.Context, s *site.Site, j *job) error {
	var err error
	if j.after, err = s.Cluster.WaitJob(ctx, j.id, "COMPLETED", jobTimeout); err != nil {
		return err
	}
	fmt.Printf("%-8s job %s: asked %s; ran with %s on %s: %s, %s\n", j.name, j.id, asked(j.before), asked(j.after), j.after["NodeList"], j.after["JobState"], j.after["RunTime"])
	out, err := s.Output(j.name + "-" + j.id + ".out")
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	fmt.Printf("         its output: %s … %s\n", lines[0], lines[len(lines)-1])
	return nil
}

func asked(j minicluster.Job) string {
	return strings.TrimPrefix(j["TresPerNode"], "gres:") + " " + j["Features"]
}

// check holds the demo to its word.
func check(jobs []*job) error {
	nodes := map[string]string{"small": "gpu1", "medium": "gpu1", "large": "gpu2", "unknown": "gpu2"}
	var errs []error
	for _, j := range jobs {
		if got := j.after["NodeList"]; got != nodes[j.name] {
			errs = append(errs, fmt.Errorf("%s ran on %s, not on %s", j.name, got, nodes[j.name]))
		}
	}
	return errors.Join(errs...)
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}
