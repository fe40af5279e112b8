package e2e

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/estimator"
)

// TestConfigurationIsReadAgain changes the file under a running daemon: a broken one is named and changes nothing, a sound one counts for the next job, and a
// second daemon does not get in.
func TestConfigurationIsReadAgain(t *testing.T) {
	t.Parallel()
	s := newFakeSite(t, "enforce", time.Minute)
	s.answer(says(t, 7, estimator.Exact))
	sound, err := os.ReadFile(s.ConfigPath())
	must(t, err)
	reload := func(text, says string) {
		t.Helper()
		before, err := s.DaemonLog()
		must(t, err)
		must(t, os.WriteFile(s.ConfigPath(), []byte(text), 0o644))
		must(t, s.ReloadDaemon())
		waitUntil(t, 10*time.Second, "the daemon to say "+says, func() bool {
			log, err := s.DaemonLog()
			return err == nil && strings.Contains(log[len(before):], says)
		})
	}
	reload("version = 1\nmod = \"off\"\n", s.ConfigPath()+":2:1: mod: unknown key (did you mean mode?)")
	id := s.submit(tooLarge...)
	if job := s.completed(id, 60*time.Second); job["NodeList"] != "gpu1" {
		t.Errorf("with a broken file the job ran on %s, want gpu1", job["NodeList"])
	}
	reload(strings.Replace(string(sound), `mode = "enforce"`, `mode = "shadow"`, 1), "configuration read again")
	id = s.submit(tooLarge...)
	if job := s.completed(id, 30*time.Second); job["NodeList"] != "gpu2" {
		t.Errorf("in shadow mode the job ran on %s, want gpu2", job["NodeList"])
	}
	if story := s.finished(id, 30*time.Second); story.Job.State != jobs.StateShadowed {
		t.Errorf("the story is %q", states(story))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if out, err := s.SecondDaemon(ctx); err == nil || !strings.Contains(out, "another gresized uses the decision log") {
		t.Errorf("a second daemon: %v\n%s", err, out)
	}
	s.finished(s.submit(tooLarge...), 30*time.Second)
}
