package decisionlog

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gresize/gresize/daemon/decision"
)

// planOf is how SQLite goes about a query.
func planOf(t testing.TB, l *Log, query string, args ...any) string {
	t.Helper()
	rows, err := l.db.Query("EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatalf("%v:\n%s", err, query)
	}
	var plan []string
	if err := each(rows, func() error {
		var a, b, c int
		var text string
		err := rows.Scan(&a, &b, &c, &text)
		plan = append(plan, text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}

// TestNoQuestionReadsAllRows asks SQLite how it goes about every question of a report and every page, by each filter: a table is never walked through, and of the
// jobs nothing but what an index holds is read for a sum.
func TestNoQuestionReadsAllRows(t *testing.T) {
	l := filledLog(t, 3000)
	all := filters(3000)
	all["out of memory"], all["open"] = Filter{OutOfMemory: true}, Filter{Open: true}
	for name, f := range all {
		questions := map[string]string{}
		args := map[string][]any{}
		questions["page"], args["page"] = f.pageQuery(50)
		questions["groups"], args["groups"] = f.groupsQuery()
		questions["users"], args["users"] = f.usersQuery()
		outcomes, died, again, cached, shadow, wrong, same := f.truthQueries()
		for question, query := range map[string]string{"outcomes": outcomes, "died": died, "again": again, "cached": cached, "shadow": shadow, "wrong": wrong} {
			questions[question], args[question] = query, same
		}
		for question, query := range questions {
			plan := planOf(t, l, query, args[question]...)
			for line := range strings.SplitSeq(plan, "\n") {
				table := strings.HasPrefix(line, "SCAN ") && !strings.Contains(line, "INDEX")
				// Small by themselves: what a subquery has made of an index, the page, and the jobs that were run again.
				small := map[string]bool{"SCAN page": true, "SCAN g": true, "SCAN r": true, "SCAN (subquery-1)": true, "SCAN CONSTANT ROW": true}[line]
				if table && !small {
					t.Errorf("%s, by %s, walks through a table:\n%s", question, name, plan)
				}
			}
			if question == "groups" && (!strings.Contains(plan, "COVERING INDEX jobs_by_group") || strings.Contains(plan, "GROUP BY")) {
				t.Errorf("groups, by %s, reads jobs or sorts them:\n%s", name, plan)
			}
		}
	}
}

// TestTheGroupsAreThoseOfTheRows compares the sums with those of the tables themselves, for rows that triggers have kept and for filters of each kind.
func TestTheGroupsAreThoseOfTheRows(t *testing.T) {
	const jobs = 3000
	l := filledLog(t, jobs)
	for name, f := range filters(jobs) {
		span, groups, err := l.Groups(t.Context(), f)
		if err != nil {
			t.Fatal(name, err)
		}
		type key struct{ asked, now, state, verdict, code string }
		type sum struct{ jobs, limited, minutes int64 }
		got, want := map[key]sum{}, map[key]sum{}
		for _, g := range groups {
			now := ""
			if g.Verdict == decision.Rewrite {
				now = g.Now.String()
			}
			got[key{g.Asked.String(), now, g.State, string(g.Verdict), g.Code}] = sum{g.Jobs, g.LimitedJobs, g.LimitMinutes}
		}
		users := map[uint32]bool{}
		var n int64
		if err := l.Each(t.Context(), f, func(line Line) error {
			k := key{asked: line.Job.Asked.String(), state: line.Job.State, verdict: string(line.Decision.Verdict), code: line.Decision.Code}
			if line.Decision.Verdict == decision.Rewrite {
				k.now = line.Decision.Change.Result.String()
			}
			s := want[k]
			want[k] = sum{s.jobs + 1, s.limited + 1, s.minutes + line.Job.TimeLimitMinutes*line.Job.Tasks}
			users[line.Job.UID] = true
			n++
			return nil
		}); err != nil {
			t.Fatal(name, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(key{}, sum{})); diff != "" || span.Jobs != n || span.Users != int64(len(users)) {
			t.Errorf("%s: %d of %d jobs, %d of %d users\n%s", name, span.Jobs, n, span.Users, len(users), diff)
		}
	}
}
