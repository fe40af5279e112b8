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

	"github.com/gresize/gresize/slurm/request"
)

// record is what scontrol 22.05.8 prints for a held job, on one line.
const record = `JobId=7 JobName=my run UserId=al(ice)(1001) GroupId=users(100) MCS_label=N/A Priority=4294901759 Nice=0 Account=(null) QOS=(null) JobState=PENDING Reason=BeginTime Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:00 TimeLimit=00:05:00 TimeMin=N/A SubmitTime=2026-11-28T02:28:41 EligibleTime=2026-11-28T02:29:41 AccrueTime=Unknown StartTime=2026-11-28T02:29:41 EndTime=2026-11-28T02:34:41 Deadline=N/A SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-28T02:28:41 Scheduler=Main Partition=gpu AllocNode:Sid=localhost:5215 ReqNodeList=(null) ExcNodeList=(null) NodeList= NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=1,mem=200M,node=1,billing=1 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* MinCPUsNode=1 MinMemoryNode=200M MinTmpDiskNode=0 Features=gpu80g DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=/home/a b/job.sh WorkDir=/home/a b AdminComment=site note,gresize:v1:xfednkyf56  Comment=hello world StdErr=/home/a b/slurm-7.out StdIn=/dev/null StdOut=/home/a b/slurm-7.out Power= CpusPerTres=gres:gpu:2 TresPerNode=gres:gpu:1`

func TestParseJob(t *testing.T) {
	j, ok := ParseJob([]byte(record))
	want := Job{ID: 7, Name: "my run", UserID: 1001, State: "PENDING", Reason: "BeginTime", Partition: "gpu", ExitCode: "0:0", StdOut: "/home/a b/slurm-7.out", StdErr: "/home/a b/slurm-7.out",
		EligibleAt: time.Date(2026, 11, 28, 2, 29, 41, 0, time.UTC), StartAt: time.Date(2026, 11, 28, 2, 29, 41, 0, time.UTC),
		AdminComment: "site note,gresize:v1:xfednkyf56 ", Request: request.Request{TresPerNode: "gres:gpu:1", CpusPerTres: "gres:gpu:2", Features: "gpu80g", MemPerNodeMiB: 200}}
	if !ok || j != want {
		t.Errorf("got  %+v\nwant %+v", j, want)
	}
	if j.Token() != "xfednkyf56" {
		t.Errorf("token %q", j.Token())
	}
	if !j.Pending() || j.Ended() {
		t.Error("a pending job that is not pending")
	}
}

func TestParseJobRefusesForgeries(t *testing.T) {
	for name, line := range map[string]string{
		"named like a token": strings.Replace(record, "my run", "x AdminComment=gresize:v1:stolen", 1),
		"named like a state": strings.Replace(record, "my run", "x JobState=RUNNING", 1),
		"named like an id":   strings.Replace(record, "my run", "x JobId=8", 1),
		"comment like gres":  strings.Replace(record, "hello world", "x TresPerNode=gres:gpu:9", 1),
	} {
		if j, ok := ParseJob([]byte(line)); !ok || !j.Ambiguous {
			t.Errorf("%s: read as certain: %+v", name, j)
		}
	}
	for _, line := range []string{"", "JobId=", "JobId=x JobName=a UserId=a(1) JobState=PENDING", "JobId=4294967296 UserId=a(1) JobState=PENDING", "JobId=7 JobName=a",
		"JobId=7 UserId=alice JobState=PENDING", " JobId=7 UserId=a(1) JobState=PENDING", "JobId=7 UserId=a(-1) JobState=PENDING", "No jobs in the system"} {
		if j, ok := ParseJob([]byte(line)); ok {
			t.Errorf("%q was read as %+v", line, j)
		}
	}
}

func TestParseMiB(t *testing.T) {
	for text, want := range map[string]uint64{"200M": 200, "3G": 3072, "2T": 2 << 20, "0": 0, "1.50G": 1536, "48.83G": 50002, "NaNM": 0, "InfM": 0, "": 0, "M": 0, "x": 0, "-1M": 0, "99999999999999999999M": 0} {
		if got := parseMiB(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestParseElapsed(t *testing.T) {
	for text, want := range map[string]time.Duration{"00:00:00": 0, "00:01:30": 90 * time.Second, "2-03:00:01": 51*time.Hour + time.Second, "INVALID": 0, "": 0, "1:2": 0, "-1:00:00": 0, "9999999999-00:00:00": 0} {
		if got := parseElapsed(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestPlainName(t *testing.T) {
	for name, want := range map[string]bool{"train": true, "my run": true, "lr=0.1": true, "Größe": true, "": true, "a JobState=X": false, "a\nb": false, "x UserId=root(0)": false, "\x1b[2J": false, "trailing ": true} {
		if PlainName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

func FuzzParseJob(f *testing.F) {
	f.Add([]byte(record))
	f.Add([]byte("JobId=7 UserId=a(1) JobState=PENDING"))
	f.Add([]byte("JobId=7 JobName== UserId=(1) JobState=\x00 AdminComment=gresize:v1:"))
	f.Fuzz(func(t *testing.T, line []byte) {
		j, ok := ParseJob(line)
		if ok && (j.State == "" || !strings.HasPrefix(string(line), "JobId=")) {
			t.Fatalf("%q was read as %+v", line, j)
		}
		for _, c := range j.Token() {
			if !strings.ContainsRune("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_", c) {
				t.Fatalf("token %q", j.Token())
			}
		}
		PlainName(string(line))
	})
}

// fake writes a script in place of scontrol.
func fake(t *testing.T, script string) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "scontrol")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
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
	if err := fake(t, "head -c 3000000 /dev/zero").EachJob(ctx, func(Job) {}); err == nil {
		t.Error("a line of 3 MB was taken")
	}
}

func TestJobSeesThroughLineBreaks(t *testing.T) {
	forged := strings.Replace(record, "JobId=7", "JobId=7 JobName=a\nJobId=7", 1)
	task := strings.Replace(record, "JobId=7", "JobId=8 ArrayJobId=7 ArrayTaskId=3", 1)
	whole := strings.Replace(record, "JobId=7", "JobId=7 ArrayJobId=7 ArrayTaskId=4-9", 1)
	stranger := strings.Replace(record, "JobId=7", "JobId=9 ArrayJobId=5 ArrayTaskId=3", 1)
	for text, ambiguous := range map[string]bool{record: false, forged: true, whole + "\n" + task: false, task + "\n" + whole: false, whole + "\n" + stranger: true, whole + "\n" + whole: true} {
		path := filepath.Join(t.TempDir(), "out")
		if err := os.WriteFile(path, []byte(text+"\n\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		j, err := fake(t, "cat "+path+"\n").Job(context.Background(), 7)
		if err != nil || j.Ambiguous != ambiguous {
			t.Errorf("%v: %+v %v", ambiguous, j, err)
		}
	}
}

func TestVersion(t *testing.T) {
	v, err := fake(t, "echo slurm-wlm 22.05.8").Version(context.Background())
	if err != nil || v != (request.Version{Major: 22, Minor: 5, Micro: 8}) {
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
*"show job 7") echo 'slurm_load_jobs Fehler: Ungültige Job-ID angegeben' >&2; exit 1 ;;
*"show job") printf 'AuftragsId=7 Auftragsname=x Benutzer=a(1) Zustand=WARTEND\nKeine Aufträge im System\n' ;;
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
	if v, err := c.Version(ctx); err == nil && v != (request.Version{Major: 22, Minor: 5, Micro: 8}) {
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
