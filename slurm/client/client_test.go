package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
)

func TestParseMiB(t *testing.T) {
	for text, want := range map[string]uint64{"200M": 200, "3G": 3072, "2T": 2 << 20, "0": 0, "1.50G": 1536, "48.83G": 50002, "NaNM": 0, "InfM": 0, "": 0, "M": 0, "x": 0, "-1M": 0, "99999999999999999999M": 0} {
		if got := parseMiB(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestParseElapsed(t *testing.T) {
	for text, want := range map[string]time.Duration{"00:00:00": 0, "00:01:30": 90 * time.Second, "2-03:00:01": 51*time.Hour + time.Second, "INVALID": 0, "": 0, "7": 0, "-1:00:00": 0, "9999999999-00:00:00": 0, "1:05": 65 * time.Second, "4:01:05": 4*time.Hour + 65*time.Second} {
		if got := parseElapsed(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// fake writes a script in place of scontrol and squeue.
func fake(t *testing.T, script string) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "scontrol")
	for _, program := range []string{path, filepath.Join(filepath.Dir(path), "squeue")} {
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return New(Config{Scontrol: path, ConfPath: "/etc/conf with blank", Timeout: 2 * time.Second})
}

func TestUpdateIsOneCallInTheOwnersName(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	c := fake(t, `for a; do printf '%s\n' "$a" >> `+log+`; done; env | sort | grep -v '^PWD\|^_\|^SHLVL\|^OLDPWD' >> `+log+"\necho 'scontrol: error: a remark' >&2\n")
	err := c.Update(context.Background(), 1001, 7, []request.Assignment{{Key: "TresPerJob"}, {Key: "Features", Value: "(a|b)&(c)"}}, Start{})
	if err != nil {
		t.Errorf("a remark on stderr with exit code 0 is no error: %v", err)
	}
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	want := "--uid=1001\nupdate\nJobId=7\nTresPerJob=\nFeatures=(a|b)&(c)\nStartTime=now\nLC_ALL=C\nPATH=/usr/bin:/bin\nSLURM_CONF=/etc/conf with blank\nTZ=UTC\n"
	if string(got) != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestStart(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	c := fake(t, `printf '%s ' "$@" > `+log+"\n")
	future := time.Date(2099, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	for want, start := range map[string]Start{
		"--uid=1 update JobId=2 StartTime=2099-01-02T02:04:05 ": {At: future}, "--uid=1 update JobId=2 ": {Keep: true},
		"--uid=1 update JobId=2 StartTime=now ": {At: time.Unix(1, 0)},
	} {
		if err := c.Update(context.Background(), 1, 2, nil, start); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(log); string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFailures(t *testing.T) {
	ctx := context.Background()
	var failed *CommandError
	if err := fake(t, "echo no >&2; exit 3").Update(ctx, 1, 2, nil, Start{}); !errors.As(err, &failed) || failed.ExitCode != 3 || failed.Stderr != "no" {
		t.Errorf("exit 3: %v", err)
	}
	begin := time.Now()
	if err := fake(t, "sleep 30 & sleep 30").Update(ctx, 1, 2, nil, Start{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a command that hangs: %v", err)
	}
	if took := time.Since(begin); took > 6*time.Second {
		t.Errorf("a command with a deadline of 2 s took %s", took)
	}
	if err := New(Config{Scontrol: "/nonexistent/scontrol"}).Ping(ctx); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a command that is not there: %v", err)
	}
	if _, err := fake(t, "[ \"$1\" = ping ] && exit 0; exit 1").Job(ctx, 7); !errors.Is(err, ErrNoJob) {
		t.Errorf("a job that is not there: %v", err)
	}
	if _, err := fake(t, "exit 1").Job(ctx, 7); err == nil || errors.Is(err, ErrNoJob) {
		t.Errorf("a controller that is away is not a job that is gone: %v", err)
	}
	// 20.11 ends with 0 all the same.
	if _, err := fake(t, "[ \"$1\" = ping ] && { echo 'Slurmctld(primary) at ctl is DOWN'; exit 0; }; exit 1").Job(ctx, 7); err == nil || errors.Is(err, ErrNoJob) || !strings.Contains(err.Error(), "ctl is DOWN") {
		t.Errorf("a controller of 20.11 that is away: %v", err)
	}
	if err := fake(t, "echo 'Slurmctld(primary) at ctl is DOWN'; echo 'Slurmctld(backup) at ctl2 is UP'").Ping(ctx); err != nil {
		t.Errorf("one of two controllers is away: %v", err)
	}
	if err := fake(t, "head -c 3000000 /dev/zero").EachJob(ctx, func(Job) {}); err == nil {
		t.Error("a line of 3 MB was taken")
	}
}

func TestVersion(t *testing.T) {
	v, err := fake(t, "echo slurm-wlm 22.05.8").Version(context.Background())
	if err != nil || v != (release.Version{Major: 22, Minor: 5, Micro: 8}) {
		t.Errorf("%v %v", v, err)
	}
}

func ExampleJob_Token() {
	fmt.Println(Job{AdminComment: "site,gresize:v1:abc-1 "}.Token())
	// Output: abc-1
}

// TestAnotherLanguage: a scontrol that speaks German is judged by its exit code, and what it prints is no job.
func TestAnotherLanguage(t *testing.T) {
	ctx := t.Context()
	c := fake(t, `case "$*" in
ping) echo 'Slurmctld(primär) auf ctl ist ERREICHBAR' ;;
*--jobs=7) echo 'slurm_load_jobs Fehler: Ungültige Job-ID angegeben' >&2; exit 1 ;;
*--states=all*) printf 'AuftragsId=7 Auftragsname=x Benutzer=a(1) Zustand=WARTEND\nKeine Aufträge im System\n' ;;
*update*) echo 'Ungültige Merkmalsangabe' >&2; exit 1 ;;
--version) echo 'slurm-wlm Ausgabe 22.05.8' ;;
esac
`)
	if err := c.Ping(ctx); err != nil {
		t.Errorf("ping: %v", err)
	}
	if _, err := c.Job(ctx, 7); !errors.Is(err, ErrNoJob) {
		t.Errorf("a job that is not there: %v", err)
	}
	if err := c.EachJob(ctx, func(j Job) { t.Errorf("read as a job: %+v", j) }); err != nil {
		t.Errorf("a queue of words: %v", err)
	}
	var failed *CommandError
	if err := c.Update(ctx, 1, 7, nil, Start{}); !errors.As(err, &failed) || failed.ExitCode != 1 || !strings.Contains(err.Error(), "Ungültige") {
		t.Errorf("a refused update: %v", err)
	}
	if v, err := c.Version(ctx); err == nil && v != (release.Version{Major: 22, Minor: 5, Micro: 8}) {
		t.Errorf("version %s", v)
	}
}

// TestEnds has every state that Slurm prints from 20.11 to 26.05, and one that it may print some day: only a known end is one.
func TestEnds(t *testing.T) {
	for state, want := range map[string]bool{"PENDING": false, "RUNNING": false, "SUSPENDED": false, "COMPLETING": false, "STAGE_OUT": false, "CONFIGURING": false, "EXPEDITING": false, "RESIZING": false, "REQUEUED": false, "REQUEUED_CRON": false,
		"REQUEUE_FED": false, "REQUEUE_HOLD": false, "SPECIAL_EXIT": false, "STOPPED": false, "RESV_DEL_HOLD": false, "SIGNALING": false, "": false, "HIBERNATING": false,
		"COMPLETED": true, "CANCELLED": true, "FAILED": true, "TIMEOUT": true, "NODE_FAIL": true, "PREEMPTED": true, "BOOT_FAIL": true, "DEADLINE": true, "OUT_OF_MEMORY": true, "REVOKED": true} {
		if got := (Job{State: state}).Ended(); got != want {
			t.Errorf("%q ended: %v", state, got)
		}
	}
}
