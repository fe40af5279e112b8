package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/release"
)

// TestKinds is every kind of job on a real Slurm: the rows of docs/jobs.md.
func TestKinds(t *testing.T) {
	t.Parallel()
	cluster := minicluster.Default()
	for i, n := range cluster.Nodes {
		if n.GPUs > 0 {
			cluster.Nodes[i].Counted = []string{fmt.Sprintf("vram:%d", n.Shards)}
		}
	}
	s := newFakeSiteOf(t, site.Options{Cluster: cluster, Mode: "enforce", Hold: 45 * time.Second, Config: `max_wait = "0s"
[jobs]
except_accounts = ["teaching"]
[vram]
gres = "vram"
per = "1GiB"
[host]
lower_mem = true
margin_min = "256MiB"
floor = "512MiB"
`})
	fits := says(t, 7, estimator.Exact)
	s.answer(fits)
	// A test of a submission leaves a token without a job; its row ends with its hold, at the end of this test.
	tested := s.row(func() {
		_, err := s.Cluster.Run(t.Context(), minicluster.DefaultUser, "sbatch", "--test-only", "--gres=gpu:1", "--mem=200M", "--wrap=true")
		must(t, err)
	})

	kindsLeftAlone(t, s)
	kindsChanged(t, s, fits)
	kindsModified(t, s, fits)

	t.Run("--test-only", func(t *testing.T) {
		waitUntil(t, s.hold+20*time.Second, "the tested submission to be given up", func() bool {
			for _, l := range s.in(t).lines() {
				if l.Job.ID == tested.Job.ID {
					return l.Job.State == jobs.StateAbandoned
				}
			}
			return false
		})
	})
}

// row is the row of the log that something makes.
func (s *fakeSite) row(do func()) decisionlog.Line {
	s.t.Helper()
	before := len(s.lines())
	do()
	waitUntil(s.t, 5*time.Second, "a row in the log", func() bool { return len(s.lines()) > before })
	return s.lines()[0]
}

// kindsLeftAlone are the jobs that are never held.
func kindsLeftAlone(t *testing.T, s *fakeSite) {
	gpu := []string{"--gres=gpu:1"}
	submit := func(args ...string) func(*fakeSite) string {
		return func(s *fakeSite) string { return s.submit(append(gpu, args...)...) }
	}
	client := func(program string, args ...string) func(*fakeSite) string {
		return func(s *fakeSite) string {
			_, err := s.Cluster.Run(s.t.Context(), minicluster.DefaultUser, program, args...)
			must(s.t, err)
			return ""
		}
	}
	script := func(text string, env ...string) func(*fakeSite) string {
		return func(s *fakeSite) string { return s.submitText(text, env, "--gres=gpu:1") }
	}
	since := map[string]*release.Change{"--prefer": release.Prefer, "--gres=shard": release.Shards}
	for _, c := range []struct {
		name, code string
		submit     func(*fakeSite) string
	}{
		{"--dependency", "has_dependency", submit("--dependency=singleton")},
		{"--deadline", "deadline", submit("--deadline=now+1hour")},
		{"--exclusive", "exclusive_node", submit("--exclusive")},
		{"--nodelist", "nodes_named", submit("--nodelist=gpu1")},
		{"--nodes=2", "several_gpus", submit("--nodes=2")},
		{"--prefer", "has_prefer", submit("--prefer=a100")},
		{"--gres=shard", "shares_gpu", func(s *fakeSite) string { return s.submit("--gres=shard:1") }},
		{"an account that the site excludes", "outside_scope", submit("--account=teaching")},
		{"--reservation", "in_reservation", func(s *fakeSite) string {
			_, err := s.Cluster.Run(s.t.Context(), "root", "scontrol", "create", "reservation", "ReservationName=course", "Users="+minicluster.DefaultUser, "StartTime=now+2hours", "Duration=10", "Nodes=gpu2")
			must(s.t, err)
			id := s.submit("--gres=gpu:1", "--reservation=course")
			return id
		}},
		{"a heterogeneous job", "het", func(s *fakeSite) string {
			id, err := s.Cluster.Sbatch(s.t.Context(), minicluster.DefaultUser, "--gres=gpu:1", "--mem=200M", ":", "--gres=gpu:1", "--mem=200M", "job.sh")
			must(s.t, err)
			return id
		}},
		{"srun", "no_script", client("srun", "--gres=gpu:1", "--mem=200M", "true")},
		{"salloc", "no_script", client("salloc", "--gres=gpu:1", "--mem=200M", "true")},
		{"opt-out in the comment", "opt_out", submit("--comment=note gresize:off")},
		{"opt-out in the environment", "opt_out", script("#!/bin/sh\ntrue\n", "GRESIZE=off")},
		{"opt-out in the script", "opt_out", script("#!/bin/sh\n#GRESIZE off\ntrue\n")},
		{"a script of 4 MB", "too_large", script("#!/bin/sh\n" + strings.Repeat("# "+strings.Repeat("x", 1000)+"\n", 3900))},
		{"no GPU", "no_gpu", func(s *fakeSite) string { return s.submit("--partition=" + minicluster.ProbePartition) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if change := since[c.name]; change != nil {
				minicluster.NeedsRelease(t, s.Cluster.Version().String(), change)
			}
			s := s.in(t)
			id := ""
			line := s.row(func() { id = c.submit(s) })
			if line.Job.State != jobs.StateLeftAlone || line.Decision == nil || line.Decision.Verdict != decision.LeaveAlone || line.Decision.Code != c.code {
				t.Errorf("the row says %s %+v, want %s", line.Job.State, line.Decision, c.code)
			}
			if id == "" {
				return
			}
			job, err := s.Cluster.Job(t.Context(), id)
			must(t, err)
			if strings.Contains(job["AdminComment"], "gresize:v1") || job["Reason"] == "BeginTime" {
				t.Errorf("the job was held: %v", job)
			}
			must(t, s.cancel(id))
		})
	}
	t.Run("a probe", func(t *testing.T) {
		s := s.in(t)
		before := len(s.lines())
		s.completed(s.submit("--partition="+minicluster.ProbePartition, "--job-name=gresize-probe-abcdefgh"), 30*time.Second)
		if n := len(s.lines()); n != before {
			t.Errorf("a job with the name of a probe made %d rows", n-before)
		}
	})
	t.Run("--hold", func(t *testing.T) {
		s := s.in(t)
		id := ""
		if line := s.row(func() { id = s.submit("--gres=gpu:1", "--constraint=gpu80g", "--hold") }); line.Decision.Code != "on_hold" {
			t.Errorf("the row says %+v", line.Decision)
		}
		_, err := s.Cluster.Run(t.Context(), minicluster.DefaultUser, "scontrol", "release", id)
		must(t, err)
		if job := s.completed(id, 30*time.Second); job["NodeList"] != "gpu2" {
			t.Errorf("the job ran on %s, want gpu2", job["NodeList"])
		}
	})
}

