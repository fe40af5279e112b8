package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/slurm/minicluster"
)

// deepProgram keeps 24 tensors of 416 MiB for its backward pass: a little more than a card of 12 GiB holds. With "hungry" it takes four GiB more on the
// small card than in its probe, with "slow" its copies take long there: a virtual card has no time of its own.
const deepProgram = `import os
import sys

import torch
from torch import nn

if os.environ.get("SLURMD_NODENAME") == "gpu12":
    if "hungry" in sys.argv:
        more = torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
    if "slow" in sys.argv:
        times = [1000.0, 500.0]  # of ten iterations, and of the first wait among them
        torch.cuda.Event.elapsed_time = lambda *_: times.pop(0) if times else 0.0

torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.Tanh()) for _ in range(24))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(212992, 512, device="cuda")
for _ in range(20):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
print("trained on %s, %.2f GiB reserved at the peak" % (torch.cuda.get_device_name(), torch.cuda.max_memory_reserved() / 2**30))
`

// deepScript runs it as a job that asks for the large card. The variable is of the virtual card's accounting: with it, the Python layer of probes would be in the job, too, as it is on no real node.
func deepScript(line, word string) string {
	return fmt.Sprintf(`#!/bin/bash
#SBATCH --gres=gpu:1 --constraint=gpu40g --cpus-per-task=2 --mem=8G --time=15
%s
export GRESIZE_OFFLOAD_REPORT=$PWD/report-$SLURM_JOB_ID
case $SLURMD_NODENAME in gpu*) unset GRESIZE_VGPU_REPORT_DIR ;; esac
python deep.py %s
`, line, word)
}

// withTaskProlog has the nodes do what docs/run.md tells a site to do. While there is a file "unreachable" beside it, gresized is not found.
func withTaskProlog(t *testing.T, s *site.Site) (unreachable string) {
	t.Helper()
	path := filepath.Join(s.Cluster.Dir(), "bin", "task_prolog")
	of := path + ".node"
	must(t, os.Rename(path, of))
	_, url := s.Epilog()
	unreachable = filepath.Join(s.Cluster.Dir(), "bin", "unreachable")
	text := fmt.Sprintf("#!/bin/sh\n%s\nurl=%s\n[ -e %s ] && url=http://127.0.0.1:1\n%s task-prolog --url \"$url\" --munge-socket %s\nexit 0\n", of, url, unreachable, s.Program("gresize"), s.Cluster.MungeSocket())
	must(t, os.WriteFile(path, []byte(text), 0o755))
	return unreachable
}

// TestSwap: where the site allows it, a job that asks for a large card runs on one that is one size too small, with a plan that its node has put under it. Its owner may say no. One that
// dies there, is too slow there, or whose node did not get the plan, runs again as its owner asked, and its script gets no plan again.
func TestSwap(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: each plan takes some runs on the virtual GPU, and Slurm keeps a requeued job back for two minutes")
	}
	cluster := fourCards()
	cluster.Nodes = slices.DeleteFunc(cluster.Nodes, func(n minicluster.Node) bool { return n.Name == "gpu8" || n.Name == "gpu80" })
	s := started(t, site.Options{Build: filepath.Join("..", "build"), Cluster: cluster, Hold: 5 * time.Minute, ProbeBudget: 2 * time.Minute, Config: "[oom]\nrequeue = true\n[swap]\nallow = true\nslowdown = 1.5\n"})
	unreachable := withTaskProlog(t, s.Site)
	dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "deep.py"), []byte(deepProgram), 0o644))
	submit := func(t *testing.T, name, script string) string {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name+".sh"), []byte(script), 0o755))
		return submitExample(t, s.Site, nil, "--job-name="+name, "--output="+name+"-%j.out", name+".sh")
	}
	code := func(story decisionlog.Story, word string) bool {
		return slices.ContainsFunc(story.Events, func(e decisionlog.Event) bool { return e.Code == word })
	}
	t.Run("runs", func(t *testing.T) {
		s := s.in(t)
		id := submit(t, "deep", deepScript("", ""))
		job := s.completed(id, 10*time.Minute)
		story := s.finished(id, time.Minute)
		n := len(story.Decisions)
		if job["NodeList"] != "gpu12" || job["Restarts"] != "0" || n != 2 || story.Decisions[n-1].Code != "smaller_with_a_plan" || story.Decisions[0].Code != "already_smallest" || !code(story, "tried_with_a_plan") {
			t.Fatalf("on %s: %s, %+v\n%s", job["NodeList"], states(story), story.Decisions, jobOutput(t, s.Site, "deep-"+id+".out"))
		}
		var carried struct {
			Followed int64 `json:"followed"`
			Moves    int64 `json:"moves"`
		}
		report := jobOutput(t, s.Site, "report-"+id)
		if err := json.Unmarshal([]byte(report), &carried); err != nil || carried.Followed != 20 || carried.Moves < 20 {
			t.Errorf("%v %s", err, report)
		}
		if out := jobOutput(t, s.Site, "deep-"+id+".out"); !strings.Contains(out, "trained on NVIDIA GeForce RTX 3060, ") {
			t.Error(out)
		} else {
			t.Log(out)
		}
		for _, command := range []string{"explain", "show"} {
			out, err := s.Gresize(t.Context(), command, "--db", s.LogPath(), id)
			if err != nil || !strings.Contains(out, "one size too small; with a plan it needs") || !strings.Contains(out, "a plan") {
				t.Errorf("%v\n%s", err, out)
			}
			t.Log(out)
		}
	})
	t.Run("noswap", func(t *testing.T) {
		s := s.in(t)
		id := submit(t, "noswap", deepScript("#GRESIZE noswap", ""))
		job := s.completed(id, 10*time.Minute)
		if story := s.finished(id, time.Minute); job["NodeList"] != "gpu40" || code(story, "tried_with_a_plan") || story.Job.State != jobs.StateReleased {
			t.Errorf("on %s: %s", job["NodeList"], states(story))
		}
	})
	for _, c := range []struct{ name, word, code string }{
		{"hungry", "hungry", "out_of_memory_after_rewrite"},
		{"slow", "slow", "slow_with_a_plan"},
		{"unreachable", "", "out_of_memory_after_rewrite"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s.in(t)
			if c.name == "unreachable" {
				must(t, os.WriteFile(unreachable, nil, 0o644))
				defer os.Remove(unreachable)
			}
			id := submit(t, c.name, deepScript("# "+c.name, c.word))
			var story decisionlog.Story
			waitUntil(t, 10*time.Minute, "the request to be put back", func() bool {
				var err error
				story, err = s.story(id)
				return err == nil && code(story, "request_restored")
			})
			job := s.completed(id, 10*time.Minute)
			if job["NodeList"] != "gpu40" || job["Restarts"] != "1" || story.Decisions[len(story.Decisions)-1].Code != "smaller_with_a_plan" || !code(story, c.code) {
				t.Errorf("on %s after %s restarts: %s, %+v", job["NodeList"], job["Restarts"], states(story), story.Events)
			}
			out, err := s.Gresize(t.Context(), "explain", "--db", s.LogPath(), id)
			if err != nil || !strings.Contains(out, "this script gets no plan again") {
				t.Errorf("%v\n%s", err, out)
			}
			t.Log(out)
			again := submit(t, c.name, deepScript("# "+c.name, c.word))
			job = s.completed(again, 10*time.Minute)
			if story := s.finished(again, time.Minute); job["NodeList"] != "gpu40" || code(story, "tried_with_a_plan") {
				t.Errorf("again: on %s, %s", job["NodeList"], states(story))
			}
		})
	}
}
