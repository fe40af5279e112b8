package decisionlog

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
)

// Line is one line of the list of decisions.
type Line struct {
	Job        Job       `json:"job"`
	Decision   *Decision `json:"decision,omitempty"`
	Confidence string    `json:"confidence,omitempty"`
	// ComfortableHighBytes is the upper end of the estimate; 0: none.
	ComfortableHighBytes int64 `json:"comfortable_high_bytes,omitempty"`
}

// Filter chooses jobs. What is not given does not restrict.
type Filter struct {
	UID *uint32
	// Partition is compared with the whole text that the owner gave, which may be a list; it is empty for a job that named none.
	Partition *string
	// Verdict is that of the latest decision.
	Verdict decision.Verdict
	// OutOfMemory chooses the jobs that died of GPU memory.
	OutOfMemory bool
	// Open chooses the jobs that gresized still looks after.
	Open bool
	// State is the last one that a job has reached.
	State string
	// Since and Until bound the time of submission: Since is included, Until is not.
	Since, Until time.Time
	// Before chooses only jobs that come after this place in the list, which is newest first.
	Before Place
}

// Place is where a job stands in the list. The zero place is before all of them. It stays good when the job itself is deleted.
type Place struct{ submittedAtMillis, id int64 }

// PlaceOf is where a job stands; it is a job's ID in this log, not Slurm's.
func (l *Log) PlaceOf(ctx context.Context, id int64) (Place, error) {
	p := Place{id: id}
	err := l.db.QueryRowContext(ctx, `SELECT submitted_at FROM jobs WHERE id = ?`, id).Scan(&p.submittedAtMillis)
	if errors.Is(err, sql.ErrNoRows) {
		return Place{}, fmt.Errorf("row %d: %w", id, ErrNotFound)
	}
	if err != nil {
		return Place{}, fmt.Errorf("read job: %w", err)
	}
	return p, nil
}

// where is the condition of a filter over jobs, and the index that serves it best: the filter that leaves the fewest jobs comes first.
func (f Filter) where() (condition, index string, args []any) {
	var terms []string
	index = "jobs_by_time"
	add := func(by, term string, values ...any) {
		terms, args = append(terms, term), append(args, values...)
		if by != "" {
			index = by
		}
	}
	if f.Verdict != "" {
		add("jobs_by_verdict", "verdict = ?", string(f.Verdict))
	}
	if f.Partition != nil {
		add("jobs_by_partition", "partition_name = ?", *f.Partition)
	}
	if f.UID != nil {
		add("jobs_by_user", "uid = ?", *f.UID)
	}
	// Of all filters beside it this index knows, and of no other index is the state a part.
	if f.State != "" {
		add("jobs_by_state", "state = ?", f.State)
	}
	if f.OutOfMemory {
		add("jobs_out_of_memory", "outcome = 'out_of_memory'")
	}
	if f.Open {
		add("jobs_open", "finished = 0")
	}
	if !f.Since.IsZero() {
		add("", "submitted_at >= ?", f.Since.UnixMilli())
	}
	if !f.Until.IsZero() {
		add("", "submitted_at < ?", f.Until.UnixMilli())
	}
	if f.Before != (Place{}) {
		add("", "(submitted_at, id) < (?, ?)", f.Before.submittedAtMillis, f.Before.id)
	}
	if len(terms) == 0 {
		return "1", index, nil
	}
	return strings.Join(terms, " AND "), index, args
}

// pageQuery finds the jobs of a page in an index alone, and only then reads their rows.
func (f Filter) pageQuery(limit int) (query string, args []any) {
	condition, index, args := f.where()
	return `SELECT ` + jobColumns + `, ` + decisionColumns + `, coalesce(e.confidence, ''), coalesce(e.comfortable_high_bytes, 0)
		FROM (SELECT id FROM jobs INDEXED BY ` + index + ` WHERE ` + condition + ` ORDER BY submitted_at DESC, id DESC LIMIT ?) page
		JOIN jobs j ON j.id = page.id LEFT JOIN decisions d ON d.id = (SELECT max(id) FROM decisions WHERE job = j.id) LEFT JOIN estimates e ON e.id = d.estimate
		ORDER BY j.submitted_at DESC, j.id DESC`, append(args, limit)
}

// List returns the latest jobs that a filter chooses, newest first.
func (l *Log) List(ctx context.Context, limit int, f Filter) ([]Line, error) {
	query, args := f.pageQuery(limit)
	rows, err := l.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	var lines []Line
	err = each(rows, func() error {
		var line Line
		var d decisionScan
		job, err := scanJob(rows, append(d.fields(), &line.Confidence, &line.ComfortableHighBytes)...)
		if err != nil {
			return err
		}
		line.Job = job
		line.Decision, err = d.decision()
		lines = append(lines, line)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return lines, nil
}

// pageJobs is how many jobs are read at once: a reader that stops in between must not keep the daemon's WAL from being written back.
const pageJobs = 1000

// Each calls do for every job that a filter chooses, newest first, page by page. Jobs that arrive meanwhile are not seen.
func (l *Log) Each(ctx context.Context, f Filter, do func(Line) error) error {
	return l.eachPage(ctx, f, func(lines []Line) error {
		for _, line := range lines {
			if err := do(line); err != nil {
				return err
			}
		}
		return nil
	})
}

// EachEstimated is Each with the estimates of every job, in the order in which they were made.
func (l *Log) EachEstimated(ctx context.Context, f Filter, do func(Line, []estimator.Estimate) error) error {
	return l.eachPage(ctx, f, func(lines []Line) error {
		ids := make([]int64, len(lines))
		for i, line := range lines {
			ids[i] = line.Job.ID
		}
		list, err := json.Marshal(ids)
		if err != nil {
			return err
		}
		rows, err := l.db.QueryContext(ctx, `SELECT job, body FROM estimates WHERE job IN (SELECT value FROM json_each(?)) ORDER BY id`, string(list))
		if err != nil {
			return fmt.Errorf("read estimates: %w", err)
		}
		estimates := map[int64][]estimator.Estimate{}
		if err := each(rows, func() error {
			var job int64
			var body string
			if err := rows.Scan(&job, &body); err != nil {
				return err
			}
			var e estimator.Estimate
			err := json.Unmarshal([]byte(body), &e)
			estimates[job] = append(estimates[job], e)
			return err
		}); err != nil {
			return fmt.Errorf("read estimates: %w", err)
		}
		for _, line := range lines {
			if err := do(line, estimates[line.Job.ID]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *Log) eachPage(ctx context.Context, f Filter, do func([]Line) error) error {
	for {
		lines, err := l.List(ctx, pageJobs, f)
		if err != nil {
			return err
		}
		if err := do(lines); err != nil {
			return err
		}
		if len(lines) < pageJobs {
			return nil
		}
		f.Before = lines[len(lines)-1].Place()
	}
}
