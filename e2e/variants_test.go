package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
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

// TestVariants is the whole way, from sbatch to the job on another card, on clusters as sites have them.
func TestVariants(t *testing.T) {
	t.Parallel()
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: slurm/minicluster has the same clusters, without a daemon, for every change")
	}
	for _, name := range minicluster.Releases() {
		for _, v := range []struct {
			name   string
			since  *release.Change
			change func(*minicluster.Options)
		}{
			{"auth slurm", release.AuthSlurm, func(o *minicluster.Options) { o.SlurmAuth = true }},
			{"configless", nil, func(o *minicluster.Options) { o.Configless = true }},
			{"extern step", nil, func(o *minicluster.Options) { o.Settings = map[string]string{"PrologFlags": "contain"} }},
			{"stepmgr", release.Stepmgr, func(o *minicluster.Options) {
				o.Settings = map[string]string{"PrologFlags": "contain", "SlurmctldParameters": "enable_stepmgr"}
			}},
		} {
			t.Run(v.name+" "+name, func(t *testing.T) {
				minicluster.NeedsRelease(t, name, v.since)
				s := otherRelease(t, name, true, func(o *site.Options) {
					o.Config = "[policy]\nwatch = \"15s\"\n"
					v.change(&o.Cluster)
				})
				s.answer(says(t, 7, estimator.Exact))
				for _, args := range [][]string{tooLarge, {"--gpus-per-node=1", "--constraint=gpu80g"}} {
					id := s.submit(args...)
					job := s.completed(id, 90*time.Second)
					if story := s.finished(id, 30*time.Second); story.Job.State != jobs.StateVerified || job["NodeList"] != "gpu1" {
						t.Errorf("%v: %q with %+v, ran on %s", args, states(story), story.Decisions, job["NodeList"])
					}
				}
			})
		}
	}
}

// TestControllerIsLost kills the slurmctld of a pair while a job is held: the other one lets gresized change it, and holds what comes then.
func TestControllerIsLost(t *testing.T) {
	t.Parallel()
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: one that restarts is in TestLife")
	}
	for _, name := range minicluster.Releases() {
		t.Run(name, func(t *testing.T) {
			s := otherRelease(t, name, true, func(o *site.Options) {
				o.Config = "[policy]\nwatch = \"15s\"\n"
				o.Hold = 4 * time.Minute
				o.Cluster.Backup = true
				o.Cluster.Settings = map[string]string{"SlurmctldTimeout": "6"}
				for i := range o.Cluster.Nodes {
					// From 23.11 to 24.11 a slurmctld that takes over says of a node with shards "gres/shard type reported but not configured", and never starts a job there.
					o.Cluster.Nodes[i].Shards = 0
				}
			})
			slow := says(t, 7, estimator.Exact)
			slow.DelaySeconds = 15
			s.answer(slow)
			held := s.submit(tooLarge...)
			s.waitState(held, jobs.StateProbing)
			// What slurmctld has not yet written the other one does not know; it writes within five seconds.
			time.Sleep(8 * time.Second)
			must(t, s.Cluster.KillController())
			waitUntil(t, time.Minute, "the backup to take over", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				_, err := s.Cluster.Run(ctx, "root", "squeue", "--noheader")
				return err == nil
			})
			s.answer(says(t, 7, estimator.Exact))
			for _, id := range []string{held, s.submit(tooLarge...)} {
				if job, story := s.completed(id, 5*time.Minute), s.finished(id, time.Minute); job["NodeList"] != "gpu1" || story.Job.State != jobs.StateVerified {
					t.Errorf("%q with %+v, on %s", states(story), story.Decisions, job["NodeList"])
				}
			}
		})
	}
}

// TestClients are the other ways to a job than an sbatch that returns at once.
func TestClients(t *testing.T) {
	t.Parallel()
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: scrontab takes its minute")
	}
	for _, name := range minicluster.Releases() {
		s := otherRelease(t, name, true, func(o *site.Options) {
			o.Config = "[policy]\nwatch = \"15s\"\n"
			o.Cluster.Settings = map[string]string{"ScronParameters": "enable"}
		})
		s.answer(says(t, 7, estimator.Exact))
		dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
		must(t, err)
		t.Run("sbatch --wait "+name, func(t *testing.T) {
			s := s.in(t)
			must(t, os.WriteFile(filepath.Join(dir, "wait.sh"), []byte("#!/bin/sh\nexit 3\n"), 0o755))
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			defer cancel()
			out, err := s.Cluster.Run(ctx, minicluster.DefaultUser, "sbatch", append([]string{"--parsable", "--wait", "--time=5", "--mem=200M"}, append(tooLarge, "wait.sh")...)...)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 3 {
				t.Fatalf("it ended with %v, the job's own code is 3", err)
			}
			id := strings.TrimSpace(out)
			job, err := s.Cluster.Job(t.Context(), id)
			must(t, err)
			if story := s.finished(id, 30*time.Second); job["NodeList"] != "gpu1" || story.Job.State != jobs.StateVerified {
				t.Errorf("%q, on %s", states(story), job["NodeList"])
			}
		})
		t.Run("srun in an salloc "+name, func(t *testing.T) {
			s := s.in(t)
			began := time.Now()
			out, err := s.Cluster.Run(t.Context(), minicluster.DefaultUser, "salloc", "--gres=gpu:1", "--constraint=gpu80g", "--mem=200M", "srun", "sh", "-c", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES")
			must(t, err)
			if strings.TrimSpace(out) != "gpu2 0" || time.Since(began) > 20*time.Second {
				t.Errorf("%q after %s", out, time.Since(began))
			}
		})
		t.Run("scrontab "+name, func(t *testing.T) {
			s := s.in(t)
			if _, err := s.Cluster.Command(t.Context(), minicluster.DefaultUser, "scrontab"); errors.Is(err, exec.ErrNotFound) {
				t.Skipf("the Debian of Slurm %s has no scrontab", name)
			}
			must(t, os.WriteFile(filepath.Join(dir, "cron"), []byte("#SCRON --gres=gpu:1 --constraint=gpu80g --mem=200M --time=1 --chdir="+dir+" --output="+dir+"/cron.out\n* * * * * echo ran on $SLURMD_NODENAME\n"), 0o644))
			line := s.row(func() {
				_, err := s.Cluster.Run(t.Context(), minicluster.DefaultUser, "scrontab", "cron")
				must(t, err)
			})
			if line.Job.State != jobs.StateLeftAlone || line.Decision.Code != "cron" {
				t.Errorf("the row says %s %+v", line.Job.State, line.Decision)
			}
			waitUntil(t, 3*time.Minute, "scrontab's job to run", func() bool {
				out, err := os.ReadFile(filepath.Join(dir, "cron.out"))
				return err == nil && strings.Contains(string(out), "ran on gpu2")
			})
			_, err := s.Cluster.Run(t.Context(), minicluster.DefaultUser, "scrontab", "-r")
			must(t, err)
		})
	}
}