// kindsChanged are the jobs that are looked at and changed.
func kindsChanged(t *testing.T, s *fakeSite, fits fakeAnswer) {
	gres := s.Cluster.Version().Prefix()
	// Before 23.02.6 an update cannot take a resource away again, so a job that asks for any GPU gets a constraint.
	counted := map[string]string{"TresPerNode": gres + "gpu:1," + gres + "vram:9", "Features": "(null)"}
	if !release.ReplacesGres.In(s.Cluster.Version()) {
		counted = map[string]string{"TresPerNode": gres + "gpu:1", "Features": "gpu12g"}
	}
	for _, c := range []struct {
		name string
		args []string
		want map[string]string
	}{
		{"--mem-per-gpu and --cpus-per-gpu", []string{"--gpus=1", "--constraint=gpu80g", "--mem-per-gpu=200M", "--cpus-per-gpu=2"}, map[string]string{"Features": "gpu12g", "MemPerTres": gres + "gpu:200"}},
		{"--begin before the hold ends", []string{"--gres=gpu:1", "--constraint=gpu80g", "--mem=200M", "--begin=now+12"}, map[string]string{"Features": "gpu12g"}},
		{"--exclude", []string{"--gres=gpu:1", "--mem=200M", "--constraint=gpu80g|gpu12g", "--exclude=cpu1"}, map[string]string{"Features": "gpu12g"}},
		{"a constraint in parentheses", []string{"--gres=gpu:1", "--mem=200M", "--constraint=(gpu12g|a100)&(gpu80g|gpu12g)"}, map[string]string{"Features": "(gpu12g|a100)&gpu12g"}},
		// The peak of the played run, 1 GiB, and what NVIDIA's libraries may take on a GPU node.
		{"--mem", []string{"--gres=gpu:1", "--constraint=gpu80g", "--mem=12G"}, map[string]string{"Features": "gpu12g", "MinMemoryNode": "2741M"}},
		{"--mem-per-cpu", []string{"--gres=gpu:1", "--constraint=gpu80g", "--mem-per-cpu=300M"}, map[string]string{"Features": "gpu12g", "MinMemoryCPU": "300M"}},
		{"a count-only resource", []string{"--gres=gpu:1,vram:60", "--mem=200M", "--constraint=gpu80g"}, map[string]string{"Features": "gpu12g", "TresPerNode": gres + "gpu:1," + gres + "vram:8"}},
		{"a count-only resource beside any GPU", []string{"--gres=gpu:1", "--mem=200M"}, counted},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s.in(t)
			s.answer(fits)
			id, err := s.Cluster.Sbatch(t.Context(), minicluster.DefaultUser, append(append([]string{"--time=5"}, c.args...), "job.sh")...)
			must(t, err)
			job := s.completed(id, 60*time.Second)
			story := s.finished(id, 30*time.Second)
			if story.Job.State != jobs.StateVerified {
				t.Errorf("the story is %q with %+v", states(story), story.Decisions)
			}
			for field, want := range c.want {
				if job[field] != want {
					t.Errorf("%s is %q, want %q", field, job[field], want)
				}
			}
		})
	}

	t.Run("rolled back", func(t *testing.T) {
		s := s.in(t)
		s.answer(fits)
		// No node has the small card with so much memory, nor that much of the resource once the job may not use the large one.
		id, err := s.Cluster.Sbatch(t.Context(), minicluster.DefaultUser, "--time=5", "--gres=gpu:1,vram:60", "--constraint=gpu80g", "--exclude=gpu1", "--mem=50000M", "job.sh")
		must(t, err)
		job := s.completed(id, 90*time.Second)
		story := s.finished(id, 20*time.Second)
		if story.Job.State != jobs.StateRestored || job["NodeList"] != "gpu2" || job["MinMemoryNode"] != "50000M" || job["Features"] != "gpu80g" || job["TresPerNode"] != gres+"gpu:1,"+gres+"vram:60" {
			t.Errorf("the story is %q and the job ran on %s with %s, %s, %s", states(story), job["NodeList"], job["MinMemoryNode"], job["Features"], job["TresPerNode"])
		}
	})

	t.Run("an array", func(t *testing.T) {
		s := s.in(t)
		s.answer(fits)
		id := s.submit("--array=0-6%3", "--gres=gpu:1", "--constraint=gpu80g")
		story := s.waitState(id, jobs.StateUpdated)
		job := s.completed(id, 60*time.Second)
		if job["Features"] != "gpu12g" || job["NodeList"] != "gpu1" {
			t.Errorf("the last task ran on %s asking for %s", job["NodeList"], job["Features"])
		}
		for _, task := range []string{"0", "3", "6"} {
			if n := strings.Count(fmt.Sprint(story.Events), "for task "+task+" of the array"); n != 2 {
				t.Errorf("task %s was tried %d times, want once on each of two cards", task, n)
			}
		}
		if story = s.finished(id, 30*time.Second); story.Job.State != jobs.StateVerified {
			t.Errorf("the story is %q", states(story))
		}
	})

	t.Run("an array that is rolled back", func(t *testing.T) {
		s := s.in(t)
		s.answer(fits)
		id := s.submit(append([]string{"--array=1,5"}, append(impossible, "--exclude=gpu1")...)...)
		story := s.finished(id, 90*time.Second)
		if job := s.completed(id, 60*time.Second); job["NodeList"] != "gpu2" || story.Job.State != jobs.StateRestored {
			t.Errorf("the story is %q and the job ran on %s", states(story), job["NodeList"])
		}
	})

	t.Run("requeue", func(t *testing.T) {
		s := s.in(t)
		s.answer(fits)
		id := s.submitText("#!/bin/sh\nsleep 60\n", nil, append([]string{"--requeue"}, tooLarge...)...)
		s.finished(id, 40*time.Second)
		rows := len(s.lines())
		_, err := s.Cluster.Run(t.Context(), minicluster.DefaultUser, "scontrol", "requeue", id)
		must(t, err)
		// Slurm lets a requeued job rest for two minutes.
		var job minicluster.Job
		waitUntil(t, 20*time.Second, "the job to be in the queue again", func() bool {
			job, err = s.Cluster.Job(t.Context(), id)
			return err == nil && job["JobState"] == "PENDING" && job["Restarts"] == "1"
		})
		if job["Features"] != "gpu12g" || len(s.lines()) != rows {
			t.Errorf("the job asks for %s, with %d new rows", job["Features"], len(s.lines())-rows)
		}
		must(t, s.cancel(id))
	})

	t.Run("sbatch from inside a job", func(t *testing.T) {
		s := s.in(t)
		s.answer(fits)
		inner := ""
		s.row(func() {
			outer := s.submitText("#!/bin/sh\n#GRESIZE off\nsbatch --parsable --gres=gpu:1 --constraint=gpu80g --mem=200M --wrap true\n", nil, "--gres=gpu:1", "--constraint=gpu12g", "--output=inner.out", "--error=/dev/null")
			s.completed(outer, 30*time.Second)
			dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
			must(t, err)
			out, err := os.ReadFile(filepath.Join(dir, "inner.out"))
			must(t, err)
			// The virtual GPU of this site has no libraries, which the loader says before.
			words := strings.Fields(string(out))
			inner = words[len(words)-1]
		})
		if story := s.finished(inner, 40*time.Second); story.Job.State != jobs.StateVerified {
			t.Errorf("the story of the inner job %s is %q", inner, states(story))
		}
	})
}

