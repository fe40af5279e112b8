package decisionlog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// childVariable makes the test binary a daemon's log that is written until the end or until it is killed.
const childVariable = "GRESIZE_DECISIONLOG_CHILD"

// childJobs are written by each child, with two rows each.
const childJobs = 3

func TestMain(m *testing.M) {
	if path := os.Getenv(childVariable); path != "" {
		if err := child(path, os.Getenv("GRESIZE_DECISIONLOG_LIFE")); err != nil {
			fmt.Println("error", err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// alongside ends the token of a job that is added together with another.
const alongside = "-alongside"

// child says "held TOKEN" and "found TOKEN" after the call that makes it durable has returned, and goes on after an error as the daemon does.
func child(path, life string) error {
	ctx := context.Background()
	l, err := Open(ctx, path)
	if err != nil {
		return err
	}
	for i := range childJobs {
		token := fmt.Sprintf("%s-%d", life, i)
		first := Event{At: at, State: "held"}
		ids, err := l.AddJobs(ctx, NewJob{Job: sampleJob(token), First: first}, NewJob{Job: sampleJob(token + alongside), First: first})
		if err != nil {
			fmt.Println("error", err)
			continue
		}
		fmt.Println("held", token)
		fmt.Println("held", token+alongside)
		if err := l.Advance(ctx, Transition{Job: ids[0], From: "held", To: "found", At: at, SlurmJobID: 7}); err != nil {
			fmt.Println("error", err)
			continue
		}
		fmt.Println("found", token)
	}
	if l.Replaced != "" {
		fmt.Println("replaced", l.Replaced)
	}
	return l.Close()
}

// life is what is known of one child.
type life struct {
	acknowledged map[string]string // token to state
	errors       []string
	replaced     bool
	killed       bool
	// operations that change a file.
	operations int
}

type failer struct {
	t       *testing.T
	library string
}

func newFailer(t *testing.T) failer {
	t.Helper()
	f := failer{t, filepath.Join(t.TempDir(), "fail.so")}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", f.library, filepath.Join("testdata", "fail.c"), "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return f
}

// run lets a child live in whose n-th operation how happens.
func (f failer) run(path, name, how string, errno syscall.Errno, n int) life {
	f.t.Helper()
	executable, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	count := filepath.Join(filepath.Dir(path), "count")
	cmd := exec.Command(executable)
	cmd.Env = append(os.Environ(), childVariable+"="+path, "GRESIZE_DECISIONLOG_LIFE="+name, "LD_PRELOAD="+f.library,
		"FAIL_AT="+strconv.Itoa(n), "FAIL_HOW="+how, "FAIL_ERRNO="+strconv.Itoa(int(errno)), "FAIL_COUNT="+count)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	l := life{acknowledged: map[string]string{}}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		l.killed = true
	case err != nil:
		f.t.Fatalf("%s of operation %d: %v\n%s%s", how, n, err, out, stderr.Bytes())
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "error":
			l.errors = append(l.errors, rest)
		case "replaced":
			l.replaced = true
		default:
			l.acknowledged[rest] = word
		}
	}
	if number, err := os.ReadFile(count); err == nil && len(number) == 8 {
		l.operations = int(binary.NativeEndian.Uint64(number))
	}
	return l
}

// sound opens the log as the next daemon does, and insists that it is whole and has all that was acknowledged.
func (f failer) sound(path, what string, acknowledged map[string]string) {
	f.t.Helper()
	l, err := Open(f.t.Context(), path)
	if err != nil {
		f.t.Fatalf("%s: the log does not open again: %v", what, err)
	}
	defer l.Close()
	if l.Replaced != "" {
		f.t.Fatalf("%s: a sound log was moved to %s", what, l.Replaced)
	}
	var verdict string
	if err := l.db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		f.t.Fatalf("%s: %s %v", what, verdict, err)
	}
	for token, state := range acknowledged {
		story, err := l.StoryByToken(f.t.Context(), token)
		if err != nil || state == "found" && story.Job.State != "found" {
			f.t.Errorf("%s: %s was acknowledged as %s and is %q (%v)", what, token, state, story.Job.State, err)
		}
	}
	stories, err := l.Unfinished(f.t.Context())
	if err != nil {
		f.t.Fatalf("%s: %v", what, err)
	}
	alone := map[string]int{}
	for _, s := range stories {
		alone[strings.TrimSuffix(s.Job.Token, alongside)]++
		if want := map[string]int{"held": 1, "found": 2}[s.Job.State]; len(s.Events) != want {
			f.t.Errorf("%s: %s is %s with %d events: half a transition", what, s.Job.Token, s.Job.State, len(s.Events))
		}
	}
	for token, rows := range alone {
		if rows != 2 {
			f.t.Errorf("%s: of two jobs that were added together, %s is there alone", what, token)
		}
	}
	if _, err := l.AddJobs(f.t.Context(), NewJob{Job: sampleJob("after"), First: Event{At: at, State: "held"}}); err != nil {
		f.t.Errorf("%s: the log takes no rows any more: %v", what, err)
	}
}

// eachOperation lets the 1st, 2nd, … operation fail until none does, on a new log each time, and then once more with the same failure in the life that follows.
func eachOperation(t *testing.T, how string, errno syscall.Errno, check func(what string, first life)) {
	f := newFailer(t)
	whole := f.run(filepath.Join(t.TempDir(), "log.db"), "whole", "once", errno, 1<<30)
	if whole.operations < 20 || len(whole.errors) > 0 || len(whole.acknowledged) != 2*childJobs {
		t.Fatalf("without a fault: %+v", whole)
	}
	step := 1
	if os.Getenv("GRESIZE_NIGHTLY") != "1" {
		step = 11 // what every change has time for
	}
	tried, told := 0, 0
	for n := 1 + len(how)%step; n <= whole.operations; n += step {
		path := filepath.Join(t.TempDir(), "log.db")
		what := fmt.Sprintf("%s of operation %d of %d", how, n, whole.operations)
		first := f.run(path, "first", how, errno, n)
		check(what, first)
		second := f.run(path, "second", how, errno, max(1, n/2))
		acknowledged := first.acknowledged
		for token, state := range second.acknowledged {
			acknowledged[token] = state
		}
		if first.replaced || second.replaced {
			t.Errorf("%s: a sound log was moved aside", what)
		}
		f.sound(path, what, acknowledged)
		tried, told = tried+1, told+len(first.errors)
	}
	t.Logf("%s, %v: %d of %d operations, each followed by a second failure; %d errors were told", how, errno, tried, whole.operations, told)
	if how != "kill" && told == 0 {
		t.Error("no failure was noticed: nothing failed")
	}
}

// TestKilledAtEachOperation is kill -9 before the n-th write, sync or truncation of the log: nothing that was acknowledged is lost.
func TestKilledAtEachOperation(t *testing.T) {
	eachOperation(t, "kill", 0, func(what string, l life) {
		if !l.killed {
			t.Errorf("%s: not killed", what)
		}
	})
}

// TestFullDiskAtEachOperation is a disk that is full for one operation: what follows it succeeds again, without a restart.
func TestFullDiskAtEachOperation(t *testing.T) {
	eachOperation(t, "once", syscall.ENOSPC, func(what string, l life) {
		if len(l.errors) > 2 {
			t.Errorf("%s: one failure makes %d errors: %q", what, len(l.errors), l.errors)
		}
	})
}

// TestFullDiskFromEachOperationOn is a disk that stays full: errors are told, nothing is acknowledged that is not there.
func TestFullDiskFromEachOperationOn(t *testing.T) {
	eachOperation(t, "on", syscall.ENOSPC, func(string, life) {})
}

// TestBrokenDiskAtEachOperation is EIO, after which SQLite cannot know what is on the disk.
func TestBrokenDiskAtEachOperation(t *testing.T) {
	eachOperation(t, "once", syscall.EIO, func(string, life) {})
}
