package decisionlog

import (
	"context"
	"fmt"
)

// Truth is what is known of how jobs ended, and of how wrong their estimates were.
type Truth struct {
	// Known are the jobs of which it is known how they ended; Died are those of them that ran out of GPU memory, DiedAfterRewrite on what gresize had given them.
	Known            int64 `json:"jobs_known"`
	Died             int64 `json:"jobs_died_of_memory"`
	DiedAfterRewrite int64 `json:"jobs_died_after_rewrite"`
	// Ran again are the jobs that were given their owner's request back and requeued.
	RanAgain int64 `json:"jobs_run_again"`
	// ShadowMeasured are the jobs that would have been changed in shadow mode and whose peak was measured; WouldHaveDied those of them that took more than
	// estimate and margin together, so that they might have died on the row that was chosen.
	ShadowMeasured int64 `json:"shadow_changes_measured"`
	WouldHaveDied  int64 `json:"shadow_changes_over_need"`
	// FromCache are the jobs that were answered without a run.
	FromCache int64 `json:"jobs_answered_from_cache"`
	// Errors are by GPU, estimator and confidence, the most frequent first.
	Errors []EstimateError `json:"errors"`
}

// EstimateError is how wrong an estimator was on a GPU. Percent are of the upper end of the estimate; above 0: the job used more.
type EstimateError struct {
	GPU        string `json:"gpu"`
	Estimator  string `json:"estimator"`
	Confidence string `json:"confidence"`
	Runs       int64  `json:"runs"`
	// Over are the runs that used more than the upper end.
	Over         int64   `json:"runs_over"`
	MeanPercent  float64 `json:"mean_error_percent"`
	WorstPercent float64 `json:"worst_error_percent"`
}

// Truth sums up what is known of the jobs that a filter chooses.
func (l *Log) Truth(ctx context.Context, f Filter) (Truth, error) {
	condition, _, args := f.where()
	t := Truth{Errors: []EstimateError{}}
	fail := func(err error) (Truth, error) { return Truth{}, fmt.Errorf("sum up actuals: %w", err) }
	err := l.db.QueryRowContext(ctx, `SELECT total(outcome IS NOT NULL AND outcome <> 'unknown'), total(outcome IS 'out_of_memory'),
		total(outcome IS 'out_of_memory' AND EXISTS (SELECT 1 FROM actuals a WHERE a.job = jobs.id AND a.outcome = 'out_of_memory' AND a.after_rewrite = 1)),
		total(EXISTS (SELECT 1 FROM rescues r WHERE r.job = jobs.id AND r.state = 'restored')), total(EXISTS (SELECT 1 FROM estimates e WHERE e.job = jobs.id AND e.from_job IS NOT NULL))
		FROM jobs WHERE `+condition, args...).Scan(counted(&t.Known), counted(&t.Died), counted(&t.DiedAfterRewrite), counted(&t.RanAgain), counted(&t.FromCache))
	if err != nil {
		return fail(err)
	}
	// Sources may speak of the same run: the largest peak of a run counts.
	runs := `SELECT j.id AS job, j.mode AS mode, j.verdict AS verdict, a.run AS run, max(a.peak_bytes) AS peak, max(a.after_rewrite) AS rewritten
		FROM (SELECT * FROM jobs WHERE ` + condition + `) j JOIN actuals a ON a.job = j.id WHERE a.peak_bytes IS NOT NULL GROUP BY j.id, a.run`
	err = l.db.QueryRowContext(ctx, `SELECT count(*), total(r.peak > d.need_bytes) FROM (`+runs+`) r JOIN decisions d ON d.id = (SELECT max(id) FROM decisions WHERE job = r.job)
		WHERE r.mode = 'shadow' AND r.verdict = 'rewrite' AND d.need_bytes > 0`, args...).Scan(&t.ShadowMeasured, counted(&t.WouldHaveDied))
	if err != nil {
		return fail(err)
	}
	// #nosec G202 -- condition is of our words and placeholders alone
	rows, err := l.db.QueryContext(ctx, `SELECT e.gpu, e.estimator, e.confidence, count(*), total(r.peak > e.comfortable_high_bytes),
		avg(100.0 * (r.peak - e.comfortable_high_bytes) / e.comfortable_high_bytes), max(100.0 * (r.peak - e.comfortable_high_bytes) / e.comfortable_high_bytes)
		FROM (`+runs+`) r JOIN estimates e ON e.id = iif(r.rewritten, (SELECT d.estimate FROM decisions d WHERE d.job = r.job ORDER BY d.id DESC LIMIT 1), (SELECT min(id) FROM estimates WHERE job = r.job))
		WHERE e.comfortable_high_bytes > 0 GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3`, args...)
	if err != nil {
		return fail(err)
	}
	if err := each(rows, func() error {
		var e EstimateError
		err := rows.Scan(&e.GPU, &e.Estimator, &e.Confidence, &e.Runs, counted(&e.Over), &e.MeanPercent, &e.WorstPercent)
		t.Errors = append(t.Errors, e)
		return err
	}); err != nil {
		return fail(err)
	}
	return t, nil
}

// total scans the sum of a total(), which SQLite gives as a real number.
type total int64

func counted(n *int64) *total { return (*total)(n) }

// Scan implements sql.Scanner.
func (c *total) Scan(value any) error {
	switch v := value.(type) {
	case float64:
		*c = total(v)
	case int64:
		*c = total(v)
	default:
		return fmt.Errorf("%T is no count", value)
	}
	return nil
}
