package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
)

// dies fails with PyTorch's words on the small card, as a job does that needs more than was estimated, and runs well on the large one.
const dies = `#!/bin/sh
if [ "$SLURMD_NODENAME" = gpu1 ]; then
	echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.' >&2
	exit 1
fi
sleep 1
`

// submitScript runs sbatch on a script of its own.
func (s *fakeSite) submitScript(name, text string, args ...string) string {
	s.t.Helper()
	dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
	must(s.t, err)
	must(s.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	id, err := s.Cluster.Sbatch(s.t.Context(), minicluster.DefaultUser, append(append([]string{"--mem=200M", "--time=5"}, args...), name)...)
	must(s.t, err)
	return id
}

// TestDeath: a job that dies of GPU memory on what it was given raises an alarm, runs again with what its owner had asked for, and its like are left alone.
func TestDeath(t *testing.T) {
	t.Parallel()
	s := newFakeSiteOf(t, site.Options{Cluster: minicluster.Default(), Mode: "enforce", Hold: time.Minute, Config: "[oom]\nrequeue = true\n"})
	s.answer(says(t, 7, estimator.Exact))

	good := s.submit(tooLarge...)
	id := s.submitScript("dies.sh", dies, tooLarge...)
	var story decisionlog.Story
	code := func(word string) func() bool {
		return func() bool {
			var err error
			story, err = s.story(id)
			return err == nil && slices.ContainsFunc(story.Events, func(e decisionlog.Event) bool { return e.Code == word })
		}
	}
	waitUntil(t, 60*time.Second, "the alarm", code("out_of_memory_after_rewrite"))
	waitUntil(t, 60*time.Second, "the request to be put back", code("request_restored"))
	if len(story.Actuals) < 2 || story.Actuals[0].Source != decisionlog.Reported || story.Actuals[0].Outcome != decisionlog.Failed || story.Actuals[0].Node != "gpu1" || story.Actuals[0].ExitCode == nil || *story.Actuals[0].ExitCode != 1 ||
		story.Actuals[1].Source != decisionlog.EpilogOOM || !story.Actuals[1].AfterRewrite || !strings.Contains(story.Actuals[1].Detail, "Tried to allocate 2.00 GiB") {
		t.Errorf("%+v", story.Actuals)
	}
	logs, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(s.LogPath())), "log", "gresized.log"))
	must(t, err)
	if !strings.Contains(string(logs), "level=WARN") || !strings.Contains(string(logs), "died of GPU memory on what gresize had given it") {
		t.Error("no warning in the journal")
	}

	// The same again is not shrunk again.
	next := s.submitScript("dies.sh", dies, tooLarge...)
	if story := s.finished(next, 30*time.Second); story.Job.State != jobs.StateReleased || story.Decisions[0].Code != "died_after_rewrite" || len(story.Probes) != 0 {
		t.Errorf("%s: %+v", states(story), story.Decisions)
	}
	if job := s.completed(next, 30*time.Second); job["NodeList"] != "gpu2" {
		t.Errorf("it ran on %s", job["NodeList"])
	}
	// The one that died waits for Slurm's two minutes, and runs on the card that its owner had asked for.
	if job := s.completed(id, 4*time.Minute); job["NodeList"] != "gpu2" || job["Restarts"] != "1" {
		t.Errorf("it ran on %s after %s restarts", job["NodeList"], job["Restarts"])
	}
	waitUntil(t, 20*time.Second, "the report of the second run", func() bool {
		story, err := s.story(id)
		return err == nil && slices.ContainsFunc(story.Actuals, func(a decisionlog.Actual) bool {
			return a.Run == 1 && a.Outcome == decisionlog.Completed && !a.AfterRewrite && a.Node == "gpu2"
		})
	})
	if story := s.finished(good, 20*time.Second); len(story.Actuals) != 1 || story.Actuals[0].Outcome != decisionlog.Completed || !story.Actuals[0].AfterRewrite {
		t.Errorf("a job that ran well: %+v", story.Actuals)
	}
	log, err := decisionlog.OpenReadOnly(t.Context(), s.LogPath())
	must(t, err)
	defer log.Close()
	if lines, err := log.List(t.Context(), 10, decisionlog.Filter{OutOfMemory: true}); err != nil || len(lines) != 1 || lines[0].Job.ID != story.Job.ID {
		t.Errorf("%+v %v", lines, err)
	}
}

