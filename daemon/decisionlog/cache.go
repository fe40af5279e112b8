package decisionlog

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
)

// Cached is what a probe of an earlier job has found.
type Cached struct {
	// Job is the row of the log, SlurmJobID its job.
	Job        int64
	SlurmJobID uint32
	Estimate   estimator.Estimate
	// Inputs are the files that its probe read, as it told them; nil: it did not.
	Inputs []byte
}

// Cached returns the latest estimate for a GPU profile that a probe has found for a job of a user with a fingerprint. Nobody is answered with what was found
// for somebody else, or with a plan under it, which another job does not have. onlyJob, when it is not 0, is the row that it must come from. Found is false when there is none.
func (l *Log) Cached(ctx context.Context, uid uint32, fingerprint, profile string, onlyJob int64) (c Cached, found bool, err error) {
	var body string
	err = l.db.QueryRowContext(ctx, `SELECT j.id, coalesce(j.slurm_job_id, 0), e.body, i.body FROM jobs j INDEXED BY jobs_by_fingerprint
		JOIN estimates e ON e.id = (SELECT max(id) FROM estimates WHERE job = j.id AND gpu = ? AND from_job IS NULL AND comfortable_high_bytes > 0) LEFT JOIN inputs i ON i.job = j.id
		WHERE j.fingerprint = ? AND j.uid = ? AND (? = 0 OR j.id = ?)
		AND NOT EXISTS (SELECT 1 FROM events WHERE job = j.id AND code = ?) ORDER BY j.id DESC LIMIT 1`, profile, fingerprint, uid, onlyJob, onlyJob, decision.CodeTriedWithPlan).Scan(&c.Job, &c.SlurmJobID, &body, &c.Inputs)
	if errors.Is(err, sql.ErrNoRows) {
		return Cached{}, false, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(body), &c.Estimate)
	}
	if err != nil {
		return Cached{}, false, fmt.Errorf("look for an earlier answer: %w", err)
	}
	return c, true, nil
}

// PutInputs stores the files that the probe of a job read, in place of those of earlier jobs that were the same.
func (l *Log) PutInputs(ctx context.Context, job int64, files int, body []byte) error {
	err := l.inTransaction(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM inputs WHERE job IN (SELECT old.id FROM jobs j JOIN jobs old INDEXED BY jobs_by_fingerprint
			ON old.fingerprint = j.fingerprint AND old.uid = j.uid WHERE j.id = ?)`, job); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO inputs (job, files, body) VALUES (?,?,?)`, job, files, body)
		return err
	})
	if err != nil {
		return fmt.Errorf("store the inputs of job %d: %w", job, err)
	}
	return nil
}
