package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
)

// probesAccount is the account that a site has for probes.
const probesAccount = "probes"

// TestProbesAndTheirOwnersLimits is a site with slurmdbd that lets a user have two jobs, one of them running, and two CPUs. Without an account for probes a probe is one of these jobs; with
// probe.account none of the limits sees it, and each job is tried and changed.
func TestProbesAndTheirOwnersLimits(t *testing.T) {
	t.Parallel()
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: that a probe is submitted with the account of the site is tested with every change")
	}
	const name = "24.11"
	s := otherRelease(t, name, true, func(o *site.Options) {
		o.Cluster.Accounting = true
		o.Config = "[policy]\nwatch = \"15s\"\n"
		o.Hold = 2 * time.Minute
	})
	manage := func(args ...string) {
		t.Helper()
		_, err := s.Cluster.Sacctmgr(t.Context(), args...)
		must(t, err)
	}
	user := []string{"modify", "user", "where", "user=" + minicluster.DefaultUser, "account=" + minicluster.Account, "set"}
	manage("add", "account", probesAccount)
	manage("add", "user", minicluster.DefaultUser, "Account="+probesAccount)
	manage(append(user, "MaxSubmitJobs=2", "MaxJobs=1", "GrpTRES=cpu=2")...)
	waits := says(t, 7, estimator.Exact)

	submit := func(t *testing.T, why string) (string, error) {
		t.Helper()
		dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
		must(t, err)
		must(t, os.WriteFile(dir+"/limited.sh", []byte("#!/bin/sh\n# "+why+"\nsrun true && sleep 1\n"), 0o644))
		return s.Cluster.Sbatch(t.Context(), minicluster.DefaultUser, append(append([]string{"--mem=200M", "--time=5", "--account=" + minicluster.Account}, tooLarge...), "limited.sh")...)
	}
	accounts := func(t *testing.T, story string) string {
		t.Helper()
		out, err := s.Cluster.Run(t.Context(), "root", "squeue", "--noheader", "--states=all", "--name="+story, "--format=%a %q")
		must(t, err)
		return strings.TrimSpace(out)
	}
	probeOf := func(t *testing.T, id string) string {
		t.Helper()
		name := ""
		waitUntil(t, time.Minute, "the probe of job "+id, func() bool {
			story, err := s.story(id)
			if err != nil || len(story.Probes) == 0 || story.Probes[0].SlurmJobID == 0 {
				return false
			}
			name = story.Probes[0].Name
			return true
		})
		return name
	}

	configure := func(t *testing.T, key string) {
		t.Helper()
		text, err := os.ReadFile(s.ConfigPath())
		must(t, err)
		head, rest, _ := strings.Cut(string(text), "[probe]\n")
		if _, after, found := strings.Cut(rest, "# of this test\n"); found {
			rest = after
		}
		must(t, os.WriteFile(s.ConfigPath(), []byte(head+"[probe]\n"+key+" = \""+probesAccount+"\"\n# of this test\n"+rest), 0o644))
		must(t, s.ReloadDaemon())
		time.Sleep(2 * time.Second)
	}

	// Where the probe is one of the owner's two jobs, a second one is refused while it is there.
	counted := func(t *testing.T, why, qos string) {
		s := s.in(t)
		waits.Until = why
		s.answer(waits)
		id, err := submit(t, why)
		must(t, err)
		if account := accounts(t, probeOf(t, id)); account != minicluster.Account+" "+qos {
			t.Errorf("the probe's account and QOS are %q", account)
		}
		if second, err := submit(t, why+" again"); err == nil {
			t.Errorf("job %s was taken: the probe was not counted, and what docs/users.md says of it is wrong", second)
		} else if !strings.Contains(err.Error(), "limit") {
			t.Error(err)
		}
		s.tell(why)
		s.finished(id, time.Minute)
		s.completed(id, time.Minute)
	}
	t.Run("without an account of their own", func(t *testing.T) { counted(t, "plain", "normal") })
	t.Run("with a QOS alone", func(t *testing.T) {
		manage("add", "qos", probesAccount, "UsageFactor=0")
		manage("modify", "user", "where", "user="+minicluster.DefaultUser, "set", "qos+="+probesAccount)
		configure(t, "qos")
		counted(t, "qos", probesAccount)
	})

	t.Run("with one", func(t *testing.T) {
		s := s.in(t)
		configure(t, "account")
		waits.Until = "second"
		s.answer(waits)
		// Two jobs, which is as many as may be; both are tried at the same time, though one alone may run and two CPUs be used.
		var ids, probes []string
		for _, why := range []string{"three", "four"} {
			id, err := submit(t, why)
			must(t, err)
			ids = append(ids, id)
			probe := probeOf(t, id)
			probes = append(probes, probe)
			if account := accounts(t, probe); account != probesAccount+" normal" {
				t.Errorf("the probe's account and QOS are %q", account)
			}
		}
		if third, err := submit(t, "five"); err == nil {
			t.Errorf("job %s was taken: the limits of this test are not in force", third)
		}
		for _, probe := range probes {
			waitUntil(t, time.Minute, "probe "+probe+" to run", func() bool {
				out, err := s.Cluster.Run(t.Context(), "root", "squeue", "--noheader", "--states=all", "--name="+probe, "--format=%T")
				return err == nil && strings.TrimSpace(out) == "RUNNING"
			})
		}
		s.tell("second")
		for _, id := range ids {
			story, job := s.finished(id, 2*time.Minute), s.completed(id, 2*time.Minute)
			if story.Job.State != jobs.StateVerified || job["NodeList"] != "gpu1" {
				t.Errorf("job %s: %s %+v on %s", id, states(story), story.Decisions, job["NodeList"])
			}
		}
	})

	t.Run("an owner who is not in it", func(t *testing.T) {
		s := s.in(t)
		waits.Until = ""
		s.answer(waits)
		manage("remove", "user", "where", "user="+minicluster.DefaultUser, "account="+probesAccount)
		id, err := submit(t, "six")
		must(t, err)
		story := s.finished(id, 2*time.Minute)
		last := story.Events[len(story.Events)-1]
		if story.Job.State != jobs.StateReleased || last.Code != estimator.CodeProbeRefused {
			t.Errorf("%s: %s %s", states(story), last.Code, last.Detail)
		}
		s.completed(id, time.Minute)
		t.Logf("%s %s", last.Code, last.Detail)
	})
}
