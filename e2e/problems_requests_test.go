package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/release"
)

// parks is a site's filter that lets a job wait by its priority, as a filter of Slurm's own issue tracker does.
const parks = `
function slurm_job_submit(job, parts, uid)
	if job.comment == "park" then
		job.priority = 0
	end
	return slurm.SUCCESS
end
function slurm_job_modify(job, record, parts, uid)
	return slurm.SUCCESS
end
return slurm.SUCCESS
`

// TestProblemsOfRequests are those public problems in which a request, its words or the traffic about it brought a tool down.
func TestProblemsOfRequests(t *testing.T) {
	t.Parallel()
	lua := filepath.Join(t.TempDir(), "job_submit.lua")
	must(t, os.WriteFile(lua, []byte(parks), 0o644))
	cluster := minicluster.Default()
	cluster.Lua = lua
	s := newFakeSiteOf(t, site.Options{Cluster: cluster, Mode: "enforce", Hold: 45 * time.Second})
	s.answer(says(t, 7, estimator.Exact))
	sbatch := func(t *testing.T, args ...string) (string, error) {
		t.Helper()
		return s.Cluster.Sbatch(t.Context(), minicluster.DefaultUser, append([]string{"--mem=200M", "--time=5"}, args...)...)
	}

	t.Run("27 several lines in --wrap", func(t *testing.T) {
		s := s.in(t)
		id, err := sbatch(t, append(tooLarge, "--wrap", "echo one\n: JobId=7 JobState=FAILED Features=none\n\nsrun true && sleep 1")...)
		must(t, err)
		if job, story := s.completed(id, 60*time.Second), s.finished(id, 30*time.Second); job["NodeList"] != "gpu1" || story.Job.State != jobs.StateVerified {
			t.Errorf("%q, on %s", states(story), job["NodeList"])
		}
	})
	t.Run("28 tasks by the GPU", func(t *testing.T) {
		s := s.in(t)
		id := ""
		line := s.row(func() {
			var err error
			id, err = sbatch(t, "--gpus=1", "--ntasks-per-gpu=1", "--constraint=gpu80g", "--wrap", "sleep 1")
			must(t, err)
		})
		if job := s.completed(id, 30*time.Second); line.Job.State != jobs.StateLeftAlone || line.Decision.Code != "request_not_understood" || job["Features"] != "gpu80g" {
			t.Errorf("%s %+v, ran with %s", line.Job.State, line.Decision, job["Features"])
		}
	})
	t.Run("29 an empty --gres", func(t *testing.T) {
		id, err := sbatch(t, "--gres=", "--wrap", "true")
		if err != nil {
			t.Logf("Slurm refuses it: %v", err)
			return
		}
		if job, err := s.Cluster.Job(t.Context(), id); err != nil || strings.Contains(job["AdminComment"], "gresize") {
			t.Errorf("held: %v %v", job, err)
		}
	})
	t.Run("30 GPUs by the task and no number of tasks", func(t *testing.T) {
		s := s.in(t)
		id, err := sbatch(t, "--gpus-per-task=1", "--constraint=gpu80g", "--wrap", "sleep 1")
		if err != nil {
			t.Logf("Slurm refuses it: %v", err)
			return
		}
		job, story := s.completed(id, 90*time.Second), s.finished(id, 30*time.Second)
		t.Logf("%q with %+v, on %s", states(story), story.Decisions, job["NodeList"])
	})
	t.Run("31 a filter that parks by priority", func(t *testing.T) {
		s := s.in(t)
		id := ""
		line := s.row(func() {
			var err error
			id, err = sbatch(t, append(tooLarge, "--comment=park", "--wrap", "true")...)
			must(t, err)
		})
		if line.Job.State != jobs.StateLeftAlone || line.Decision.Code != "on_hold" {
			t.Errorf("the row says %s %+v", line.Job.State, line.Decision)
		}
		if job, err := s.Cluster.Job(t.Context(), id); err != nil || job["Priority"] != "0" || job["AdminComment"] != "" {
			t.Errorf("%v %v", job, err)
		}
		_, err := s.Cluster.Run(t.Context(), "root", "scontrol", "release", id)
		must(t, err)
		if job := s.completed(id, 30*time.Second); job["NodeList"] != "gpu2" {
			t.Errorf("it ran on %s", job["NodeList"])
		}
	})
}

// TestRateLimit is a cluster that answers each user only so often: gresized asks as SlurmUser, whom Slurm exempts, and every job is held, tried and changed.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: from 23.02 on; TestThePollIsOneRequestASecond is the part for every change")
	}
	for _, name := range minicluster.Releases() {
		t.Run(name, func(t *testing.T) {
			minicluster.NeedsRelease(t, name, release.RateLimit)
			s := otherRelease(t, name, true, func(o *site.Options) {
				o.Config = "[policy]\nwatch = \"15s\"\n"
				o.Cluster.Settings = map[string]string{"SlurmctldParameters": "rl_enable,rl_bucket_size=6,rl_refill_rate=2,rl_refill_period=1"}
			})
			s.answer(says(t, 7, estimator.Exact))
			var ids []string
			for range 4 {
				ids = append(ids, s.submit(tooLarge...))
			}
			for _, id := range ids {
				if job, story := s.completed(id, 120*time.Second), s.finished(id, 30*time.Second); job["NodeList"] != "gpu1" || story.Job.State != jobs.StateVerified {
					t.Errorf("%q with %+v, on %s", states(story), story.Decisions, job["NodeList"])
				}
			}
		})
	}
}
