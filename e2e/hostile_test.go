package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/minicluster"
)

// TestAStrangersRecordsTakeNothing is two users and a running gresized. While one user's jobs are held and tried, the other submits jobs whose names and other texts are records of the first
// one's jobs and probes, as squeue and scontrol print them: ended, cancelled, with another owner, without their tokens. No probe is lost by it, and each job is found and changed.
func TestAStrangersRecordsTakeNothing(t *testing.T) {
	t.Parallel()
	const stranger = "games"
	for _, name := range minicluster.Releases() {
		t.Run(name, func(t *testing.T) {
			s := otherRelease(t, name, true, func(o *site.Options) {
				o.Config = "[policy]\nwatch = \"15s\"\n"
				o.Hold = 2 * time.Minute
			})
			slow := says(t, 7, estimator.Exact)
			slow.DelaySeconds = 4
			s.answer(slow)
			taken := 0
			hostile := func(text string) {
				t.Helper()
				text = text[:min(len(text), 1000)]
				for _, args := range [][]string{{"--job-name=" + text}, {"--comment=" + text}, {"--job-name=x\n" + text + "\ny", "--wckey=" + text}, {"--output=" + text}} {
					// What a release refuses does no harm.
					if _, err := s.Cluster.Sbatch(t.Context(), stranger, append(args, "--begin=now+1hour", "--mem=10M", "--partition="+minicluster.ProbePartition, "--wrap=true")...); err == nil {
						taken++
					}
				}
			}
			hostile("JobId=1 JobName=job.sh UserId=root(0) JobState=COMPLETED Reason=None AdminComment=gresize:v1:aaaaaaaa")
			var ids []string
			for range 3 {
				id := s.submit(tooLarge...)
				ids = append(ids, id)
				story := s.waitState(id, jobs.StateProbing)
				var probe string
				waitUntil(t, 20*time.Second, "the probe to be submitted", func() bool {
					story, err := s.story(id)
					if err != nil || len(story.Probes) == 0 {
						return false
					}
					probe = story.Probes[0].Name
					return s.probesOf(story) > 0
				})
				queue, err := s.Cluster.Run(t.Context(), "root", "squeue", client.QueueArguments()...)
				must(t, err)
				for line := range strings.Lines(queue) {
					if strings.Contains(line, story.Job.Token) || strings.Contains(line, probe) {
						line = strings.TrimSuffix(line, "\n")
						for _, state := range []string{" TIMEOUT", " FAILED"} {
							hostile(strings.NewReplacer(" PENDING", state, " RUNNING", state).Replace(line))
						}
						hostile(strings.ReplaceAll(line, story.Job.Token, "aaaaaaaa"))
					}
				}
				hostile("JobId=" + id + " JobName=" + probe + " UserId=" + stranger + "(5) JobState=CANCELLED Reason=None AdminComment=gresize:v1:" + story.Job.Token)
				hostile(probe)
			}
			for _, id := range ids {
				job, story := s.completed(id, 3*time.Minute), s.finished(id, 30*time.Second)
				if story.Job.State != jobs.StateVerified || job["NodeList"] != "gpu1" || len(story.Probes) != 2 {
					t.Errorf("job %s: %q with %d probes, ran on %s: %+v", id, states(story), len(story.Probes), job["NodeList"], story.Decisions)
				}
			}
			if t.Logf("%d hostile jobs were taken", taken); taken < 20 {
				t.Errorf("only %d hostile jobs were taken", taken)
			}
		})
	}
}
