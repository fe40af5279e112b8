package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gresize/gresize/slurm/request"
)

// printed is a record as squeue prints it: each value to the right of its place, cut where it is longer.
func printed(columns []column, values map[string]string) string {
	var b strings.Builder
	for _, c := range columns {
		value := fmt.Sprintf("%*s", c.width-len(values[c.name])+len([]rune(values[c.name])), values[c.name]) // Go counts runes, C bytes
		b.WriteString(value[:c.width])
	}
	return b.String() + "\n"
}

// held are the values of a held job as squeue 22.05.8 prints them.
func held() map[string]string {
	return map[string]string{"JobID": "7", "JobArrayID": "7", "UserID": "1001", "State": "PENDING", "Reason": "BeginTime", "Partition": "gpu", "Account": "(null)", "QOS": "(null)", "EligibleTime": "2026-11-28T02:29:41", "StartTime": "2026-11-28T02:29:41",
		"BatchHost": "n/a", "RestartCnt": "0", "TimeUsed": "0:00", "exit_code": "0", "MinMemory": "200M", "cpus-per-tres": "gres:gpu:2", "mem-per-tres": "N/A", "tres-per-job": "N/A", "tres-per-node": "gres:gpu:1", "tres-per-socket": "N/A",
		"tres-per-task": "N/A", "Feature": "gpu80g", "Name": "my run", "admin_comment": "site note,gresize:v1:xfednkyf56 "}
}

