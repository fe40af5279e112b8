package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/release"
)

// noMachine is the exit status of in-vm where this machine has no virtual one.
const noMachine = 69

// emulatedPatience is for what an emulated machine does, ten times slower, on a host that is busy.
const emulatedPatience = 10 * time.Minute

// TestCgroups is the whole way where Slurm keeps jobs and probes in cgroups of version 2. It runs itself in a virtual machine: a machine has its cgroups in one version, and slurmd does not
// start where one of them is in another.
func TestCgroups(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly: each release starts a virtual machine")
	}
	inside := os.Getenv("GRESIZE_IN_VM") != ""
	for _, name := range minicluster.Releases() {
		t.Run(name, func(t *testing.T) {
			minicluster.NeedsRelease(t, name, release.Cgroup2)
			if inside {
				keptInCgroups(t, name)
				return
			}
			root := minicluster.RootForTest(t, name)
			built, err := buildFake()
			must(t, err)
			buildPlugin(t, filepath.Join(built, "plugin", name), root)
			test, err := os.Executable()
			must(t, err)
			cmd := exec.CommandContext(t.Context(), "../tools/slurmroot/in-vm", test, "-test.v", "-test.run=^TestCgroups$/^"+name+"$")
			cmd.Env = append(os.Environ(), builtVariable+"="+built, minicluster.ReleaseVariable+"="+name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() == noMachine {
				t.Skipf("%s", out)
			}
			if err != nil || !strings.Contains(string(out), "--- PASS: TestCgroups/"+name) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// keptInCgroups: a job is probed and changed, and has as much memory as it asked for; one that takes more is killed by its cgroup, on the card to which it was moved.
func keptInCgroups(t *testing.T, name string) {
	s := otherRelease(t, name, true, func(o *site.Options) {
		o.Config = "[policy]\nwatch = \"15s\"\n"
		o.Hold = config.MaxHold
		o.Cluster.Cgroup2 = true
	})
	s.answer(says(t, 7, estimator.Exact))
	// The cgroup of a job is named for its id, and from 26.05 on for another name of Slurm's own.
	const cgroup = "cat /proc/self/cgroup \"/sys/fs/cgroup$(sed 's|^0::||; s|/step_.*||' /proc/self/cgroup)/memory.max\"\n"
	id := s.submitScript("kept.sh", "#!/bin/sh\n"+cgroup+"srun cat /proc/self/cgroup\n", append(tooLarge, "--mem=200M")...)
	job, story := s.completed(id, emulatedPatience), s.finished(id, emulatedPatience)
	if job["NodeList"] != "gpu1" || story.Job.State != jobs.StateVerified {
		t.Errorf("%q with %+v, ran on %s", states(story), story.Decisions, job["NodeList"])
	}
	dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
	must(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "slurm-"+id+".out"))
	must(t, err)
	for _, want := range []string{"0::/system.slice/gpu1_slurmstepd.scope/", "/step_batch/", "\n209715200\n", "/step_0/"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	id = s.submitScript("more.sh", "#!/bin/sh\nhead -c 400M /dev/zero | tail -c 300M | wc -c\n", append(tooLarge, "--mem=100M")...)
	job, err = s.Cluster.WaitJob(t.Context(), id, "OUT_OF_MEMORY", emulatedPatience)
	must(t, err)
	if story := s.finished(id, emulatedPatience); job["NodeList"] != "gpu1" || story.Job.State != jobs.StateVerified {
		t.Errorf("%q with %+v, ran on %s", states(story), story.Decisions, job["NodeList"])
	}
}
