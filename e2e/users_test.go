package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
)

// elsewhere is set in the process of a test that runs on a machine with other files.
const elsewhere = "GRESIZE_TEST_ELSEWHERE"

// withFiles runs a test in a process of its own, for which the files of this machine are others: text by path. It says whether this is that process.
func withFiles(t *testing.T, files map[string]string) bool {
	t.Helper()
	if os.Getenv(elsewhere) != "" {
		return true
	}
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	script := ""
	for path, text := range files {
		own := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		must(t, os.WriteFile(own, []byte(text), 0o644))
		if _, err := os.Stat(path); err != nil {
			script += "mkdir -p " + filepath.Dir(path) + "; mount -t tmpfs none " + filepath.Dir(path) + "; cp " + own + " " + path + "\n"
			continue
		}
		script += "mount --bind " + own + " " + path + "\n"
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-euc", script+`exec "$@"`, "sh",
		os.Args[0], "-test.v", "-test.count=1", "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), elsewhere+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	must(t, cmd.Run())
	return false
}

// mallory is the other user of the tests of what one can do to another; carol is a third one.
const mallory, carol = "gresize-mallory", "gresize-carol"

// withMallory runs a test on a machine that knows the two more.
func withMallory(t *testing.T) bool {
	t.Helper()
	passwd, err := os.ReadFile("/etc/passwd")
	must(t, err)
	return withFiles(t, map[string]string{"/etc/passwd": string(passwd) + mallory + ":x:59998:100:::/bin/sh\n" + carol + ":x:59999:100:::/bin/sh\n"})
}

// TestProbesThatAreLost: where every probe dies, a user's jobs are no longer held after six, and nobody's after six of three users.
func TestProbesThatAreLost(t *testing.T) {
	if withMallory(t) {
		onAPair(t, probesThatAreLost)
	}
}

func probesThatAreLost(t *testing.T, cluster minicluster.Options) {
	s := newFakeSiteOf(t, site.Options{Cluster: cluster, Mode: "enforce", Hold: time.Minute})
	s.answer(fakeAnswer{Die: true})
	code := func(user string) string {
		before := len(s.lines()) // a job that passes has no number in the log
		s.submitAs(user, "--gres=gpu:1", "--constraint=gpu80g")
		var last decisionlog.Line
		waitUntil(t, 50*time.Second, "the end of a story", func() bool {
			lines := s.lines()
			last = lines[0]
			return len(lines) > before && last.Job.Finished
		})
		return last.Job.State + " " + last.Decision.Code
	}
	var ids []string
	for range 6 {
		ids = append(ids, s.submitAs(mallory, "--gres=gpu:1", "--constraint=gpu80g"))
	}
	for _, id := range ids {
		s.finished(id, 50*time.Second)
	}
	if got := code(mallory); got != "left_alone probes_failing" {
		t.Errorf("the seventh of one user: %s", got)
	}
	for i, user := range []string{minicluster.DefaultUser, minicluster.DefaultUser, carol, carol} {
		if got := code(user); got != "released probe_lost" {
			t.Errorf("job %d of others: %s", i, got)
		}
	}
	if got := code(carol); got != "left_alone probes_failing" {
		t.Errorf("the seventh that counts: %s", got)
	}
	if log, err := s.DaemonLog(); err != nil || !strings.Contains(log, "probes fail one after the other, of several owners") {
		t.Errorf("the journal does not say so: %v", err)
	}
}

// TestUserOfADirectory: a user whom no file of the machine has, but a module of the C library, is tried and changed as all others.
func TestUserOfADirectory(t *testing.T) {
	if _, err := os.Stat("/usr/lib/libnss_extrausers.so.2"); err != nil {
		t.Skip("libnss-extrausers is not installed (tools/setup slurm)")
	}
	const user = "phys.ldap"
	if !withFiles(t, map[string]string{
		"/etc/nsswitch.conf":         "passwd: files extrausers\ngroup: files extrausers\nhosts: files dns\n",
		"/var/lib/extrausers/passwd": user + ":x:70001:70000::/home/phys/ldap:/bin/sh\n",
	}) {
		return
	}
	must(t, os.WriteFile("/var/lib/extrausers/group", []byte("phys:x:70000:\n"), 0o644))
	s := newFakeSiteOf(t, site.Options{Cluster: minicluster.Default(), Mode: "enforce", Hold: time.Minute})
	s.answer(says(t, 7, estimator.Exact))
	id := s.submitAs(user, "--gres=gpu:1", "--constraint=gpu80g")
	if story := s.finished(id, time.Minute); story.Job.State != "verified" || story.Job.UID != 70001 {
		t.Errorf("%s, of uid %d: %s", story.Job.State, story.Job.UID, states(story))
	}
}

// decidedAfter is how long a job was looked at until what is to be done with it was known.
func decidedAfter(t *testing.T, story decisionlog.Story) time.Duration {
	t.Helper()
	for _, e := range story.Events {
		if e.State == "decided" {
			return e.At.Sub(story.Job.SubmittedAt)
		}
	}
	t.Errorf("job %d was not decided: %s", story.Job.SlurmJobID, states(story))
	return time.Hour
}

// TestOneUserCostsAnotherNothing: beside a user who floods the queue, submits arrays of millions and what Slurm refuses, and holds the probes' address with slow senders, each of another's jobs is
// decided before more of theirs than the places for probes, twice over, can hold.
func TestOneUserCostsAnotherNothing(t *testing.T) {
	if withMallory(t) {
		onAPair(t, oneUserCostsAnotherNothing)
	}
}

func oneUserCostsAnotherNothing(t *testing.T, cluster minicluster.Options) {
	s := newFakeSiteOf(t, site.Options{Cluster: cluster, Mode: "enforce", Hold: 5 * time.Minute})
	slow := says(t, 7, estimator.Exact)
	slow.DelaySeconds = 3
	s.answer(slow)
	const jobs = 4
	watched := func() (longest time.Duration, stories []decisionlog.Story) {
		for range jobs {
			id := s.submit("--gres=gpu:1", "--constraint=gpu80g")
			var story decisionlog.Story
			waitUntil(t, 2*time.Minute, "a decision on job "+id, func() bool {
				story, _ = s.story(id)
				return len(story.Decisions) > 0 || story.Job.Finished
			})
			longest, stories = max(longest, decidedAfter(t, story)), append(stories, story)
		}
		return longest, stories
	}
	quiet, _ := watched()

	text, err := os.ReadFile(s.ConfigPath())
	must(t, err)
	_, address, _ := strings.Cut(string(text), "[probe]")
	_, address, _ = strings.Cut(address, `listen = "`)
	address, _, _ = strings.Cut(address, `"`)
	for range 200 {
		c, err := net.Dial("tcp", address)
		must(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "POST /v1/epilog HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
		must(t, err)
	}
	dir, err := s.Cluster.WorkDir(mallory)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "m.sh"), []byte("#!/bin/sh\nsleep 1\n"), 0o644))
	flood := `for i in $(seq 4); do sbatch --parsable --gres=gpu:1 --array=0-4000000 -o /dev/null m.sh; sbatch --parsable --gres=gpu:1 --constraint=none -o /dev/null m.sh; done
for i in $(seq 80); do sbatch --parsable --gres=gpu:1 --constraint=gpu80g --mem=100M -o /dev/null m.sh $i; done; true`
	_, err = s.Cluster.Run(t.Context(), mallory, "sh", "-c", "cd "+dir+" && { "+flood+"; } 2>/dev/null")
	must(t, err)
	flooded, stories := watched()
	t.Logf("longest of %d jobs until the decision: quiet %s, beside the flood %s", jobs, quiet.Round(time.Millisecond), flooded.Round(time.Millisecond))
	// By the clock it would be a test of how busy this machine is. While one of the other's jobs waits for a place and then for its own probe, each place ends a job of the flood or two.
	most := 2 * config.Defaults().Probe.MaxRunning
	for _, story := range stories {
		before := 0
		for _, l := range s.lines() {
			if l.Job.UID != story.Job.UID && l.Decision != nil && l.Decision.At.After(story.Job.SubmittedAt) && l.Decision.At.Sub(story.Job.SubmittedAt) < decidedAfter(t, story) {
				before++
			}
		}
		t.Logf("job %d: %d of the flood were decided while it waited", story.Job.SlurmJobID, before)
		if before > most {
			t.Errorf("job %d: %d of the flood were decided before it, of %d that the places can hold", story.Job.SlurmJobID, before, most)
		}
	}
	log, err := os.ReadFile(filepath.Join(s.Cluster.Dir(), "log", "slurmctld.log"))
	must(t, err)
	if strings.Contains(string(log), "jobs pass unchanged") {
		t.Error("the plugin's breaker was opened")
	}
}
