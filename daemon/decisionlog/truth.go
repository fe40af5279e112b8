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

// truthQueries are the questions of Truth. Each walks through an index that holds nothing but what it asks for; the jobs themselves are looked up only where a
// filter wants it.
func (f Filter) truthQueries() (outcomes, died, again, cached, shadow, wrong string, args []any) {
	condition, _, args := f.where()
	of := func(job string) string {
		if condition == "1" {
			return ""
		}
		// #nosec G202 -- condition is of our words and placeholders alone
		return ` AND EXISTS (SELECT 1 FROM jobs WHERE id = ` + job + ` AND ` + condition + `)`
	}
	outcomes = `SELECT total(outcome <> 'unknown'), total(outcome = 'out_of_memory') FROM jobs INDEXED BY jobs_by_group WHERE outcome IS NOT NULL AND ` + condition
	died = `SELECT count(*) FROM jobs INDEXED BY jobs_out_of_memory WHERE outcome = 'out_of_memory'
		AND EXISTS (SELECT 1 FROM actuals a WHERE a.job = jobs.id AND a.outcome = 'out_of_memory' AND a.after_rewrite = 1) AND ` + condition
	again = `SELECT count(*) FROM rescues r WHERE r.state = 'restored'` + of("r.job")
	cached = `SELECT count(DISTINCT e.job) FROM estimates e INDEXED BY estimates_taken_over WHERE e.from_job IS NOT NULL` + of("e.job")
	// Sources may speak of the same run: the largest peak of a run counts.
	runs := `(SELECT a.job AS job, max(a.peak_bytes) AS peak, max(a.after_rewrite) AS rewritten FROM actuals a INDEXED BY actuals_by_job WHERE a.peak_bytes IS NOT NULL` + of("a.job") + ` GROUP BY a.job, a.run) r`
	latest := `(SELECT max(id) FROM decisions WHERE job = r.job)`
	shadow = `SELECT count(*), total(r.peak > d.need_bytes) FROM ` + runs + ` JOIN jobs j ON j.id = r.job JOIN decisions d ON d.id = ` + latest + `
		WHERE j.mode = 'shadow' AND j.verdict = 'rewrite' AND d.need_bytes > 0`
	wrong = `SELECT e.gpu, e.estimator, e.confidence, count(*), total(r.peak > e.comfortable_high_bytes),
		avg(100.0 * (r.peak - e.comfortable_high_bytes) / e.comfortable_high_bytes), max(100.0 * (r.peak - e.comfortable_high_bytes) / e.comfortable_high_bytes)
		FROM ` + runs + ` JOIN estimates e ON e.id = iif(r.rewritten, (SELECT estimate FROM decisions WHERE id = ` + latest + `), (SELECT min(id) FROM estimates WHERE job = r.job))
		WHERE e.comfortable_high_bytes > 0 GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3`
	return outcomes, died, again, cached, shadow, wrong, args
}

// Truth sums up what is known of the jobs that a filter chooses.
func (l *Log) Truth(ctx context.Context, f Filter) (Truth, error) {
	outcomes, died, again, cached, shadow, wrong, args := f.truthQueries()
	t := Truth{Errors: []EstimateError{}}
	fail := func(err error) (Truth, error) { return Truth{}, fmt.Errorf("sum up actuals: %w", err) }
	for _, q := range []struct {
		query string
		into  []any
	}{{outcomes, []any{counted(&t.Known), counted(&t.Died)}}, {died, []any{&t.DiedAfterRewrite}}, {again, []any{&t.RanAgain}}, {cached, []any{&t.FromCache}},
		{shadow, []any{&t.ShadowMeasured, counted(&t.WouldHaveDied)}}} {
		if err := l.db.QueryRowContext(ctx, q.query, args...).Scan(q.into...); err != nil {
			return fail(err)
		}
	}
	rows, err := l.db.QueryContext(ctx, wrong, args...)
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
