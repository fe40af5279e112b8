package decisionlog

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Forget deletes what is known of at most so many jobs whose story ended before a time, the oldest first, and returns how many they were. It is one
// transaction, so a reader sees all of a job or nothing of it. Open jobs are never deleted.
func (l *Log) Forget(ctx context.Context, before time.Time, most int) (jobs int64, err error) {
	err = l.inTransaction(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `CREATE TEMP TABLE IF NOT EXISTS forgotten (job INTEGER PRIMARY KEY); DELETE FROM forgotten`); err != nil {
			return err
		}
		done, err := tx.ExecContext(ctx, `INSERT INTO forgotten SELECT id FROM jobs INDEXED BY jobs_ended WHERE finished = 1 AND updated_at < ? ORDER BY updated_at LIMIT ?`, millis(before), most)
		if err != nil {
			return err
		}
		if jobs, err = done.RowsAffected(); err != nil || jobs == 0 {
			return err
		}
		// What refers to a row goes before it.
		for _, table := range []string{"actuals", "rescues", "inputs", "plans", "decisions", "estimates", "probes", "events"} {
			// #nosec G202 -- table is one of the words above
			if _, err := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE job IN (SELECT job FROM forgotten)`); err != nil {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM jobs WHERE finished = 1 AND id IN (SELECT job FROM forgotten)`)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("delete jobs that ended before %s: %w", before.UTC().Format(time.RFC3339), err)
	}
	return jobs, nil
}
