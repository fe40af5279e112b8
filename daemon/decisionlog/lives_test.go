package decisionlog

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestWhatWasAnsweredAndNotWrittenIsSeen: each life answers some submissions, writes some of them, and ends in order or does not.
func TestWhatWasAnsweredAndNotWrittenIsSeen(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		path := t.TempDir() + "/log.db"
		tokens := 0
		var want []Missing
		for range rapid.IntRange(1, 4).Draw(rt, "lives") {
			l, err := Open(t.Context(), path)
			if err != nil {
				rt.Fatal(err)
			}
			life, missing, err := l.BeginLife(t.Context(), at)
			if err != nil {
				rt.Fatal(err)
			}
			if n := len(want); n > 0 {
				last := want[n-1]
				if lost := last.Answered > last.Recorded; lost != (missing != nil) || lost && (missing.Life != last.Life || missing.Answered != last.Answered || missing.Recorded != last.Recorded) {
					rt.Fatalf("of the life before %+v, want %+v", missing, last)
				}
			}
			account := Missing{Life: int64(len(want) + 1), Began: time.UnixMilli(at.UnixMilli())}
			for _, written := range rapid.SliceOfN(rapid.Bool(), 0, 5).Draw(rt, "answers") {
				job := sampleJob(fmt.Sprint(tokens))
				tokens++
				job.Life, job.Number = life.Next()
				if account.Answered++; job.Life != account.Life || job.Number != account.Answered {
					rt.Fatalf("number %d of life %d, want %+v", job.Number, job.Life, account)
				}
				if !written {
					continue
				}
				account.Recorded++
				if _, err := l.AddJobs(t.Context(), NewJob{Job: job, First: Event{At: at, State: "held"}}); err != nil {
					rt.Fatal(err)
				}
				if story, err := l.StoryByToken(t.Context(), job.Token); err != nil || story.Job.Life != job.Life || story.Job.Number != job.Number {
					rt.Fatalf("%+v %v", story.Job, err)
				}
			}
			if rapid.Bool().Draw(rt, "ends in order") {
				if err := life.End(t.Context(), at); err != nil {
					rt.Fatal(err)
				}
			}
			want = append(want, account)
			if err := l.Close(); err != nil {
				rt.Fatal(err)
			}
		}
		l, err := Open(t.Context(), path)
		if err != nil {
			rt.Fatal(err)
		}
		defer l.Close()
		if _, _, err := l.BeginLife(t.Context(), at); err != nil {
			rt.Fatal(err)
		}
		got, err := l.Lives(t.Context())
		if err != nil || fmt.Sprint(got[:len(want)]) != fmt.Sprint(want) {
			rt.Fatalf("%+v %v, want %+v", got, err, want)
		}
	})
}

// TestAnOldCountSaysNothing: after a power cut the file with the count is older than the rows.
func TestAnOldCountSaysNothing(t *testing.T) {
	l, path := openLog(t)
	life, _, err := l.BeginLife(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(path + answeredSuffix)
	if err != nil {
		t.Fatal(err)
	}
	job := sampleJob("a")
	job.Life, job.Number = life.Next()
	if _, err := l.AddJobs(t.Context(), NewJob{Job: job, First: Event{At: at, State: "held"}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+answeredSuffix, old, 0o600); err != nil {
		t.Fatal(err)
	}
	_, missing, err := l.BeginLife(t.Context(), at)
	lives, err2 := l.Lives(t.Context())
	if err != nil || err2 != nil || missing != nil || lives[0].Answered != -1 {
		t.Errorf("%+v %+v %v %v", missing, lives, err, err2)
	}
}

// TestWritableTellsTheTruth: a disk on which reading goes well and writing does not.
func TestWritableTellsTheTruth(t *testing.T) {
	l, _ := openLog(t)
	if err := l.Writable(t.Context()); err != nil {
		t.Fatal(err)
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	l.wrote.Store(0)
	// The signal of the limit is ignored by Go's runtime; the write fails.
	low := old
	low.Cur = 4096
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &low); err != nil {
		t.Fatal(err)
	}
	err := l.Writable(t.Context())
	if err2 := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err2 != nil {
		t.Fatal(err2)
	}
	if err == nil || !strings.Contains(err.Error(), "cannot be written") {
		t.Errorf("a log that cannot be written: %v", err)
	}
	if err := l.Writable(t.Context()); err != nil {
		t.Errorf("when it can be written again: %v", err)
	}
}