func readAll(t interface{ Fatal(...any) }, text string) (all []Job) {
	if err := readQueue(strings.NewReader(text), columns, func(j Job) { all = append(all, j) }); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestReadQueue(t *testing.T) {
	want := Job{ID: 7, Name: "my run", UserID: 1001, State: "PENDING", Reason: "BeginTime", Partition: "gpu", ExitCode: "0:0",
		EligibleAt: time.Date(2026, 11, 28, 2, 29, 41, 0, time.UTC), StartAt: time.Date(2026, 11, 28, 2, 29, 41, 0, time.UTC),
		AdminComment: "site note,gresize:v1:xfednkyf56 ", Request: request.Request{TresPerNode: "gres:gpu:1", CpusPerTres: "gres:gpu:2", Features: "gpu80g", MemPerNodeMiB: 200}}
	if got := readAll(t, printed(columns, held())); !slices.Equal(got, []Job{want}) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got, ok, err := ReadJob(strings.NewReader(printed(wide, held())), 7); err != nil || !ok || got != want {
		t.Errorf("alone: %+v %v %v", got, ok, err)
	}
	if want.Token() != "xfednkyf56" || !want.Pending() || want.Ended() {
		t.Errorf("token %q", want.Token())
	}
}

func TestReadQueueOfOtherReleases(t *testing.T) {
	for name, c := range map[string]struct {
		column, value string
		right         func(Job) bool
	}{
		"an exit code before 23.02": {"exit_code", "256", func(j Job) bool { return j.ExitCode == "1:0" }},
		"a signal before 23.02":     {"exit_code", "9", func(j Job) bool { return j.ExitCode == "0:9" }},
		"an exit code from 23.02":   {"exit_code", "0:15", func(j Job) bool { return j.ExitCode == "0:15" }},
		"a large user id":           {"UserID", "-294967296", func(j Job) bool { return j.UserID == 4_000_000_000 }},
		"a large one from 26.05":    {"UserID", "4000000000", func(j Job) bool { return j.UserID == 4_000_000_000 }},
		"a task of an array":        {"JobArrayID", "5_3", func(j Job) bool { return j.ArrayID == 5 }},
		"tasks that wait":           {"JobArrayID", "7_[4-9,11,13,15,17%2]...", func(j Job) bool { return j.ArrayID == 7 }},
		"a part of a het job":       {"JobArrayID", "7+0", func(j Job) bool { return j.ArrayID == 0 }},
		"a state of some day":       {"State", "HIBERNATING", func(j Job) bool { return !j.Ended() && !j.Pending() }},
		"a node":                    {"BatchHost", "gpu1", func(j Job) bool { return j.NodeList == "gpu1" }},
		"Latin-1":                   {"Name", "Gr\xf6\xdfe", func(j Job) bool { return j.Name == "Gr\xf6\xdfe" && !j.Ambiguous }},
		"a long constraint":         {"Feature", strings.Repeat("a100|", 100) + "v100", func(j Job) bool { return j.Ambiguous }},
		"a long name":               {"Name", strings.Repeat("x", 500), func(j Job) bool { return !j.Ambiguous && len(j.Name) == 80 }},
		"a token behind a long note of the site": {"admin_comment", strings.Repeat("note ", 300) + "gresize:v1:abc",
			func(j Job) bool { return j.Ambiguous }},
	} {
		values := held()
		values[c.column] = c.value
		if got := readAll(t, printed(columns, values)); len(got) != 1 || !c.right(got[0]) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, line := range map[string]string{"empty": "", "words": "No jobs in the system\n", "short": printed(columns, held())[1:], "long": "x" + printed(columns, held())[:len(printed(columns, held()))-1]} {
		var got []Job
		err := readQueue(strings.NewReader(line), columns, func(j Job) { got = append(got, j) })
		if len(got) > 0 || err != nil && name != "long" {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	for column, value := range map[string]string{"JobID": "x", "UserID": "alice", "State": ""} {
		values := held()
		values[column] = value
		if got := readAll(t, printed(columns, values)); len(got) > 0 {
			t.Errorf("%s=%q was read as %+v", column, value, got)
		}
	}
}

// imitation draws a text that was made to be taken for a job of another user, whole or in pieces.
func imitation() *rapid.Generator[string] {
	forged := held()
	forged["JobID"], forged["JobArrayID"], forged["UserID"], forged["State"] = "66", "66", "1000", "COMPLETED"
	whole := strings.TrimSuffix(printed(columns, forged), "\n")
	return rapid.OneOf(
		rapid.Just("\n"+whole+"\n"), rapid.Just(whole), rapid.Just("\n"+whole), rapid.Just("x\nJobId=66 JobName=z UserId=alice(1000) JobState=COMPLETED AdminComment=gresize:v1:stolen\ny"),
		rapid.Custom(func(t *rapid.T) string { // a tail of a forged record, which the true rest of the line is to complete
			return "\n" + whole[rapid.IntRange(0, len(whole)).Draw(t, "from"):]
		}),
		rapid.Custom(func(t *rapid.T) string { // a head, which the next record is to complete
			return whole[:rapid.IntRange(0, len(whole)).Draw(t, "to")]
		}),
		rapid.StringOf(rapid.SampledFrom([]rune{' ', '\n', '\r', '6', 'x', 0})), rapid.String(),
	)
}

// TestNoTextMakesAJob: three jobs of a hostile user, every text of which he chose, stand around one of another user. Whatever he writes, no job is read but those that are there, and the
// other's is read as it is.
func TestNoTextMakesAJob(t *testing.T) {
	// What slurmctld itself writes: ids, users, states, times, numbers. Everything else is taken for the user's, AdminComment and reasons of the site's own filters included.
	controllers := []string{"JobID", "JobArrayID", "UserID", "State", "EligibleTime", "StartTime", "RestartCnt", "TimeUsed", "exit_code", "MinMemory"}
	victim := held()
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		true_ := map[uint32]uint32{7: 1001}
		for i := range 4 {
			if i == 2 {
				text.WriteString(printed(columns, victim))
				continue
			}
			hostile := held()
			hostile["JobID"], hostile["JobArrayID"], hostile["UserID"] = fmt.Sprint(100+i), fmt.Sprint(100+i), "2002"
			true_[uint32(100+i)] = 2002
			for _, c := range columns {
				if !slices.Contains(controllers, c.name) && rapid.Bool().Draw(t, "hostile "+c.name) {
					hostile[c.name] = imitation().Draw(t, c.name)
				}
			}
			text.WriteString(printed(columns, hostile))
		}
		seen := map[uint32]bool{}
		for _, j := range readAll(t, text.String()) {
			if true_[j.ID] != j.UserID || seen[j.ID] {
				t.Fatalf("made up: %+v\nin %q", j, text.String())
			}
			seen[j.ID] = true
			if j.ID == 7 && (j.State != "PENDING" || j.Token() != "xfednkyf56" || j.Ambiguous) {
				t.Fatalf("the other's job: %+v", j)
			}
		}
		if !seen[7] {
			t.Fatalf("the other's job is not seen in %q", text.String())
		}
	})
}

func FuzzReadQueue(f *testing.F) {
	f.Add([]byte(printed(columns, held())))
	f.Add([]byte("x\n" + printed(columns, held()) + "\x00\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if j, ok, err := ReadJob(strings.NewReader(string(text)), 7); ok && (err != nil || j.ID != 7) {
			t.Fatalf("%q was read as %+v, %v", text, j, err)
		}
		_ = ReadQueue(strings.NewReader(string(text)), func(j Job) {
			if j.ID == 0 || j.State == "" {
				t.Fatalf("%q was read as %+v", text, j)
			}
			for _, c := range j.Token() {
				if !strings.ContainsRune("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_", c) {
					t.Fatalf("token %q", j.Token())
				}
			}
		})
	})
}

func TestJobIsTheOneThatWasAskedFor(t *testing.T) {
	task := held()
	task["JobID"], task["JobArrayID"] = "8", "7_3"
	other := held()
	other["JobID"] = "9"
	path := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(path, []byte(printed(wide, task)+printed(wide, held())+printed(wide, other)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := fake(t, "cat "+path+"\n")
	if j, err := c.Job(context.Background(), 7); err != nil || j.ID != 7 {
		t.Errorf("%+v %v", j, err)
	}
	if j, err := c.Job(context.Background(), 10); !errors.Is(err, ErrNoJob) {
		t.Errorf("%+v %v", j, err)
	}
}

// TestOutputFiles reads what scontrol prints of an array from 25.11 on: SubmitLine as it was typed, StdErr empty, keys that nobody has seen before.
func TestOutputFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	text := "JobId=8 ArrayJobId=7 ArrayTaskId=3 JobName=x\n   StdErr=/other\n   StdOut=/other\n\nJobId=7 ArrayJobId=7 JobName=a\n   SubmitLine=sbatch --wrap echo\n   StdErr=/fake\nx\n   WorkDir=/w\n   StdErr=\n   StdIn=/dev/null\n" +
		"   StdOut=/home/a b/slurm-7.out\n   GresEnforceBind=Yes\n   NewKey=1\n\nJobId=70 JobName=x\n   StdOut=/other\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := fake(t, "cat "+path+"\n").OutputFiles(context.Background(), 7)
	if err != nil || stdout != "/home/a b/slurm-7.out" || stderr != "" {
		t.Errorf("%q %q %v", stdout, stderr, err)
	}
}

// TestUnreadable asks squeues that print all columns, that know one not, and that do not answer.
func TestUnreadable(t *testing.T) {
	squeue := func(script string) *Client {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "squeue"), []byte("#!/bin/bash\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
		return New(Config{Scontrol: filepath.Join(dir, "scontrol"), Timeout: 5 * time.Second})
	}
	const headings = `for w; do case $w in --Format=*) f=${w#*=};; --noheader) exit 9;; esac; done
IFS=,; for c in $f; do printf '%*s' "${c#*:.}" x; done; echo; echo a record
`
	for _, c := range []struct {
		name, script string
		want         []string
		says         string
	}{
		{"all", headings, nil, ""},
		{"another one not", "case $* in *RestartCnt*) echo 'Invalid job format specification: RestartCnt' >&2; exit 1;; esac\n" + headings, []string{"RestartCnt:.8"}, ""},
		{"another width", strings.Replace(headings, "${c#*:.}", "$((${c#*:.} + 1))", 1), nil, "headings of"},
		{"no slurmctld", "echo 'Unable to contact slurm controller' >&2; exit 1\n", nil, "Unable to contact"},
	} {
		got, err := squeue(c.script).Unreadable(t.Context())
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, c.want) || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q %v, want %q %q", c.name, got, err, c.want, c.says)
		}
	}
}
