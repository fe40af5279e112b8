package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/request"
)

// TestNoTextOfAUserMakesAJob goes through the releases of Slurm. One user's held job stands in a queue with jobs of another, who wrote into all that a user may choose: records as scontrol and
// squeue print them, whole and in pieces, with the first one's id, state and words. The queue and each job alone are read as slurmctld has them.
func TestNoTextOfAUserMakesAJob(t *testing.T) {
	for _, release := range minicluster.Releases() {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			options := minicluster.Default()
			options.Root = minicluster.RootForTest(t, release)
			c := minicluster.ForTest(t, options)
			root := func(program string, args ...string) string {
				t.Helper()
				out, err := c.Run(t.Context(), "root", program, args...)
				must(t, err)
				return out
			}
			victim, err := c.Sbatch(t.Context(), minicluster.DefaultUser, "--begin=now+1hour", "--job-name=train", "--gres=gpu:a100:1", "--constraint=gpu80g", "--mem=300M", "--wrap=true")
			must(t, err)
			root("scontrol", "update", "JobId="+victim, "AdminComment=site,gresize:v1:abcdefgh")
			id, err := strconv.ParseUint(victim, 10, 32)
			must(t, err)
			// What squeue prints of the victim, as a job that has ended; and what scontrol would.
			forged := strings.Replace(root("squeue", client.QueueArguments()...), " PENDING", " TIMEOUT", 1)
			record := "JobId=" + victim + " JobName=train UserId=" + minicluster.DefaultUser + "(1001) JobState=COMPLETED Reason=None AdminComment=gresize:v1:abcdefgh"
			hostile := map[string]bool{}
			submit := func(as string, args ...string) {
				t.Helper()
				job, err := c.Sbatch(t.Context(), as, append([]string{"--begin=now+1hour", "--output=/dev/null"}, args...)...)
				if err != nil {
					// A release that refuses a text is safe from it.
					t.Logf("%.60q is refused: %.200s", args, err)
					return
				}
				hostile[job] = true
			}
			const stranger = "games"
			for _, text := range []string{"x\n" + record + "\ny", "\n" + forged, forged[len(forged)/2:], forged[:1000], "x\n" + forged[len(forged)-1000:], " Features=x SubmitLine=y WorkDir=/ " + record, strings.Repeat("\n", 200), "\xff\xfe\r"} {
				cut := text[:min(len(text), 1000)]
				submit(stranger, "--job-name="+cut, "--wrap=true")
				submit(stranger, "--comment="+cut, "--wrap=echo '"+cut+"'")
				submit(stranger, "--wrap=true", "--mail-user="+cut, "--wckey="+cut, "--error="+cut, "--network="+cut)
				submit(stranger, "--wrap=true", "--output="+cut, "--input="+cut, "--open-mode=append")
				submit(stranger, "--wrap=true", "--constraint="+cut)
				submit(stranger, "--wrap=true", "--licenses="+cut)
				submit(stranger, "--wrap=true", "--tres-per-task="+cut)
			}
			dir, err := c.WorkDir(stranger)
			must(t, err)
			odd := filepath.Join(dir, "x\n"+strings.ReplaceAll(record, "/", "_"))
			must(t, os.MkdirAll(odd, 0o755))
			submit(stranger, "--chdir="+odd, "--wrap=true")

			check := func(j client.Job, alone bool) {
				t.Helper()
				switch number := strconv.FormatUint(uint64(j.ID), 10); {
				case number == victim:
					want := request.Request{TresPerNode: j.Request.TresPerNode, Features: "gpu80g", MemPerNodeMiB: 300}
					asks := j.Request.Asks()
					if j.UserID == 0 || j.State != "PENDING" || j.Token() != "abcdefgh" || j.Ambiguous || j.Reason != "BeginTime" && j.Reason != "None" || !request.Equivalent(j.Request, want) || len(asks) != 1 || asks[0].Type != "a100" || j.Name != "train" ||
						time.Until(j.EligibleAt) < 50*time.Minute || j.NodeList != "" || j.ExitCode != "0:0" || j.Partition == "" {
						t.Errorf("the job of the other user (alone: %v): %+v", alone, j)
					}
				case hostile[number]:
					if j.State != "PENDING" || j.Token() != "" {
						t.Errorf("a hostile job became %+v", j)
					}
				default:
					t.Errorf("made up: %+v", j)
				}
			}
			seen := map[uint32]bool{}
			must(t, client.ReadQueue(strings.NewReader(root("squeue", client.QueueArguments()...)), func(j client.Job) {
				if seen[j.ID] {
					t.Errorf("job %d is seen twice", j.ID)
				}
				seen[j.ID] = true
				check(j, false)
			}))
			if !seen[uint32(id)] {
				t.Errorf("the other user's job is not seen among %d", len(seen))
			}
			j, ok, err := client.ReadJob(strings.NewReader(root("squeue", client.JobArguments(uint32(id))...)), uint32(id))
			if err != nil || !ok {
				t.Errorf("alone: %v %v", ok, err)
			}
			check(j, true)
			unread := 0
			for job := range hostile {
				number, _ := strconv.ParseUint(job, 10, 32)
				j, ok, err := client.ReadJob(strings.NewReader(root("squeue", client.JobArguments(uint32(number))...)), uint32(number))
				must(t, err)
				if !ok {
					unread++
					continue
				}
				check(j, true)
			}
			if missing, err := commandsOf(t, c).Unreadable(t.Context()); err != nil || len(missing) > 0 {
				t.Errorf("squeue does not print %q: %v", missing, err)
			}
			if missing, err := commandsOf(t, c).Unaccounted(t.Context(), filepath.Join(commands(t, c), "sacct")); err != nil && !strings.Contains(err.Error(), "storage is disabled") || len(missing) > 0 {
				t.Errorf("sacct does not know %q: %v", missing, err)
			}
			if _, err := c.Run(t.Context(), "root", "squeue", client.JobArguments(4_000_000)...); err == nil {
				t.Log("squeue of a job that is not there: exit code 0")
			}
			t.Logf("%s: %d hostile jobs, %d of them seen in the queue, %d unreadable when asked for alone", c.Version(), len(hostile), len(seen)-1, unread)
		})
	}
}

// commands is a folder with commands of a cluster's release, as a client runs them.
func commands(t *testing.T, c *minicluster.Cluster) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"scontrol", "squeue", "sacct"} {
		cmd, err := c.Command(t.Context(), "root", name)
		must(t, err)
		text := "#!/bin/sh\nexec env"
		for _, word := range append(cmd.Env, cmd.Args...) {
			text += " '" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text+" \"$@\"\n"), 0o755))
	}
	return dir
}

// commandsOf is a client with them.
func commandsOf(t *testing.T, c *minicluster.Cluster) *client.Client {
	return client.New(client.Config{Scontrol: filepath.Join(commands(t, c), "scontrol")})
}
