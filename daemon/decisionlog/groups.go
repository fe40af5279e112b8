package decisionlog

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/slurm/request"
)

// Group is a number of jobs that are alike in what a report asks of them.
type Group struct {
	Asked       request.Request
	Mode, State string
	Verdict     decision.Verdict // empty: nothing was decided
	Code        string
	// Now is what a rewrite asks for.
	Now  request.Request
	Jobs int64
	// Tasks are those of arrays, one for any other job.
	Tasks int64
	// LimitedJobs gave a time limit; LimitMinutes is the sum of theirs, of each task. UnlimitedJobs asked for none. Of the others it is not known.
	LimitedJobs, LimitMinutes, UnlimitedJobs int64
}

// Span is what a number of jobs have in common beside their groups.
type Span struct {
	Jobs, Tasks, Users int64
	First, Last        time.Time // of their submissions
}

// groupsQuery walks through one index in its own order: no job's row is read, and nothing is sorted.
func (f Filter) groupsQuery() (query string, args []any) {
	condition, _, args := f.where()
	// A column that is known to be one value is taken out of the groups by SQLite, which then no longer sees that the index has them in order.
	condition = strings.NewReplacer("verdict = ?", "+verdict = ?", "state = ?", "+state = ?").Replace(condition)
	// #nosec G202 -- condition is of our words and placeholders alone
	return `SELECT coalesce(a.body, '{}'), g.mode, g.state, coalesce(g.verdict, ''), g.code, coalesce(n.body, '{}'), g.jobs, g.tasks, g.limited, g.minutes, g.unlimited, g.first, g.last
		FROM (SELECT asked_id, now_id, mode, state, verdict, code, count(*) AS jobs, sum(tasks) AS tasks, total(time_limit_minutes > 0) AS limited,
			sum(iif(time_limit_minutes > 0, time_limit_minutes * tasks, 0)) AS minutes, total(time_limit_minutes < 0) AS unlimited, min(submitted_at) AS first, max(submitted_at) AS last
			FROM jobs INDEXED BY jobs_by_group WHERE ` + condition + ` GROUP BY asked_id, now_id, mode, state, verdict, code) g
		LEFT JOIN requests a ON a.id = g.asked_id LEFT JOIN requests n ON n.id = g.now_id ORDER BY g.jobs DESC, 1, 2, 3, 4, 5, 6`, args
}

// usersQuery counts the users of the jobs that a filter chooses, in the index that serves it.
func (f Filter) usersQuery() (query string, args []any) {
	condition, index, args := f.where()
	if index == "jobs_by_time" {
		index = "jobs_by_user" // which has them in order
	}
	// #nosec G202 -- condition is of our words and placeholders alone
	return `SELECT count(*) FROM (SELECT DISTINCT uid FROM jobs INDEXED BY ` + index + ` WHERE ` + condition + `)`, args
}

// Groups sums up the jobs that a filter chooses.
func (l *Log) Groups(ctx context.Context, f Filter) (Span, []Group, error) {
	fail := func(err error) (Span, []Group, error) { return Span{}, nil, fmt.Errorf("sum up jobs: %w", err) }
	var span Span
	query, args := f.usersQuery()
	if err := l.db.QueryRowContext(ctx, query, args...).Scan(&span.Users); err != nil {
		return fail(err)
	}
	query, args = f.groupsQuery()
	rows, err := l.db.QueryContext(ctx, query, args...)
	if err != nil {
		return fail(err)
	}
	var groups []Group
	if err := each(rows, func() error {
		var g Group
		var asked, now string
		var first, last int64
		if err := rows.Scan(&asked, &g.Mode, &g.State, &g.Verdict, &g.Code, &now, &g.Jobs, &g.Tasks, counted(&g.LimitedJobs), &g.LimitMinutes, counted(&g.UnlimitedJobs), &first, &last); err != nil {
			return err
		}
		if from := instant(first); span.Jobs == 0 || from.Before(span.First) {
			span.First = from
		}
		if to := instant(last); to.After(span.Last) {
			span.Last = to
		}
		span.Jobs, span.Tasks = span.Jobs+g.Jobs, span.Tasks+g.Tasks
		if err := json.Unmarshal([]byte(asked), &g.Asked); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(now), &g.Now); err != nil {
			return err
		}
		groups = append(groups, g)
		return nil
	}); err != nil {
		return fail(err)
	}
	return span, groups, nil
}
