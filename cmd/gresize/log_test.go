package main

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/slurm/request"
)

// filterLog is a log with five jobs, a day apart from each other.
func filterLog(t *testing.T) string {
	t.Helper()
	path, l := newLog(t)
	defer l.Close()
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i, j := range []struct {
		name, partition string
		uid             uint32
		verdict         decision.Verdict
	}{
		{"one", "gpu", 4_000_000_001, decision.Rewrite},
		{`=cmd|' /C calc'!A0`, "gpu", 4_000_000_002, decision.Keep},
		{"three, \"quoted\"\nline", "", 4_000_000_001, decision.LeaveAlone},
		{"four", "big,gpu", 4_000_000_001, decision.Rewrite},
		{"five", "gpu", 4_000_000_001, ""},
	} {
		at := start.AddDate(0, 0, i)
		var d *decisionlog.Decision
		if j.verdict != "" {
			d = &decisionlog.Decision{At: at, Verdict: j.verdict, Code: "code", Reason: "because", NeedBytes: 3 << 29, Change: request.Change{Result: request.Request{Features: "gpu12g"}}}
		}
		if _, err := l.AddJobs(t.Context(), decisionlog.NewJob{Job: decisionlog.Job{Token: j.name, Mode: "shadow", UID: j.uid, Name: j.name, Partition: j.partition, Finished: true, SubmittedAt: at, TimeLimitMinutes: decisionlog.NoTimeLimit,
			Asked: request.Request{TresPerNode: "gres:gpu:1"}}, First: decisionlog.Event{At: at, State: "shadowed"}, Decision: d}); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestLogFilters(t *testing.T) {
	db := filterLog(t)
	for _, c := range []struct {
		args string
		code int
		ids  []int
		says string
	}{
		{"", exitOK, []int{5, 4, 3, 2, 1}, ""},
		{"--user 4000000002", exitOK, []int{2}, ""},
		{"--partition gpu", exitOK, []int{5, 2, 1}, ""},
		{"--partition=", exitOK, []int{3}, ""},
		{"--verdict rewrite", exitOK, []int{4, 1}, ""},
		{"--verdict leave-alone", exitOK, []int{3}, ""},
		{"--verdict leave_alone", exitOK, []int{3}, ""},
		{"--verdict oom", exitOK, nil, ""},
		{"--since 2026-11-22T12:00:00Z", exitOK, []int{5, 4, 3}, ""},
		{"--until 2026-11-22T12:00:00Z", exitOK, []int{2, 1}, ""},
		{"-S 2026-11-21 -E 2026-11-24 -u 4000000001 --verdict rewrite", exitOK, []int{4}, ""},
		{"--state shadowed", exitOK, []int{5, 4, 3, 2, 1}, ""},
		{"--state left-alone", exitOK, nil, ""},
		{"--state open", exitOK, nil, ""},
		{"--state asleep", exitUsage, nil, "left-alone"},
		{"-n 2", exitOK, []int{5, 4}, ""},
		{"-n 2 --before 4", exitOK, []int{3, 2}, ""},
		{"--before 1", exitOK, nil, ""},
		{"--before 99", exitError, nil, "row 99"},
		{"--verdict reject", exitUsage, nil, "leave-alone"},
		{"--since tomorrow", exitUsage, nil, "2026-11-28T14:30"},
		{"--since -1h", exitUsage, nil, "2026-11-28T14:30"},
		{"--since 0001-01-01", exitUsage, nil, "no time"},
		{"--since 2026-11-22 --until 2026-11-22", exitUsage, nil, "not before"},
		{"--json", exitUsage, nil, "one of them"},
	} {
		args := append([]string{"log", "--db", db, "--csv"}, strings.Fields(c.args)...)
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs); code != c.code || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%s: exit code %d, want %d saying %q: %s", c.args, code, c.code, c.says, errs.String())
		}
		if c.code != exitOK {
			continue
		}
		rows, err := csv.NewReader(&out).ReadAll()
		if err != nil || len(rows) == 0 || !slices.Equal(rows[0], logColumns) {
			t.Errorf("%s: %v %v", c.args, rows, err)
			continue
		}
		var ids []int
		for _, row := range rows[1:] {
			id, err := strconv.Atoi(row[0])
			if err != nil {
				t.Error(err)
			}
			ids = append(ids, id)
		}
		if !slices.Equal(ids, c.ids) {
			t.Errorf("%s: jobs %v, want %v", c.args, ids, c.ids)
		}
	}
}

func TestCSVIsHarmlessAndComplete(t *testing.T) {
	db := filterLog(t)
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"log", "--db", db, "--csv"}, &out, &errs); code != exitOK {
		t.Fatal(errs.String())
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := func(row []string, name string) string { return row[slices.Index(logColumns, name)] }
	if got := column(rows[4], "job_name"); got != `'=cmd|' /C calc'!A0` {
		t.Errorf("a spreadsheet would run %q", got)
	}
	if got := column(rows[3], "job_name"); got != `three, "quoted" line` {
		t.Errorf("%q", got)
	}
	last := rows[5]
	for name, want := range map[string]string{"time_limit_minutes": "-1", "need_gib": "1.500", "now": "--constraint=gpu12g", "asked": "'--gres=gpu:1", "submitted": "2026-11-20T12:00:00Z", "user": "4000000001", "verdict": "rewrite"} {
		if want = strings.TrimPrefix(want, "'"); strings.TrimPrefix(column(last, name), "'") != want {
			t.Errorf("%s is %q, want %q", name, column(last, name), want)
		}
	}
	out.Reset()
	if code := run(t.Context(), []string{"log", "--db", db, "--user", "4"}, &out, &errs); code != exitOK || !strings.Contains(out.String(), "No jobs match.") {
		t.Error(out.String())
	}
}
