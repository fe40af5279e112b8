package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
)

// longHold is the longest, so that a slow machine is not why a hold ends. It is more than patience: a job that begins in time did not begin because its hold was over.
const longHold = config.MaxHold

// TestLife is what can become of a job in enforce mode while the daemon is well.
func TestLife(t *testing.T) {
	t.Parallel()
	s := newFakeSite(t, "enforce", longHold)
	fits := says(t, 7, estimator.Exact)
	silent := fakeAnswer{Bundles: fits.Bundles, Until: "asked-to-go-on"}
	// The same script takes more on the small card: other kernels, other workspaces.
	otherThere := says(t, 7, estimator.Exact)
	otherThere.Bundles["rtx3060"] = bundleFor(t, "rtx3060", 11, estimator.Exact)
	unknownThere := says(t, 7, estimator.Exact)
	unknownThere.Bundles["rtx3060"] = bundleFor(t, "rtx3060", 7, estimator.Unknown)

	for _, c := range []struct {
		name  string
		args  []string
		probe fakeAnswer
		last  string
		code  string
		node  string
	}{
		{"smaller", tooLarge, fits, jobs.StateVerified, "smaller_row_fits", "gpu1"},
		{"any GPU", []string{"--gres=gpu:1"}, fits, jobs.StateVerified, "row_chosen", "gpu1"},
		{"--gpus", []string{"--gpus=1", "--constraint=gpu80g"}, fits, jobs.StateVerified, "smaller_row_fits", "gpu1"},
		{"--gpus-per-node", []string{"--gpus-per-node=1", "--constraint=gpu80g"}, fits, jobs.StateVerified, "smaller_row_fits", "gpu1"},
		{"--gpus-per-task", []string{"--gpus-per-task=1", "--ntasks=1", "--constraint=gpu80g"}, fits, jobs.StateVerified, "smaller_row_fits", "gpu1"},
		{"needs what it asked for", tooLarge, says(t, 40, estimator.Exact), jobs.StateReleased, "already_smallest", "gpu2"},
		{"unknown", tooLarge, says(t, 7, estimator.Unknown), jobs.StateReleased, "confidence_too_low", "gpu2"},
		{"fits, but not on the card that it would get", tooLarge, otherThere, jobs.StateReleased, "already_smallest", "gpu2"},
		{"unknown on the card that it would get", tooLarge, unknownThere, jobs.StateReleased, "confidence_too_low", "gpu2"},
		{"a probe that dies", tooLarge, fakeAnswer{Die: true}, jobs.StateReleased, "probe_lost", "gpu2"},
		{"impossible on this cluster", impossible, fits, jobs.StateRestored, "smaller_row_fits", "gpu2"},
		{"a card asked for by its type", []string{"--gres=gpu:a100:1"}, fits, jobs.StateReleased, "already_smallest", "gpu2"},
		{"a card asked for by its feature", []string{"--gres=gpu:1", "--constraint=a100"}, fits, jobs.StateReleased, "already_smallest", "gpu2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s.in(t)
			s.answer(c.probe)
			id := s.submit(c.args...)
			job := s.completed(id, patience)
			story := s.finished(id, patience)
			if story.Job.State != c.last || len(story.Decisions) != 1 || story.Decisions[0].Code != c.code {
				t.Errorf("the story is %q with decisions %+v, want it to end as %s with %s", states(story), story.Decisions, c.last, c.code)
			}
			if job["NodeList"] != c.node {
				t.Errorf("the job ran on %s, want %s", job["NodeList"], c.node)
			}
			t.Logf("%s; %s", states(story), job["Features"])
		})
	}

	t.Run("the owner lifts the hold", func(t *testing.T) {
		s := s.in(t)
		s.answer(silent)
		id := s.submit(tooLarge...)
		s.waitState(id, jobs.StateProbing)
		_, err := s.Cluster.Run(t.Context(), minicluster.DefaultUser, "scontrol", "update", "JobId="+id, "StartTime=now")
		must(t, err)
		s.left(id, "owner_lifted_hold", "gpu2")
	})

	t.Run("the owner changes the request", func(t *testing.T) {
		s := s.in(t)
		s.answer(silent)
		id := s.submit(tooLarge...)
		s.waitState(id, jobs.StateProbing)
		_, err := s.Cluster.Run(t.Context(), minicluster.DefaultUser, "scontrol", "update", "JobId="+id, "Features=a100")
		must(t, err)
		story := s.finished(id, patience)
		if last := story.Events[len(story.Events)-1]; last.State != jobs.StateAbandoned || last.Code != "owner_changed_job" {
			t.Errorf("the story ends as %s %s", last.State, last.Code)
		}
		must(t, s.cancel(id))
	})

	t.Run("the owner cancels the job", func(t *testing.T) {
		s := s.in(t)
		s.answer(silent)
		id := s.submit(tooLarge...)
		story := s.waitState(id, jobs.StateProbing)
		must(t, s.cancel(id))
		story = s.finished(id, patience)
		if last := story.Events[len(story.Events)-1]; last.State != jobs.StateAbandoned || last.Code != "job_ended" {
			t.Errorf("the story ends as %s %s", last.State, last.Code)
		}
		// Nobody waits for its probe any more.
		waitUntil(t, patience, "the probe to be cancelled", func() bool {
			out, err := s.Cluster.Run(t.Context(), "root", "squeue", "--noheader", "--name="+story.Probes[0].Name)
			return err == nil && strings.TrimSpace(out) == ""
		})
	})

	t.Run("slurmctld restarts during the hold", func(t *testing.T) {
		s := s.in(t)
		s.answer(silent)
		id := s.submit(tooLarge...)
		waitUntil(t, patience, "the probe to be submitted", func() bool {
			story, err := s.story(id)
			return err == nil && s.probesOf(story) > 0
		})
		must(t, s.Cluster.RestartController(t.Context()))
		s.answer(fits)
		s.tell(silent.Until)
		if job := s.completed(id, patience); job["NodeList"] != "gpu1" {
			t.Errorf("the job ran on %s, want gpu1", job["NodeList"])
		}
	})

	t.Run("slurmctld dies with the submission of a probe in its hands", func(t *testing.T) {
		s := s.in(t)
		s.answer(fits)
		s.KillDaemon()
		s.SetDaemonEnv("GRESIZE_FAILPOINT=probing:written=stop")
		must(t, s.StartDaemon(t.Context()))
		id := s.submit(tooLarge...)
		stat := fmt.Sprintf("/proc/%d/stat", s.DaemonPID())
		waitUntil(t, patience, "the daemon to stop before it asks for the probe", func() bool {
			text, err := os.ReadFile(stat)
			return err == nil && strings.Contains(string(text), ") T ")
		})
		story, err := s.story(id)
		must(t, err)
		// A job that slurmctld loses is not what is tried here.
		waitUntil(t, patience, "slurmctld to write the job down", func() bool {
			saved, err := os.ReadFile(filepath.Join(s.Cluster.Dir(), "state", "job_state"))
			return err == nil && strings.Contains(string(saved), story.Job.Token)
		})
		before, err := s.DaemonLog()
		must(t, err)
		controller := s.Cluster.ControllerPID()
		must(t, syscall.Kill(controller, syscall.SIGSTOP))
		t.Cleanup(func() { _ = syscall.Kill(controller, syscall.SIGCONT) }) // where it was not killed below, the next one needs it
		must(t, syscall.Kill(s.DaemonPID(), syscall.SIGCONT))
		waitUntil(t, patience, "slurmctld to have the request of sbatch", func() bool {
			return slices.ContainsFunc(s.running("sbatch"), func(pid string) bool { return hasAsked(t, pid) })
		})
		must(t, s.Cluster.KillController())
		waitUntil(t, patience, "the refusal", func() bool {
			text, err := s.DaemonLog()
			return err == nil && strings.Contains(text[len(before):], "probe refused, asked for once more")
		})
		must(t, s.Cluster.StartController())
		job := s.completed(id, patience)
		story = s.finished(id, patience)
		if story.Job.State != jobs.StateVerified || job["NodeList"] != "gpu1" || len(story.Probes) != 3 {
			t.Errorf("the story is %q with %+v and %d probes, and the job ran on %s", states(story), story.Decisions, len(story.Probes), job["NodeList"])
		}
		s.restart("")
	})

	t.Run("an owner's own begin time is kept", func(t *testing.T) {
		s := s.in(t)
		s.answer(fits)
		id := s.submit("--gres=gpu:1", "--constraint=gpu80g", "--begin=now+1hour")
		story := s.waitState(id, jobs.StateUpdated)
		job, err := s.Cluster.Job(t.Context(), id)
		must(t, err)
		begin, err := time.ParseInLocation("2006-01-02T15:04:05", job["EligibleTime"], time.Local)
		must(t, err)
		if wait := begin.Sub(story.Job.SubmittedAt); wait < 59*time.Minute || wait > 61*time.Minute || job["Features"] != "gpu12g" {
			t.Errorf("the job asks for %s and begins in %s, want gpu12g and an hour", job["Features"], wait)
		}
		must(t, s.cancel(id))
	})

	t.Run("the update is the owner's", func(t *testing.T) {
		out, err := exec.Command("grep", "-c", "_slurm_rpc_update_job: complete JobId=.* uid=0 ", s.Cluster.Dir()+"/log/slurmctld.log").Output()
		if strings.TrimSpace(string(out)) != "0" {
			t.Errorf("%s updates were made as root: %v", strings.TrimSpace(string(out)), err)
		}
	})
}

