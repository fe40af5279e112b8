package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
)

// probesAddress is where probes report, as the configuration says.
func (s *fakeSite) probesAddress() string {
	s.t.Helper()
	text, err := os.ReadFile(s.ConfigPath())
	must(s.t, err)
	_, address, _ := strings.Cut(string(text), "[probe]")
	_, address, _ = strings.Cut(address, `listen = "`)
	address, _, _ = strings.Cut(address, `"`)
	return address
}

// credential is a document in munge's form, made by a user of the cluster.
func (s *fakeSite) credential(user, document string) string {
	s.t.Helper()
	out, err := s.Cluster.Run(s.t.Context(), user, "munge", "--socket="+s.Cluster.MungeSocket(), "--string="+document)
	must(s.t, err)
	return out
}

// TestAnotherUserLearnsNothing: of what there is of a user's job, another user of a real cluster gets nothing: not its story, by whatever credential, no file, no socket; and asking without end costs the owner nothing.
func TestAnotherUserLearnsNothing(t *testing.T) {
	if withMallory(t) {
		onAPair(t, anotherUserLearnsNothing)
	}
}

func anotherUserLearnsNothing(t *testing.T, cluster minicluster.Options) {
	s := newFakeSiteOf(t, site.Options{Cluster: cluster, Mode: "enforce", Hold: 2 * time.Minute})
	s.answer(says(t, 7, estimator.Exact))
	id := s.submit("--gres=gpu:1", "--constraint=gpu80g", "--job-name=alices-secret")
	s.finished(id, time.Minute)
	document := fmt.Sprintf(`{"schema":%q,"job_id":%s}`, epilog.SchemaExplain, id)
	ask := func(body string) (int, string) {
		response, err := http.Post("http://"+s.probesAddress()+epilog.PathExplain, "application/octet-stream", strings.NewReader(body))
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		must(t, err)
		return response.StatusCode, string(text)
	}
	hers := s.credential(minicluster.DefaultUser, document)
	if code, text := ask(hers); code != http.StatusOK || !strings.Contains(text, "alices-secret") || !strings.Contains(text, "gpu12g") {
		t.Errorf("its owner is told %d %s", code, text)
	}
	for name, body := range map[string]string{
		"the owner's own credential, again": hers,
		"a credential of another user":      s.credential(mallory, document),
		"another user who says who he is":   s.credential(mallory, strings.Replace(document, "{", `{"uid":1001,`, 1)),
		"a report in place of a question":   s.credential(mallory, fmt.Sprintf(`{"schema":%q,"job_id":%s,"peak_bytes":1}`, epilog.SchemaTold, id)),
		"the document alone":                document,
		"garbage":                           "MUNGE:AAAA:",
	} {
		if code, text := ask(body); code == http.StatusOK || strings.Contains(text, "secret") {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	// What lies on the disk, and who may connect.
	state := filepath.Dir(s.LogPath())
	for _, try := range []string{"cat " + s.LogPath(), "ls " + filepath.Join(state, "spool"), "cat " + filepath.Join(state, "spool") + "/*"} {
		if out, err := s.Cluster.Run(t.Context(), mallory, "sh", "-c", try); err == nil {
			t.Errorf("%s: %.200s", try, out)
		}
	}
	// Asking without end.
	flood := s.credential(mallory, document)
	stop := make(chan struct{})
	var wait sync.WaitGroup
	for range 32 {
		wait.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					ask(flood)
				}
			}
		})
	}
	begun := time.Now()
	next := s.submit("--gres=gpu:1", "--constraint=gpu80g", "--comment=beside the flood")
	story := s.finished(next, time.Minute)
	took := time.Since(begun)
	health := healthAt(s.MetricsPath())
	close(stop)
	wait.Wait()
	t.Logf("beside 32 who ask without end: done with after %s", took.Round(time.Millisecond))
	if story.Job.State != "verified" || health != "ok" {
		t.Errorf("%s, health %s", states(story), health)
	}
}
