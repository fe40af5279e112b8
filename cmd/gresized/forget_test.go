package main

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/spool"
)

// TestForgetKeepsToItsDays: the daemon deletes old jobs, keeps young and open ones, and 0 days keep all.
func TestForgetKeepsToItsDays(t *testing.T) {
	for days, want := range map[int]int{0: 4, 30: 2, 1: 1} {
		l, err := decisionlog.Open(t.Context(), filepath.Join(t.TempDir(), "log.db"))
		if err != nil {
			t.Fatal(err)
		}
		for name, age := range map[string]int{"oldest": 400, "old": 31, "young": 2, "open": 400} {
			at := time.Now().AddDate(0, 0, -age)
			if _, err := l.AddJobs(t.Context(), decisionlog.NewJob{Job: decisionlog.Job{Token: name, Mode: "shadow", Finished: name != "open", SubmittedAt: at}, First: decisionlog.Event{At: at, State: "left_alone"}}); err != nil {
				t.Fatal(err)
			}
		}
		files, err := spool.Open(filepath.Join(t.TempDir(), "spool"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var said bytes.Buffer
		var wait sync.WaitGroup
		wait.Go(func() { forget(ctx, l, files, days, nil, slog.New(slog.NewTextHandler(&said, nil))) })
		deadline := time.Now().Add(10 * time.Second)
		for {
			lines, err := l.List(t.Context(), 10, decisionlog.Filter{})
			if err != nil {
				t.Fatal(err)
			}
			if len(lines) == want {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d days: %d jobs are left, want %d", days, len(lines), want)
			}
			time.Sleep(10 * time.Millisecond)
		}
		stop()
		wait.Wait()
		if _, err := l.StoryByToken(t.Context(), "open"); err != nil {
			t.Errorf("%d days: the open job: %v", days, err)
		}
		if strings.Contains(said.String(), "ERROR") {
			t.Error(said.String())
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