// TestShadow does everything but change, hold or delay the job.
func TestShadow(t *testing.T) {
	t.Parallel()
	s := newFakeSite(t, "shadow", longHold)
	s.answer(says(t, 7, estimator.Exact))
	submitted := time.Now()
	id := s.submit(tooLarge...)
	job := s.completed(id, patience)
	if job["NodeList"] != "gpu2" || job["Features"] != "gpu80g" {
		t.Errorf("the job ran on %s asking for %s, want gpu2 and gpu80g", job["NodeList"], job["Features"])
	}
	t.Logf("completed %s after the submission", time.Since(submitted).Round(100*time.Millisecond))
	story := s.finished(id, patience)
	if story.Job.State != jobs.StateShadowed || len(story.Decisions) != 1 || story.Decisions[0].Verdict != decision.Rewrite {
		t.Errorf("the story is %q with %+v", states(story), story.Decisions)
	}
}

// TestNoLauncher: without gresize-launch the job runs as asked, at once and with a row.
func TestNoLauncher(t *testing.T) {
	t.Parallel()
	s := newFakeSite(t, "enforce", longHold)
	must(t, os.Remove(filepath.Join(filepath.Dir(s.ConfigPath()), "..", "run-root", "launch.sock")))
	submitted := time.Now()
	id := s.submit(tooLarge...)
	if job := s.completed(id, patience); job["NodeList"] != "gpu2" {
		t.Errorf("the job ran on %s, want gpu2", job["NodeList"])
	}
	story := s.finished(id, patience)
	if story.Job.State != jobs.StateReleased || story.Decisions[0].Code != "probe_refused" {
		t.Errorf("the story is %q with %+v", states(story), story.Decisions)
	}
	t.Logf("completed after %s", time.Since(submitted).Round(100*time.Millisecond))
}

