package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/slurm/minicluster"
)

// TestAJobThatWouldDieGetsALargerCard: where the site allows it, a real training that its probe saw die on the card that it asked for runs to its end on the next one that holds it, and its
// owner, who may not read the log, is told why; nobody else is.
func TestAJobThatWouldDieGetsALargerCard(t *testing.T) {
	t.Parallel()
	s := started(t, site.Options{Build: filepath.Join("..", "build"), Cluster: fourCards(), Hold: 5 * time.Minute, Config: "[policy]\nupsizing = true\n"}).Site
	copyExamples(t, s)
	id := submitExample(t, s, nil, "--constraint=gpu8g", "medium.sh")
	job, err := s.Cluster.WaitJob(t.Context(), id, "COMPLETED", 5*time.Minute)
	must(t, err)
	if job["NodeList"] != "gpu12" {
		t.Errorf("ran on %s, want gpu12", job["NodeList"])
	}
	if out := jobOutput(t, s, fmt.Sprintf("medium-%s.out", id)); !strings.Contains(out, "done: 12 steps") {
		t.Errorf("the job did not train to its end:\n%s", out)
	}
	_, url := s.Epilog()
	explain := func(user string) (string, error) {
		return s.Cluster.Run(t.Context(), user, s.Program("gresize"), "explain", id, "--url", url, "--munge-socket", s.Cluster.MungeSocket())
	}
	told, err := explain(minicluster.DefaultUser)
	for _, words := range []string{"Requested  --gres=gpu:1 --constraint=gpu8g", "it would die on", "asks for --gres=gpu:1 --constraint=gpu12g instead"} {
		if !strings.Contains(told, words) {
			t.Errorf("the owner is not told %q: %v\n%s", words, err, told)
		}
	}
	if told, err := explain("nobody"); err == nil || strings.Contains(told, "medium") {
		t.Errorf("another user is told: %v\n%s", err, told)
	}
}
