package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
)

// TestPublicProblems: every public problem of docs/problems.md names the tests that keep it away, and each of them exists.
func TestPublicProblems(t *testing.T) {
	names := testNames(t)
	rows := tableTests(t, "problems.md")
	for number := 1; number <= 41; number++ {
		key, words := fmt.Sprintf("%02d", number), ""
		for row := range rows {
			if strings.HasPrefix(row, key+" ") {
				words = row
			}
		}
		t.Run(fmt.Sprintf("%s %s", key, strings.TrimPrefix(words, key+" ")), func(t *testing.T) {
			if len(rows[words]) == 0 {
				t.Fatalf("docs/problems.md: no row of %s with a test", key)
			}
			for _, test := range rows[words] {
				if !names[test] {
					t.Errorf("docs/problems.md: %s names the test %q, which does not exist", words, test)
				}
			}
		})
	}
	if len(rows) != 41 {
		t.Errorf("%d rows, want 41", len(rows))
	}
}

// filter is a job_submit.lua that does what public sites' filters do, and forbids changes of one job.
const filter = `
function refuse(why)
	slurm.log_user(why)
	return slurm.ERROR
end
function slurm_job_submit(job, parts, uid)
	if job.partition == "probe" then
		return slurm.SUCCESS
	end
	if job.tres_per_job ~= nil then
		return refuse("a CPU job in a GPU partition: use --gpus-per-node")
	end
	local gres = job.tres_per_node or ""
	if not string.find(gres, "gpu") then
		return refuse("not requesting GPUs in a non-CPU partition")
	end
	if string.find(gres, ",") then
		return refuse("lists of resources are not allowed")
	end
	if job.min_mem_per_cpu == nil then
		return refuse("please use --mem-per-cpu")
	end
	return slurm.SUCCESS
end
function slurm_job_modify(job, record, parts, uid)
	if record.comment == "locked" and job.features ~= nil then
		return slurm.ERROR
	end
	return slurm.SUCCESS
end
return slurm.SUCCESS
`

