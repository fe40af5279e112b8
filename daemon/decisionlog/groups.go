package decisionlog

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gresize/gresize/slurm/request"
)

// Group is a number of jobs that are alike in what a report asks of them.
type Group struct {
	Asked       request.Request
	Mode, State string
	Verdict     Verdict // empty: nothing was decided
	Code        string
	// Now is what a rewrite asks for.
	Now  request.Request
	Jobs int64
	// LimitedJobs gave a time limit; LimitMinutes is the sum of theirs. UnlimitedJobs asked for none. Of the others it is not known.
	LimitedJobs, LimitMinutes, UnlimitedJobs int64
}

// Span is what a number of jobs have in common beside their groups.
type Span struct {
	Jobs, Users int64
	First, Last time.Time // of their submissions
}

// Groups sums up the jobs that a filter chooses.
func (l *Log) Groups(ctx context.Context, f Filter) (Span, []Group, error) {
	condition, _, args := f.where()
	var span Span
	var first, last int64
	if err := l.db.QueryRowContext(ctx, `SELECT count(*), count(DISTINCT uid), coalesce(min(submitted_at), 0), coalesce(max(submitted_at), 0) FROM jobs WHERE `+condition, args...).Scan(
		&span.Jobs, &span.Users, &first, &last); err != nil {
		return Span{}, nil, fmt.Errorf("sum up jobs: %w", err)
	}
	span.First, span.Last = instant(first), instant(last)
	// #nosec G202 -- condition is of our words and placeholders alone
	rows, err := l.db.QueryContext(ctx, `SELECT j.asked, j.mode, j.state, coalesce(j.verdict, ''), coalesce(d.code, ''), coalesce(json_extract(d.change, '$.result'), '{}'),
		count(*), total(j.time_limit_minutes > 0), total(max(j.time_limit_minutes, 0)), total(j.time_limit_minutes < 0)
		FROM (SELECT * FROM jobs WHERE `+condition+`) j LEFT JOIN decisions d ON d.id = (SELECT max(id) FROM decisions WHERE job = j.id)
		GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 7 DESC, 1, 2, 3, 4, 5, 6`, args...)
	if err != nil {
		return Span{}, nil, fmt.Errorf("sum up jobs: %w", err)
	}
	var groups []Group
	err = each(rows, func() error {
		var g Group
		var asked, now string
		var limited, minutes, unlimited float64
		if err := rows.Scan(&asked, &g.Mode, &g.State, &g.Verdict, &g.Code, &now, &g.Jobs, &limited, &minutes, &unlimited); err != nil {
			return err
		}
		g.LimitedJobs, g.LimitMinutes, g.UnlimitedJobs = int64(limited), int64(minutes), int64(unlimited)
		if err := json.Unmarshal([]byte(asked), &g.Asked); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(now), &g.Now); err != nil {
			return err
		}
		groups = append(groups, g)
		return nil
	})
	if err != nil {
		return Span{}, nil, fmt.Errorf("sum up jobs: %w", err)
	}
	return span, groups, nil
}
