package e2e

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
)

// TestBesideAProbe: while the probe of one user's job runs, another user of the same cluster does to both whatever a user can think of. What ought to be refused is refused, no key is to be
// read, and the job is changed as if nobody had tried.
func TestBesideAProbe(t *testing.T) {
	if withMallory(t) {
		onAPair(t, besideAProbe)
	}
}

func besideAProbe(t *testing.T, cluster minicluster.Options) {
	s := newFakeSiteOf(t, site.Options{Cluster: cluster, Mode: "enforce", Hold: 4 * time.Minute})
	slow := says(t, 7, estimator.Exact)
	slow.DelaySeconds = 40
	s.answer(slow)
	id := s.submit(tooLarge...)
	s.waitState(id, jobs.StateProbing)
	var probe, name string
	waitUntil(t, time.Minute, "the probe to run", func() bool {
		story, err := s.story(id)
		if err != nil || len(story.Probes) == 0 || story.Probes[0].SlurmJobID == 0 {
			return false
		}
		probe, name = fmt.Sprint(story.Probes[0].SlurmJobID), story.Probes[0].Name
		out, err := s.Cluster.Run(t.Context(), "root", "squeue", "--noheader", "--jobs="+probe, "--format=%T")
		return err == nil && strings.TrimSpace(out) == "RUNNING"
	})
	s.answer(says(t, 7, estimator.Exact)) // of the second card
	story, err := s.story(id)
	must(t, err)
	token := "gresize:v1:" + story.Job.Token
	run := filepath.Join(filepath.Dir(s.ConfigPath()), "..", "run")
	for _, a := range []struct {
		name, script string
		// refused says that the command has to fail; else it may do what it likes, and has to show no key.
		refused bool
	}{
		{"cancels the probe", "scancel -v " + probe, false},
		{"cancels the job", "scancel " + id, false},
		{"signals the probe by its name", "scancel --signal=KILL --name=" + name, false},
		{"moves the job's begin time", "scontrol update JobId=" + id + " StartTime=now+1hour", true},
		{"lifts the job's hold", "scontrol update JobId=" + id + " StartTime=now", true},
		{"takes the mark away", "scontrol update JobId=" + id + " AdminComment=none", true},
		{"holds the probe", "scontrol hold " + probe, true},
		{"requeues the probe", "scontrol requeue " + probe, true},
		{"suspends the probe", "scontrol suspend " + probe, true},
		{"takes over the probe's name", "sbatch --output=/dev/null --job-name=" + name + " --wrap true", false},
		{"takes over the job's mark", "sbatch --output=/dev/null --admin-comment=" + token + " --wrap true", false},
		{"has the mark in a comment and in the name", "sbatch --output=/dev/null --comment=" + token + " --job-name=" + token + " --wrap true", false},
		{"names the mark in a job that asks for a GPU", "sbatch --output=/dev/null --gres=gpu:1 --comment=" + token + " --wrap true", false},
		{"reads the probe's script", "scontrol write batch_script " + probe + " -", false},
		{"reads all that Slurm shows of the probe", "scontrol -ddd show job " + probe + "; squeue --jobs=" + probe + " --Format=all; sacct -j " + probe + " --format=all", false},
		{"starts a step in the probe's job", "timeout 5 srun --jobid=" + probe + " --overlap env", true},
		{"attaches to the probe", "timeout 5 sattach " + probe + ".batch", false}, // which may end with 0 though it was refused
		{"reads and kills the probe's processes", "for p in /proc/[0-9]*; do [ \"$(stat -c %u $p 2>/dev/null)\" = \"$(id -u)\" ] || cat $p/environ 2>/dev/null; done | tr '\\0' '\\n' | grep GRESIZE_PROBE; pkill -9 gresize-probe; true", false}, // a job of theirs may have a probe of its own
		{"waits on the job", "sbatch --output=/dev/null --dependency=afterany:" + id + " --wrap true", false},
		{"talks to the sockets", "for f in " + run + "/*.sock; do python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print(\"connected to\", sys.argv[1])' $f; done", false},
		{"sets a probe's variables in a job of its own", "GRESIZE_PROBE_URL=http://127.0.0.1:1/v1/probes/" + name + " GRESIZE_PROBE_KEY=aaaa GRESIZE_LIBDIR=/tmp SBATCH_ADMIN_COMMENT=" + token + " sbatch --output=/dev/null --gres=gpu:1 --wrap true", false},
		{"holds the probe's partition", "sbatch --output=/dev/null --partition=probe --exclusive --time=1 --wrap 'sleep 5'", false},
	} {
		out, err := s.Cluster.Run(t.Context(), mallory, "sh", "-c", a.script)
		if a.refused && err == nil || strings.Contains(out, "GRESIZE_PROBE_KEY=") && !strings.Contains(out, "GRESIZE_PROBE_KEY=aaaa") || strings.Contains(out, "connected to") || strings.Contains(out, "/gresize-probe run") {
			t.Errorf("%s: %v\n%.600s", a.name, err, out)
		}
	}
	// The probe's side of HTTP, from the same machine: by paths, by two lengths, by lengths that lie, with a key that is none.
	address := s.probesAddress()
	for _, request := range []string{
		"GET /v1/probes/" + name + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/probes/" + name + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + strings.Repeat("a", 52) + "\r\n\r\n",
		"GET /v1/probes/../../v1/probes/" + name + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/probes/%2e%2e/" + name + "%00 HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /v1/probes/" + name + "/bundle HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		"POST /v1/probes/" + name + "/failure HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
		"POST /v1/probes/" + name + "/bundle HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n",
		"POST /v1/probes/" + name + "/failure HTTP/1.0\r\n\r\n{\"code\":\"script_failed\"}",
	} {
		connection, err := net.Dial("tcp", address)
		must(t, err)
		must(t, connection.SetDeadline(time.Now().Add(10*time.Second)))
		_, err = connection.Write([]byte(request))
		must(t, err)
		line, err := bufio.NewReader(connection).ReadString('\n')
		if err == nil && strings.Contains(line, " 2") && !strings.Contains(line, " 4") {
			t.Errorf("%.90q is answered with %q", request, line)
		}
		connection.Close()
	}
	story = s.finished(id, 4*time.Minute)
	if job := s.completed(id, time.Minute); story.Job.State != jobs.StateVerified || job["NodeList"] != "gpu1" || fmt.Sprint(story.Probes[0].SlurmJobID) != probe || story.Probes[0].BundleSHA256 == "" {
		t.Errorf("the story is %q with %+v, its probe %+v, and the job ran on %s", states(story), story.Decisions, story.Probes, job["NodeList"])
	}
}