// waitState waits until the job's story has reached a state.
func (s *fakeSite) waitState(id, state string) decisionlog.Story {
	s.t.Helper()
	var story decisionlog.Story
	waitUntil(s.t, patience, "job "+id+" to be "+state, func() bool {
		var err error
		story, err = s.story(id)
		return err == nil && strings.Contains(" "+states(story)+" ", " "+state+" ")
	})
	return story
}

// left checks that a job was abandoned for the reason and ran as asked.
func (s *fakeSite) left(id, code, node string) {
	s.t.Helper()
	story := s.finished(id, patience)
	if last := story.Events[len(story.Events)-1]; last.State != jobs.StateAbandoned || last.Code != code {
		s.t.Errorf("the story ends as %s %s, want abandoned %s", last.State, last.Code, code)
	}
	if job := s.completed(id, patience); job["NodeList"] != node {
		s.t.Errorf("the job ran on %s, want %s", job["NodeList"], node)
	}
}

func (s *fakeSite) cancel(id string) error {
	_, err := s.Cluster.Run(context.Background(), minicluster.DefaultUser, "scancel", id)
	return err
}

// running are the processes of this name with the configuration of this cluster.
func (s *fakeSite) running(name string) []string {
	found, err := filepath.Glob("/proc/[0-9]*/comm")
	must(s.t, err)
	var pids []string
	for _, path := range found {
		comm, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(comm)) != name {
			continue // it is another one, or has ended
		}
		dir := filepath.Dir(path)
		if env, err := os.ReadFile(filepath.Join(dir, "environ")); err == nil && strings.Contains(string(env), "SLURM_CONF="+s.Cluster.Conf()) {
			pids = append(pids, filepath.Base(dir))
		}
	}
	return pids
}

// hasAsked says whether a process has a connection at whose other end something lies that was not read yet.
func hasAsked(t *testing.T, pid string) bool {
	t.Helper()
	open, err := filepath.Glob(filepath.Join("/proc", pid, "fd/*"))
	must(t, err)
	inodes := map[string]bool{}
	for _, fd := range open {
		if target, err := os.Readlink(fd); err == nil {
			inodes[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
		}
	}
	table, err := os.ReadFile(filepath.Join("/proc", pid, "net/tcp"))
	if err != nil {
		return false // it has ended
	}
	// A line is: number, local and remote address, state, bytes to send and to read, …, and as the tenth word the inode.
	own := map[string]bool{}
	unread := map[string]bool{}
	for line := range strings.Lines(string(table)) {
		words := strings.Fields(line)
		if len(words) < 10 || words[3] != "01" {
			continue
		}
		if inodes[words[9]] {
			own[words[1]] = true
		}
		unread[words[2]] = unread[words[2]] || !strings.HasSuffix(words[4], ":00000000")
	}
	for address := range own {
		if unread[address] {
			return true
		}
	}
	return false
}