// TestProblemsOnARealCluster are those public problems that need a Slurm, with a site's own filter before our plugin.
func TestProblemsOnARealCluster(t *testing.T) {
	t.Parallel()
	lua := filepath.Join(t.TempDir(), "job_submit.lua")
	must(t, os.WriteFile(lua, []byte(filter), 0o644))
	cluster := minicluster.Default()
	cluster.Lua = lua
	s := newFakeSiteOf(t, site.Options{Cluster: cluster, Mode: "enforce", Hold: 45 * time.Second, Config: "max_wait = \"6s\"\n"})
	s.answer(says(t, 7, estimator.Exact))
	dir, err := s.Cluster.WorkDir(minicluster.DefaultUser)
	must(t, err)
	sbatch := func(t *testing.T, script string, args ...string) (string, error) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, "problem.sh"), []byte(script), 0o755))
		cmd, err := s.Cluster.Command(t.Context(), minicluster.DefaultUser, "sbatch", append(append([]string{"--time=5"}, args...), "problem.sh")...)
		must(t, err)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	asked := []string{"--gres=gpu:1", "--constraint=gpu80g", "--mem-per-cpu=200M"}
	// accepted submits a job whose output, both streams together, may be nothing but the usual line.
	accepted := func(t *testing.T, script string, args ...string) string {
		t.Helper()
		out, err := sbatch(t, script, append(args, asked...)...)
		m := regexp.MustCompile(`^Submitted batch job (\d+)\n$`).FindStringSubmatch(out)
		if err != nil || m == nil {
			t.Fatalf("sbatch printed %q, %v", out, err)
		}
		return m[1]
	}
	// changed waits until a job has run on the small card.
	changed := func(t *testing.T, id string) {
		t.Helper()
		s := s.in(t)
		job, story := s.completed(id, 60*time.Second), s.finished(id, 30*time.Second)
		if story.Job.State != jobs.StateVerified || job["NodeList"] != "gpu1" {
			t.Errorf("the story is %q and the job ran on %s", states(story), job["NodeList"])
		}
		if story.Job.Asked.Features != "gpu80g" {
			t.Errorf("the log says that %s was asked for", story.Job.Asked)
		}
	}
	const plain = "#!/bin/sh\nsrun true && sleep 1\n"

	for name, args := range map[string][]string{
		"08 a filter demands memory by the CPU": {"--gres=gpu:1", "--mem=200M"},
		"09 a filter wants the per-node form":   {"--gpus=1", "--mem-per-cpu=200M"},
		"10 a filter refuses jobs without GPUs": {"--mem-per-cpu=200M"},
		"11 a filter forbids lists":             {"--gres=gpu:1,shard:1", "--mem-per-cpu=200M"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(s.lines())
			if out, err := sbatch(t, plain, args...); err == nil {
				t.Errorf("accepted: %s", out)
			}
			if n := len(s.lines()); n != before {
				t.Errorf("a job that the site refused made %d rows", n-before)
			}
		})
	}
	t.Run("12 nothing but the id, both streams merged", func(t *testing.T) { changed(t, accepted(t, plain)) })
	t.Run("17 --export=NONE", func(t *testing.T) { changed(t, accepted(t, "#!/bin/sh\nsleep 1\n", "--export=NONE")) })
	t.Run("18 Latin-1 in script, name and comment", func(t *testing.T) {
		id := accepted(t, "#!/bin/sh\n# caf\xe9 \xff\xfe\nsleep 1\n", "--job-name=caf\xe9", "--comment=caf\xe9")
		changed(t, id)
		story, err := s.story(id)
		must(t, err)
		if text, err := json.Marshal(story); err != nil || !utf8.Valid(text) || !strings.HasPrefix(story.Job.Name, "caf") {
			t.Errorf("the story of %q: %v\n%q", story.Job.Name, err, text)
		}
	})
	t.Run("21 CRLF and an indented shebang", func(t *testing.T) {
		before := len(s.lines())
		for _, script := range []string{"#!/bin/sh\r\ntrue\r\n", "  #!/bin/sh\ntrue\n", "", "true\n"} {
			if out, err := sbatch(t, script, asked...); err == nil {
				t.Errorf("%q was accepted: %s", script, out)
			}
		}
		if n := len(s.lines()); n != before {
			t.Errorf("scripts that sbatch refuses made %d rows", n-before)
		}
	})
	t.Run("22 #SBATCH after a bad line", func(t *testing.T) {
		changed(t, accepted(t, "#!/bin/sh\n\nX=1\n#SBATCH --constraint=a100 --gres=gpu:7\nsleep 1\n"))
	})
	t.Run("a site that forbids the change", func(t *testing.T) {
		s := s.in(t)
		id := accepted(t, plain, "--comment=locked")
		job, story := s.completed(id, 60*time.Second), s.finished(id, 30*time.Second)
		if last := story.Events[len(story.Events)-1]; job["NodeList"] != "gpu2" || last.State != jobs.StateReleased || last.Code == "" {
			t.Errorf("the story is %q and the job ran on %s", states(story), job["NodeList"])
		}
	})
	t.Run("25 the nodes of the small card are away", func(t *testing.T) {
		s := s.in(t)
		node := func(words ...string) {
			_, err := s.Cluster.Run(context.Background(), "root", "scontrol", append([]string{"update", "NodeName=gpu1"}, words...)...)
			must(t, err)
		}
		node("State=DRAIN", "Reason=test")
		defer node("State=RESUME")
		id := accepted(t, plain)
		job, story := s.completed(id, 60*time.Second), s.finished(id, 30*time.Second)
		if last := story.Events[len(story.Events)-1]; job["NodeList"] != "gpu2" || last.State != jobs.StateRestored || last.Code != "waited_too_long" {
			t.Errorf("the story is %q with %s, and the job ran on %s", states(story), last.Code, job["NodeList"])
		}
	})
}
