package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator/probe/sandbox"
	"github.com/gresize/gresize/estimator/probe/sandbox/sandboxtest"
	"github.com/gresize/gresize/slurm/minicluster"
)

// TestNoUserNamespaces is a site whose nodes make no user namespaces. As installed, a probe says so and the job is as asked; where an administrator has given gresize-sandbox its rights, as docs/security.md
// says, it is probed and changed. `gresize probe check`, asked by srun, says what each job meets.
func TestNoUserNamespaces(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("a part of make nightly: GRESIZE_NIGHTLY is not set")
	}
	const installed = "/usr/libexec/gresize/" + sandbox.HelperName
	if os.Getenv(elsewhere) == "" {
		if _, err := os.Stat(installed); err == nil {
			t.Skip("gresize is installed on this machine")
		}
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-euc", `
dir=$1; shift
mount -t tmpfs tmpfs "$dir"
../packaging/install "$(cd ../build && pwd)" "$dir/upper" /usr
mkdir "$dir/work"
mount -t overlay -o "lowerdir=/usr,upperdir=$dir/upper/usr,workdir=$dir/work" overlay /usr
exec "$@"`, "sh", dir, os.Args[0], "-test.v", "-test.count=1", "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), elsewhere+"=1")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		must(t, cmd.Run())
		return
	}
	must(t, sandboxtest.ForbidUserNamespaces())
	s, err := site.Start(t.Context(), site.Options{Build: filepath.Join("..", "build"), Hold: 5 * time.Minute})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs(60))
		}
		s.Stop()
	})
	copyExamples(t, s)
	ask := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd, err := s.Cluster.Command(ctx, minicluster.DefaultUser, "srun", "--partition=probe", "/usr/bin/gresize", "probe", "check")
		must(t, err)
		out, _ := cmd.CombinedOutput() // the exit status is 1 where no probe works
		return string(out)
	}
	probed := func() decisionlog.Story {
		id := submitExample(t, s, nil, "small.sh")
		_, err := s.Cluster.WaitJob(t.Context(), id, "COMPLETED", 5*time.Minute)
		must(t, err)
		return (&fakeSite{Site: s, t: t}).finished(id, time.Minute)
	}

	codes := func(story decisionlog.Story) (all []string) {
		for _, e := range story.Estimates {
			for _, r := range e.Reasons {
				all = append(all, r.Code)
			}
		}
		return all
	}

	if text := ask(); !strings.Contains(text, "refuse  sandbox") || !strings.Contains(text, "user.max_user_namespaces") {
		t.Errorf("as installed:\n%s", text)
	}
	if story := probed(); story.Job.State != "released" || !slices.Contains(codes(story), "no_sandbox") {
		t.Errorf("as installed: %s, %v", states(story), codes(story))
	}
	must(t, sandboxtest.GiveRights(installed, sandbox.LentRights()))
	if text := ask(); !strings.Contains(text, "ok      sandbox") || !strings.Contains(text, sandbox.HelperName) {
		t.Errorf("with rights:\n%s", text)
	}
	if story := probed(); story.Job.State != "verified" {
		t.Errorf("with rights: %s, %v", states(story), codes(story))
	}
}
