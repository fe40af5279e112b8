package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/slurm/minicluster"
)

// hostile is a probe that reports a bundle of about 10 MB that unpacks to 118 MB, every byte of it in form.
func hostile(t *testing.T) fakeAnswer {
	t.Helper()
	a := fakeAnswer{Bundles: map[string][]byte{}}
	for card, data := range says(t, 7, estimator.Exact).Bundles {
		b, err := trace.Decode(data)
		must(t, err)
		var events bytes.Buffer
		events.WriteString("{\"history\":1,\"device\":0}\n")
		for i := 0; events.Len() < 118<<20; i++ {
			fmt.Fprintf(&events, "{\"action\":\"alloc\",\"addr\":%d,\"size\":512,\"stream\":0}\n", 1<<40+i*512)
		}
		b.Ranks[0].Events, b.Ranks[0].EventsFormat = events.Bytes(), trace.EventsJSON
		var out bytes.Buffer
		must(t, trace.Write(&out, b))
		a.Bundles[card] = out.Bytes()
	}
	return a
}

// endedReader says whether a story has an estimate whose bundle ended its reader.
func endedReader(story decisionlog.Story) bool {
	for _, e := range story.Estimates {
		for _, r := range e.Reasons {
			if r.Code == estimator.CodeReaderEnded {
				return true
			}
		}
	}
	return false
}

// TestPoison: three hostile bundles at once of one user neither stop nor swell the daemon, another's job is decided beside them, and a daemon that is killed while it has one read does not have it read again.
func TestPoison(t *testing.T) {
	if withMallory(t) {
		onAPair(t, poison)
	}
}

func poison(t *testing.T, cluster minicluster.Options) {
	s := newFakeSiteOf(t, site.Options{Cluster: cluster, Mode: "enforce", Hold: 4 * time.Minute})
	s.answer(says(t, 7, estimator.Exact))
	s.finished(s.submit("--gres=gpu:1", "--constraint=gpu80g"), 2*time.Minute)
	before, _ := ofProcess(t, s.DaemonPID())
	var most atomic.Int64
	sick := make(chan string, 1)
	stop, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
			if health := healthAt(s.MetricsPath()); health != "ok" {
				select {
				case sick <- health:
				default:
				}
			}
			if now, _ := ofProcess(t, s.DaemonPID()); int64(now) > most.Load() {
				most.Store(int64(now))
			}
		}
	}()
	s.answer(hostile(t))
	var ids []string
	for i := range 3 {
		ids = append(ids, s.submitAs(mallory, "--gres=gpu:1", "--constraint=gpu80g", "--comment", fmt.Sprint(i)))
	}
	reading := filepath.Join(filepath.Dir(s.LogPath()), "spool", "reading")
	for _, id := range ids {
		waitUntil(t, time.Minute, "a hostile bundle to arrive", func() bool {
			story, err := s.story(id)
			return err == nil && strings.Contains(states(story), "reported")
		})
	}
	s.answer(says(t, 7, estimator.Exact))
	begun := time.Now()
	if story := s.finished(s.submit("--gres=gpu:1", "--constraint=gpu80g"), time.Minute); story.Job.State != "verified" {
		t.Errorf("another's job: %s", states(story))
	}
	t.Logf("another's job was done with after %s", time.Since(begun).Round(time.Millisecond))
	ended := 0
	for _, id := range ids {
		story := s.finished(id, 3*time.Minute)
		if endedReader(story) {
			ended++
		}
		for _, e := range story.Events {
			t.Logf("job %s: %s %s %s", id, e.State, e.Code, e.Detail)
		}
		if story.Job.State != "released" {
			t.Errorf("job %s: %s", id, states(story))
		}
	}
	close(stop)
	<-watched
	t.Logf("gresized: %.0f MiB before, %d MiB at most; %d of 3 bundles ended their readers", before, most.Load(), ended)
	if float64(most.Load()) > before+64 {
		t.Error("the daemon has swollen")
	}
	select {
	case health := <-sick:
		t.Errorf("readyz: %s", health)
	default:
	}
	if ended != 3 {
		t.Errorf("%d of 3 ended their readers", ended)
	}

	// The bundle of the next one differs, and the daemon dies while it is read.
	next := hostile(t)
	for card, data := range next.Bundles {
		b, err := trace.Decode(data)
		must(t, err)
		b.Manifest.Notes = []string{"another one"}
		var out bytes.Buffer
		must(t, trace.Write(&out, b))
		next.Bundles[card] = out.Bytes()
	}
	s.answer(next)
	marks, _ := os.ReadDir(reading)
	id := s.submitAs(carol, "--gres=gpu:1", "--constraint=gpu80g")
	waitUntil(t, time.Minute, "the bundle to be read", func() bool { entries, _ := os.ReadDir(reading); return len(entries) > len(marks) })
	s.restart("")
	story := s.finished(id, 2*time.Minute) // it is read once more: a daemon may die by chance
	if !endedReader(story) || story.Job.State != "released" {
		t.Errorf("after the restart: %s", states(story))
	}
}
