// Package e2e runs the programs of gresize against a real Slurm.
package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/slurm/minicluster"
)

// fakeBuilt says whether buildFake has left a folder.
var fakeBuilt bool

// builtVariable names a folder that buildFake has made in another process.
const builtVariable = "GRESIZE_E2E_BUILT"

// buildFake makes a build folder with a daemon that has failpoints and a probe that says what it is told. It is made once.
var buildFake = sync.OnceValues(func() (string, error) {
	if made := os.Getenv(builtVariable); made != "" {
		return made, nil
	}
	fakeBuilt = true
	dir, err := os.MkdirTemp("", "gresize-e2e-build-")
	if err != nil {
		return "", err
	}
	// SlurmUser runs programs from here.
	if err := os.Chmod(dir, 0o755); err != nil {
		return dir, err
	}
	for _, sub := range []string{"bin", "libexec", "plugin", "lib/vgpu"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return dir, err
		}
	}
	for _, command := range [][]string{
		// Static, for the root of a Debian that is older than this machine's.
		{"go", "build", "-tags", "failpoint osusergo netgo", "-ldflags", "-extldflags=-static", "-o", dir + "/bin/gresized", "./cmd/gresized"},
		{"env", "CGO_ENABLED=0", "go", "build", "-o", dir + "/libexec/", "./cmd/gresize-launch", "./cmd/gresize-epilog"},
		{"env", "CGO_ENABLED=0", "go", "build", "-o", dir + "/libexec/gresize-probe", "./e2e/fakeprobe"},
		{"env", "CGO_ENABLED=0", "go", "build", "-o", dir + "/bin/fakeslurm", "./e2e/fakeslurm"},
		{"make", "-s", "-C", "slurm/plugin", "OUT=" + dir + "/plugin", minicluster.IncludeArgument("")},
	} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if fakeBuilt {
		if dir, _ := buildFake(); dir != "" {
			os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// fakeSite is a site whose probes are told what to say.
type fakeSite struct {
	*site.Site
	t    *testing.T
	hold time.Duration
}

// smallNodeMiB is the memory of the node with the small card: less than some jobs ask for.
const smallNodeMiB = 16 << 10

// newFakeSite starts one. The daemon runs.
func newFakeSite(t *testing.T, mode string, hold time.Duration) *fakeSite {
	t.Helper()
	return newFakeSiteOf(t, site.Options{Cluster: minicluster.Default(), Mode: mode, Hold: hold})
}

// newFakeSiteOf starts one of another cluster, or with further configuration: whole tables, of which [policy] is not one.
func newFakeSiteOf(t *testing.T, options site.Options) *fakeSite {
	t.Helper()
	build, err := buildFake()
	must(t, err)
	cluster := options.Cluster
	for i := range cluster.Nodes {
		if cluster.Nodes[i].Name == "gpu1" {
			cluster.Nodes[i].RealMemoryMiB = smallNodeMiB
		}
	}
	if cluster.Root != "" {
		plugin := t.TempDir()
		buildPlugin(t, plugin, cluster.Root)
		cluster.Plugin = filepath.Join(plugin, "job_submit_gresize.so")
	}
	options.Build, options.Cluster, options.Config = build, cluster, "[policy]\nwatch = \"15s\"\n"+options.Config
	return started(t, options)
}

// onAPair runs a test on two releases of Slurm, one after the other, each with a cluster of its own.
func onAPair(t *testing.T, run func(t *testing.T, cluster minicluster.Options)) {
	t.Helper()
	for _, name := range minicluster.Pair() {
		t.Run(name, func(t *testing.T) {
			cluster := minicluster.Default()
			if name != minicluster.ThisMachines {
				cluster.Root = minicluster.RootForTest(t, name)
			}
			run(t, cluster)
		})
	}
}

// started is a site for the length of a test, whose last words are those of the daemons where it fails.
func started(t *testing.T, options site.Options) *fakeSite {
	t.Helper()
	running, err := site.Start(t.Context(), options)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(running.Logs(60))
		}
		running.Stop()
	})
	return &fakeSite{Site: running, t: t, hold: options.Hold}
}

// in is the same site for a subtest.
func (s *fakeSite) in(t *testing.T) *fakeSite {
	other := *s
	other.t = t
	return &other
}

// patience bounds a wait of a test that is not about time: it ends as soon as what it waits for is there, however slow the machine is.
const patience = 2 * time.Minute

