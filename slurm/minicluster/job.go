package minicluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Command is a program that runs as the user with nothing of our environment but what a login gives, and that talks to
// this cluster. It runs in WorkDir(asUser). The caller may change it before starting it.
func (c *Cluster) Command(ctx context.Context, asUser, program string, args ...string) (*exec.Cmd, error) {
	who, err := lookUp(asUser)
	if err != nil {
		return nil, err
	}
	dir, err := c.WorkDir(asUser)
	if err != nil {
		return nil, err
	}
	cmd, err := c.command(ctx, &who, dir, program, args)
	if err != nil {
		return nil, err
	}
	cmd.Env = append([]string{"PATH=" + searchPath, "LANG=C.UTF-8", "HOME=" + who.home, "USER=" + who.name, "LOGNAME=" + who.name, "SHELL=/bin/sh"}, c.Env()...)
	cmd.Env = append(cmd.Env, c.opts.UserEnv...)
	// A client that is told to stop must not leave us waiting for a child that holds its output.
	cmd.WaitDelay = time.Second
	return cmd, nil
}

// Run runs a program, usually one of Slurm's, as the user and returns what it printed. The error of a failed one holds
// what it said on stderr.
func (c *Cluster) Run(ctx context.Context, asUser, program string, args ...string) (string, error) {
	cmd, err := c.Command(ctx, asUser, program, args...)
	if err != nil {
		return "", err
	}
	var out, errText bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errText
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(errText.String()))
	}
	return out.String(), nil
}

// Sbatch submits a job and returns its id. The arguments are those of sbatch; relative paths start in WorkDir(asUser).
func (c *Cluster) Sbatch(ctx context.Context, asUser string, args ...string) (string, error) {
	out, err := c.Run(ctx, asUser, "sbatch", append([]string{"--parsable"}, args...)...)
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(strings.TrimSpace(out), ";")
	return id, nil
}

// WorkDir is a folder of the cluster that belongs to the user. As the homes of a site it lies in one of root's, and that in another.
func (c *Cluster) WorkDir(asUser string) (string, error) {
	who, err := lookUp(asUser)
	if err != nil {
		return "", err
	}
	dir := c.path(filepath.Join("home/physics", asUser))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := mkdir(dir); err != nil {
		return "", err
	}
	if err := os.Chown(dir, int(who.uid), int(who.gid)); err != nil {
		return "", fmt.Errorf("minicluster: %w", err)
	}
	return dir, nil
}

// Job is one job as `scontrol show job` prints it, by name: JobState, NodeList, TresPerNode and so on.
type Job map[string]string

var recordKey = regexp.MustCompile(`^([A-Z][A-Za-z:/]*)=(.*)$`)

var submitLine = regexp.MustCompile(`(?s) SubmitLine=.*? WorkDir=`)

// Job asks slurmctld for a job.
func (c *Cluster) Job(ctx context.Context, id string) (Job, error) {
	out, err := c.Run(ctx, "root", "scontrol", "show", "job", "--oneliner", id)
	if err != nil {
		return nil, err
	}
	// The words with which it was submitted may be anything.
	out = submitLine.ReplaceAllString(out, " WorkDir=")
	job := Job{}
	last := ""
	for _, word := range strings.Split(strings.TrimSpace(out), " ") {
		if m := recordKey.FindStringSubmatch(word); m != nil {
			last = m[1]
			job[last] = m[2]
		} else if last != "" && word != "" && !strings.HasPrefix(word, "NtasksPerTRES:") { // 20.11 forgot the equals sign
			job[last] += " " + word
		}
	}
	return job, nil
}

// finalStates are those that a job does not leave.
var finalStates = map[string]bool{
	"COMPLETED": true, "FAILED": true, "CANCELLED": true, "TIMEOUT": true, "OUT_OF_MEMORY": true,
	"NODE_FAIL": true, "BOOT_FAIL": true, "DEADLINE": true, "PREEMPTED": true,
}

// WaitJob waits until the job is in the state. It gives up at once when the job has ended in another state; the error
// then holds the job's record and the ends of the logs.
func (c *Cluster) WaitJob(ctx context.Context, id, state string, timeout time.Duration) (Job, error) {
	var job Job
	err := waitFor(ctx, timeout, func() (bool, error) {
		short, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		now, err := c.Job(short, id)
		if err != nil {
			// slurmctld may be starting again; the time limit ends the wait.
			return false, nil
		}
		job = now
		if job["JobState"] == state {
			return true, nil
		}
		if finalStates[job["JobState"]] {
			return false, errors.New("it has ended")
		}
		return false, nil
	})
	if err != nil {
		return job, fmt.Errorf("minicluster: job %s is %s (reason %s), not %s: %w\nrecord: %v\n%s",
			id, job["JobState"], job["Reason"], state, err, job, c.Logs(15))
	}
	return job, nil
}

// Testing is the part of testing.TB that ForTest needs.
type Testing interface {
	Helper()
	Cleanup(func())
	Context() context.Context
	Failed() bool
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
}

// ForTest starts a cluster for a test and stops it at the test's end. When the test has failed it logs the daemons' last words.
func ForTest(t Testing, opts Options) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", c.Logs(30))
		}
		c.Stop()
	})
	return c
}
