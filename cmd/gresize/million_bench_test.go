package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
)

// millionLog is a log with a million decisions, filled by the text that docs/decisionlog.md measures with, and the programs to read it with.
func millionLog(b *testing.B) (db, gresize, sqlite string) {
	b.Helper()
	dir := b.TempDir()
	db, gresize = filepath.Join(dir, "log.db"), filepath.Join(dir, "gresize")
	sqlite, err := exec.LookPath("sqlite3")
	if err != nil {
		b.Fatalf("%v: `tools/setup slurm` installs it", err)
	}
	l, err := decisionlog.Open(b.Context(), db)
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	fill, err := os.ReadFile(filepath.Join("..", "..", "tools", "decisionlog", "fill.sql"))
	if err != nil {
		b.Fatal(err)
	}
	filling := exec.Command(sqlite, db)
	filling.Stdin = strings.NewReader("PRAGMA synchronous = off; CREATE TEMP TABLE fill AS SELECT 1000000 AS jobs; BEGIN;\n" + string(fill) + "COMMIT; PRAGMA wal_checkpoint(TRUNCATE);")
	if out, err := filling.CombinedOutput(); err != nil {
		b.Fatalf("fill: %v\n%s", err, out)
	}
	if out, err := exec.Command("go", "build", "-o", gresize, ".").CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	return db, gresize, sqlite
}

// BenchmarkMillionDecisions prints what a person waits for, the start of the program included: a page by each filter, and the report, beside plain sqlite3 with the
// question that docs/decisionlog.md would have one type. Both are asked by turns, so that the load of the machine falls on both.
func BenchmarkMillionDecisions(b *testing.B) {
	db, gresize, sqlite := millionLog(b)
	since, until := "2026-11-25", "2026-11-26"
	page := func(where string) string {
		return "SELECT * FROM decision_list WHERE " + where + " ORDER BY id DESC LIMIT 50"
	}
	for _, c := range []struct {
		name  string
		args  []string
		query string
	}{
		{"log", []string{"log"}, page("1")},
		{"log by user", []string{"log", "--user", "1007"}, page("uid = 1007")},
		{"log by rare user", []string{"log", "--user", "7"}, page("uid = 7")},
		{"log by time", []string{"log", "--since", since, "--until", until}, page("submitted_utc >= '" + since + "' AND submitted_utc < '" + until + "'")},
		{"log by verdict", []string{"log", "--verdict", "rewrite"}, page("verdict = 'rewrite'")},
		{"log by partition", []string{"log", "--partition", "part3"}, page("partition_name = 'part3'")},
		{"log by all", []string{"log", "--user", "1007", "--partition", "part3", "--verdict", "rewrite", "--since", since}, page("uid = 1007 AND partition_name = 'part3' AND verdict = 'rewrite' AND submitted_utc >= '" + since + "'")},
		{"log by verdict that a partition has not", []string{"log", "--partition", "part4", "--verdict", "rewrite"}, page("partition_name = 'part4' AND verdict = 'rewrite'")},
		{"report", []string{"report"}, "SELECT asked_text, mode, state, verdict, code, after_text, count(*), sum(time_limit_minutes) FROM decision_list GROUP BY 1, 2, 3, 4, 5, 6"},
	} {
		b.Run(c.name, func(b *testing.B) {
			took := map[string][]time.Duration{}
			run := func(name string, args ...string) {
				cmd := exec.Command(name, args...)
				var out, errs bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &errs
				start := time.Now()
				if err := cmd.Run(); err != nil {
					b.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, errs.String())
				}
				took[name] = append(took[name], time.Since(start))
			}
			for b.Loop() {
				run(gresize, slices.Concat(c.args, []string{"--db", db, "--config", filepath.Join(filepath.Dir(db), "none.toml")})...)
				run(sqlite, "-readonly", db, c.query)
			}
			median := func(name string) float64 {
				slices.Sort(took[name])
				return float64(took[name][len(took[name])/2]) / float64(time.Millisecond)
			}
			ours, plain := median(gresize), median(sqlite)
			b.ReportMetric(0, "ns/op") // of both together it says nothing
			b.ReportMetric(ours, "gresize-ms")
			b.ReportMetric(plain, "sqlite3-ms")
			b.ReportMetric(ours/plain, "ratio")
			b.Logf("%-42s %8.1f ms, sqlite3 %8.1f ms, ratio %.3f", c.name, ours, plain, ours/plain)
		})
	}
}
