package decisionlog

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gresize/gresize/daemon/decision"
)

// filledLog is a log with so many finished jobs, made by the text that the manual's measurements are made with.
func filledLog(t testing.TB, jobs int) *Log {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "tools", "decisionlog", "fill.sql"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "log.db")
	l, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if _, err := l.db.Exec(fmt.Sprintf("CREATE TEMP TABLE fill AS SELECT %d AS jobs; BEGIN; %s COMMIT; PRAGMA wal_checkpoint(TRUNCATE)", jobs, text)); err != nil {
		t.Fatal(err)
	}
	return l
}

func ptr[T any](v T) *T { return &v }

// filters are those of the benchmark: each alone, all together, and those that find little or nothing among a million.
func filters(jobs int) map[string]Filter {
	last := time.UnixMilli(1795000000000 + int64(jobs)*1000)
	return map[string]Filter{
		"none":                  {},
		"user":                  {UID: ptr(uint32(1007))},
		"rare user":             {UID: ptr(uint32(7))},
		"no such user":          {UID: ptr(uint32(1))},
		"partition":             {Partition: ptr("part3")},
		"no such partition":     {Partition: ptr("none")},
		"verdict":               {Verdict: decision.Rewrite},
		"old week":              {Since: last.AddDate(0, 0, -9), Until: last.AddDate(0, 0, -2)},
		"rare user, verdict":    {UID: ptr(uint32(7)), Verdict: decision.Rewrite},
		"verdict, no partition": {Verdict: decision.Keep, Partition: ptr("none")},
		// 200 000 of the partition's jobs are passed over, and none is found.
		"partition without that verdict":    {Partition: ptr("part4"), Verdict: decision.Rewrite},
		"state":                             {State: "left_alone"},
		"no such state":                     {State: "held"},
		"state without that verdict":        {State: "left_alone", Verdict: decision.Rewrite},
		"state of a rare user":              {State: "shadowed", UID: ptr(uint32(7))},
		"all together":                      {UID: ptr(uint32(1007)), Partition: ptr("part3"), Verdict: decision.Rewrite, Since: last.AddDate(0, 0, -9), Until: last},
		"a partition where the user is not": {UID: ptr(uint32(7)), Partition: ptr("part3")},
	}
}

func (f Filter) holds(j Job, v decision.Verdict) bool {
	return (f.UID == nil || j.UID == *f.UID) && (f.Partition == nil || j.Partition == *f.Partition) && (f.Verdict == "" || v == f.Verdict) && (f.State == "" || j.State == f.State) &&
		(f.Since.IsZero() || !j.SubmittedAt.Before(f.Since)) && (f.Until.IsZero() || j.SubmittedAt.Before(f.Until))
}

// TestFiltersChooseAndKeepOrder compares with a filter in plain Go, and asks SQLite whether rows are passed over in an index alone.
func TestFiltersChooseAndKeepOrder(t *testing.T) {
	const jobs = 3000
	l := filledLog(t, jobs)
	ctx := t.Context()
	everything, err := l.List(t.Context(), jobs+1, Filter{})
	if err != nil || len(everything) != jobs {
		t.Fatal(len(everything), err)
	}
	check := func(t interface {
		Fatalf(string, ...any)
	}, name string, f Filter) {
		var want, got []int64
		for _, line := range everything {
			if f.holds(line.Job, line.Decision.Verdict) {
				want = append(want, line.Job.ID)
			}
		}
		if err := l.Each(ctx, f, func(line Line) error { got = append(got, line.Job.ID); return nil }); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %d jobs, want %d", name, len(got), len(want))
		}
		query, args := f.pageQuery(20)
		var plan []string
		rows, err := l.db.Query("EXPLAIN QUERY PLAN "+query, args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := each(rows, func() error {
			var a, b, c int
			var text string
			err := rows.Scan(&a, &b, &c, &text)
			plan = append(plan, text)
			return err
		}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		inner := strings.Join(plan, "\n")
		// The one sort is that of the page itself.
		if !strings.Contains(inner, "COVERING INDEX jobs_by_") || strings.Count(inner, "TEMP B-TREE") > 1 {
			t.Fatalf("%s reads rows that it does not list:\n%s", name, inner)
		}
	}
	for name, f := range filters(jobs) {
		check(t, name, f)
	}
	rapid.Check(t, func(r *rapid.T) {
		var f Filter
		if rapid.Bool().Draw(r, "by user") {
			f.UID = ptr(uint32(1000 + rapid.IntRange(0, 200).Draw(r, "uid")))
		}
		if rapid.Bool().Draw(r, "by partition") {
			f.Partition = ptr(fmt.Sprintf("part%d", rapid.IntRange(0, 5).Draw(r, "partition")))
		}
		f.Verdict = rapid.SampledFrom([]decision.Verdict{"", decision.Rewrite, decision.Keep, decision.LeaveAlone}).Draw(r, "verdict")
		f.State = rapid.SampledFrom([]string{"", "", "left_alone", "shadowed", "held"}).Draw(r, "state")
		instantOf := func(name string) time.Time {
			if n := rapid.Int64Range(-100, jobs+100).Draw(r, name); n > 0 {
				return time.UnixMilli(1795000000000 + n*1000)
			}
			return time.Time{}
		}
		f.Since, f.Until = instantOf("since"), instantOf("until")
		check(r, fmt.Sprintf("%+v", f), f)
	})
}

func TestPlaceOfAJobThatIsGone(t *testing.T) {
	l := filledLog(t, 10)
	place, err := l.PlaceOf(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.db.Exec("PRAGMA foreign_keys = off; DELETE FROM jobs WHERE id = 5"); err != nil {
		t.Fatal(err)
	}
	lines, err := l.List(t.Context(), 2, Filter{Before: place})
	if err != nil || len(lines) != 2 || lines[0].Job.ID != 4 {
		t.Errorf("%+v %v", lines, err)
	}
	if _, err := l.PlaceOf(t.Context(), 5); err == nil || !strings.Contains(err.Error(), "row 5") {
		t.Errorf("%v", err)
	}
}

// BenchmarkFilteredPage prints, for a log of a million decisions, how long one page of 50 takes with the file opened for it.
func BenchmarkFilteredPage(b *testing.B) {
	const jobs = 1_000_000
	l := filledLog(b, jobs)
	var path, name string
	var number int
	if err := l.db.QueryRow("PRAGMA database_list").Scan(&number, &name, &path); err != nil {
		b.Fatal(err)
	}
	all := filters(jobs)
	var names []string
	for n := range all {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		b.Run(n, func(b *testing.B) {
			lines := 0
			for b.Loop() {
				r, err := OpenReadOnly(b.Context(), path)
				if err != nil {
					b.Fatal(err)
				}
				found, err := r.List(b.Context(), 50, all[n])
				if err != nil {
					b.Fatal(err)
				}
				lines = len(found)
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(lines), "lines")
		})
	}
}