// TestCache: the second submission of the same job with the same files is answered without a run, and no longer when one of the files has changed.
func TestCache(t *testing.T) {
	t.Parallel()
	s := newFakeSite(t, "enforce", time.Minute)
	dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
	must(t, err)
	read := filepath.Join(dir, "train.py")
	must(t, os.WriteFile(read, []byte("a"), 0o644))
	answer := says(t, 7, estimator.Exact)
	answer.Reads = []string{read, filepath.Join(dir, "not there yet")}
	s.answer(answer)
	fromCache := func(story decisionlog.Story) (looks int, said string) {
		for _, e := range story.Events {
			if e.Code == "answered_from_cache" {
				looks, said = looks+1, e.Detail
			}
		}
		return looks, said
	}

	first := s.submit(tooLarge...)
	s.completed(first, 60*time.Second)
	if story := s.finished(first, 20*time.Second); story.Job.State != jobs.StateVerified || len(story.Probes) != 2 {
		t.Fatalf("%s with %d probes", states(story), len(story.Probes))
	}
	// A probe that is only to look at files dies when it is made to run.
	s.answer(fakeAnswer{Die: true})
	second := s.submit(tooLarge...)
	job := s.completed(second, 60*time.Second)
	story := s.finished(second, 20*time.Second)
	looks, said := fromCache(story)
	if want := "answered from cache of job " + first + ": all files that its probe read are unchanged"; job["NodeList"] != "gpu1" || story.Job.State != jobs.StateVerified || looks != 2 || said != want || len(story.Probes) != 1 {
		t.Errorf("on %s, %s, %d looks from the cache (%s), %d probes", job["NodeList"], states(story), looks, said, len(story.Probes))
	}
	must(t, os.WriteFile(read, []byte("b"), 0o644))
	third := s.submit(tooLarge...)
	s.completed(third, 60*time.Second)
	if story := s.finished(third, 20*time.Second); story.Decisions[0].Code != "probe_lost" {
		t.Errorf("a changed file was not seen: %s, %+v", states(story), story.Decisions)
	}
}

// TestAccounting: a job that trains on the virtual GPU of its node is accounted like one on a real card, and the Epilog's peak is what the probe had foreseen.
func TestAccounting(t *testing.T) {
	started, err := site.Start(t.Context(), site.Options{Build: filepath.Join("..", "build"), Cluster: fourCards(), Hold: 5 * time.Minute})
	must(t, err)
	s := &fakeSite{Site: started, t: t}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(started.Logs(60))
		}
		started.Stop()
	})
	copyExamples(t, started)
	id := submitExample(t, started, nil, "small.sh")
	s.completed(id, 5*time.Minute)
	var story decisionlog.Story
	waitUntil(t, 30*time.Second, "the report of the Epilog", func() bool {
		story, err = s.story(id)
		return err == nil && len(story.Actuals) > 0
	})
	estimate := story.Estimates[len(story.Estimates)-1]
	rank, _ := estimate.Largest()
	a := story.Actuals[0]
	t.Logf("%d MiB were estimated, at most %d, and %d used", rank.ComfortableBytes>>20, rank.ComfortableHighBytes>>20, a.PeakBytes>>20)
	if a.Source != decisionlog.NVMLAccounting || a.Outcome != decisionlog.Completed || !a.AfterRewrite || a.Node != "gpu12" || a.PeakBytes > rank.ComfortableHighBytes || a.PeakBytes < rank.ComfortableBytes/10*9 {
		t.Errorf("%+v", a)
	}
	out, err := started.Gresize(t.Context(), "explain", "--db", s.LogPath(), id)
	if err != nil || !strings.Contains(out, "nvml_accounting") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Log(out)
	// The site's own monitoring, by root with a real munge; a user is not believed.
	out, err = started.Gresize(t.Context(), "actual", "add", "--config", started.ConfigPath(), "--job", id, "--gpu-memory", "8900MiB")
	if err != nil || !strings.Contains(out, "run 0 (completed): 8.69 GiB of GPU memory") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := started.Cluster.Run(t.Context(), minicluster.DefaultUser, started.Program("gresize"), "actual", "add", "--config", started.ConfigPath(), "--job", id, "--node", "gpu12", "--gpu-memory", "1GiB"); err == nil || !strings.Contains(err.Error(), "root or SlurmUser") {
		t.Errorf("a user was believed: %v\n%s", err, out)
	}
	if story, err = s.story(id); err != nil || len(story.Actuals) != 2 || story.Actuals[1].Source != decisionlog.Reported || story.Actuals[1].PeakBytes != 8900<<20 || !story.Actuals[1].AfterRewrite {
		t.Errorf("%v %+v", err, story.Actuals)
	}
	// The same again: a short job looks at the files that the first probe read, as the kernel told them, and nothing is run.
	again := submitExample(t, started, nil, "small.sh")
	s.completed(again, 5*time.Minute)
	if story = s.finished(again, 30*time.Second); len(story.Probes) != 1 || story.Job.State != jobs.StateVerified || !slices.ContainsFunc(story.Events, func(e decisionlog.Event) bool {
		return e.Detail == "answered from cache of job "+id+": all files that its probe read are unchanged"
	}) {
		t.Errorf("%s with %d probes", states(story), len(story.Probes))
	}
	for _, p := range story.Probes {
		t.Logf("the look at the files took %s, from the request to the report", p.ReportedAt.Sub(p.RequestedAt))
	}
}