// fakeAnswer is what a probe does; see fakeprobe.
type fakeAnswer struct {
	DelaySeconds float64 `json:"delay_seconds"`
	// Until is the name that the test tells before the probe goes on.
	Until string `json:"until"`
	Die   bool   `json:"die"`
	// Bundles are by the GPU on which the job is tried.
	Bundles map[string][]byte `json:"bundles"`
	// Reads are the files that the run is said to have read.
	Reads []string `json:"reads"`
}

// answer tells the probes that start from now on what to do.
func (s *fakeSite) answer(a fakeAnswer) {
	s.t.Helper()
	data, err := json.Marshal(a)
	must(s.t, err)
	must(s.t, os.WriteFile(filepath.Join(s.Cluster.Dir(), "share", "libexec", "answer"), data, 0o644))
}

// tell lets the probes go on that wait for a name.
func (s *fakeSite) tell(name string) {
	s.t.Helper()
	must(s.t, os.WriteFile(filepath.Join(s.Cluster.Dir(), "share", "libexec", name), nil, 0o644))
}

// restart kills the daemon and starts it with a failpoint (PLACE, or N*PLACE for the N-th time that it is reached), or without one when it is empty.
func (s *fakeSite) restart(failpoint string) {
	s.t.Helper()
	s.KillDaemon()
	s.SetDaemonEnv()
	if failpoint != "" {
		s.SetDaemonEnv("GRESIZE_FAILPOINT=" + failpoint + "=exit")
	}
	must(s.t, s.StartDaemon(s.t.Context()))
}

// waitDead waits until the daemon has died of its failpoint.
func (s *fakeSite) waitDead(failpoint string) {
	s.t.Helper()
	select {
	case <-s.DaemonExited():
	case <-time.After(40 * time.Second):
		s.t.Fatalf("the daemon did not reach %s", failpoint)
	}
}

// submit runs sbatch as the user.
func (s *fakeSite) submit(args ...string) string {
	s.t.Helper()
	return s.submitAs(minicluster.DefaultUser, args...)
}

// submitAs runs sbatch as a user of this machine.
func (s *fakeSite) submitAs(user string, args ...string) string {
	s.t.Helper()
	dir, err := s.Cluster.WorkDir(user)
	must(s.t, err)
	must(s.t, os.WriteFile(filepath.Join(dir, "job.sh"), []byte("#!/bin/sh\nsrun true && sleep 1\n"), 0o644))
	id, err := s.Cluster.Sbatch(s.t.Context(), user, append(append([]string{"--mem=200M", "--time=5"}, args...), "job.sh")...)
	must(s.t, err)
	return id
}

// story reads a job's story while the daemon may be writing it.
func (s *fakeSite) story(id string) (decisionlog.Story, error) {
	number, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return decisionlog.Story{}, err
	}
	log, err := decisionlog.OpenReadOnly(context.Background(), s.LogPath())
	if err != nil {
		return decisionlog.Story{}, err
	}
	defer log.Close()
	return log.Story(context.Background(), uint32(number))
}

// lines lists the jobs of the log, the newest first.
func (s *fakeSite) lines() []decisionlog.Line {
	s.t.Helper()
	log, err := decisionlog.OpenReadOnly(context.Background(), s.LogPath())
	must(s.t, err)
	defer log.Close()
	lines, err := log.List(context.Background(), 100, decisionlog.Filter{})
	must(s.t, err)
	return lines
}

// finished waits for the end of a job's story.
func (s *fakeSite) finished(id string, limit time.Duration) decisionlog.Story {
	s.t.Helper()
	var story decisionlog.Story
	waitUntil(s.t, limit, "the story of job "+id+" to end", func() bool {
		var err error
		story, err = s.story(id)
		return err == nil && story.Job.Finished
	})
	return story
}

// completed waits until the job has run to its end.
func (s *fakeSite) completed(id string, limit time.Duration) minicluster.Job {
	s.t.Helper()
	job, err := s.Cluster.WaitJob(s.t.Context(), id, "COMPLETED", limit)
	must(s.t, err)
	return job
}

// probesOf counts the Slurm jobs that were submitted as probes of a job.
func (s *fakeSite) probesOf(story decisionlog.Story) int {
	s.t.Helper()
	out, err := s.Cluster.Run(s.t.Context(), "root", "scontrol", "-o", "show", "job")
	must(s.t, err)
	n := 0
	for _, p := range story.Probes {
		n += strings.Count(out, " JobName="+p.Name+" ")
	}
	return n
}

func states(story decisionlog.Story) string {
	words := make([]string, len(story.Events))
	for i, e := range story.Events {
		words[i] = e.State
	}
	return strings.Join(words, " ")
}

func waitUntil(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s", limit, what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