// kindsModified are jobs that somebody else changes while they are held.
func kindsModified(t *testing.T, s *fakeSite, fits fakeAnswer) {
	slow := fakeAnswer{Bundles: fits.Bundles, DelaySeconds: 4}
	for _, c := range []struct {
		name   string
		owner  []string // scontrol
		state  string
		code   string
		node   string
		update []string // afterwards
	}{
		{"the owner changes the time limit", []string{"update", "TimeLimit=3"}, jobs.StateVerified, "running", "gpu1", nil},
		{"the owner changes the begin time", []string{"update", "StartTime=now+2hours"}, jobs.StateAbandoned, "owner_changed_job", "gpu2", []string{"update", "StartTime=now"}},
		{"the owner puts a hold on it", []string{"hold"}, jobs.StateAbandoned, "owner_changed_job", "gpu2", []string{"release"}},
		{"the owner changes the GPU request", []string{"update", "Gres=gpu:2"}, jobs.StateAbandoned, "owner_changed_job", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s.in(t)
			s.answer(slow)
			id := s.submit(tooLarge...)
			s.waitState(id, jobs.StateProbing)
			scontrol := func(args []string) {
				words := []string{args[0], id}
				if args[0] == "update" {
					words = append([]string{"update", "JobId=" + id}, args[1:]...)
				}
				_, err := s.Cluster.Run(t.Context(), minicluster.DefaultUser, "scontrol", words...)
				must(t, err)
			}
			scontrol(c.owner)
			story := s.finished(id, 50*time.Second)
			if last := story.Events[len(story.Events)-1]; last.State != c.state || last.Code != c.code {
				t.Errorf("the story ends as %s %s (%s), want %s %s", last.State, last.Code, last.Detail, c.state, c.code)
			}
			if c.update != nil {
				scontrol(c.update)
			}
			if c.node == "" {
				must(t, s.cancel(id))
				return
			}
			if job := s.completed(id, 70*time.Second); job["NodeList"] != c.node {
				t.Errorf("the job ran on %s, want %s", job["NodeList"], c.node)
			}
		})
	}

	t.Run("the owner lets one task of an array go", func(t *testing.T) {
		s := s.in(t)
		s.answer(slow)
		id := s.submit("--array=1-3", "--gres=gpu:1", "--constraint=gpu80g")
		s.waitState(id, jobs.StateProbing)
		_, err := s.Cluster.Run(t.Context(), minicluster.DefaultUser, "scontrol", "update", "JobId="+id+"_2", "StartTime=now")
		must(t, err)
		s.finished(id, 60*time.Second)
		nodes := map[string]string{}
		waitUntil(t, 60*time.Second, "all tasks to have run", func() bool {
			out, err := s.Cluster.Run(t.Context(), "root", "scontrol", "-o", "show", "job", id)
			if err != nil {
				return false
			}
			for line := range strings.Lines(out) {
				if m := regexp.MustCompile(`ArrayTaskId=(\d+) .*JobState=COMPLETED .* NodeList=(\S+)`).FindStringSubmatch(line); m != nil {
					nodes[m[1]] = m[2]
				}
			}
			return len(nodes) == 3
		})
		if nodes["1"] != "gpu1" || nodes["2"] != "gpu2" || nodes["3"] != "gpu1" {
			t.Errorf("the tasks ran on %v: what its owner let go runs as asked, the others are changed", nodes)
		}
	})
}

// submitText submits a script of that text, with further variables in the environment of sbatch.
func (s *fakeSite) submitText(text string, env []string, args ...string) string {
	s.t.Helper()
	dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
	must(s.t, err)
	path := filepath.Join(dir, "text.sh")
	must(s.t, os.WriteFile(path, []byte(text), 0o644))
	cmd, err := s.Cluster.Command(s.t.Context(), minicluster.DefaultUser, "sbatch", append(append([]string{"--parsable", "--mem=200M", "--time=5"}, args...), path)...)
	must(s.t, err)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("sbatch %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
