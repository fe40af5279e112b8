package decisionlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/gresize/gresize/daemon/decision"
)

// Plan is what a job needs to run on a card that is one size too small for it.
type Plan struct {
	// Slowdown is by how many times a step is longer at most, by roofline; 1: by nothing.
	Slowdown float64 `json:"slowdown"`
	// HostBytes is the pinned host memory that it takes, MovedBytes what goes to and from the host in an iteration.
	HostBytes  int64 `json:"host_bytes"`
	MovedBytes int64 `json:"moved_bytes"`
	// Body is the plan's file, as the job's own probe made it. It is read by the job's own processes alone.
	Body []byte `json:"-"`
}

// HasPlan says whether a job was given a card that is too small for it, with a plan.
func (s Story) HasPlan() bool {
	n := len(s.Decisions)
	return n > 0 && s.Decisions[n-1].Code == decision.CodePlanned
}

func addPlan(ctx context.Context, tx *sql.Tx, job int64, at time.Time, p *Plan) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO plans (job, at, slowdown, host_bytes, moved_bytes, body) VALUES (?,?,?,?,?,?)
		ON CONFLICT (job) DO UPDATE SET at = excluded.at, slowdown = excluded.slowdown, host_bytes = excluded.host_bytes, moved_bytes = excluded.moved_bytes, body = excluded.body, fetched_at = NULL`,
		job, millis(at), p.Slowdown, p.HostBytes, p.MovedBytes, p.Body)
	return err
}

// PlanOf is the plan of the job in that row; found is false where it has none.
func (l *Log) PlanOf(ctx context.Context, job int64) (p Plan, found bool, err error) {
	err = l.db.QueryRowContext(ctx, `SELECT slowdown, host_bytes, moved_bytes, body FROM plans WHERE job = ?`, job).Scan(&p.Slowdown, &p.HostBytes, &p.MovedBytes, &p.Body)
	if errors.Is(err, sql.ErrNoRows) {
		return Plan{}, false, nil
	}
	if err != nil {
		return Plan{}, false, fmt.Errorf("read the plan of job %d: %w", job, err)
	}
	return p, true, nil
}

// PlanFetched notes that the job's node has its plan.
func (l *Log) PlanFetched(ctx context.Context, job int64, at time.Time) error {
	if _, err := l.db.ExecContext(ctx, `UPDATE plans SET fetched_at = ? WHERE job = ?`, millis(at), job); err != nil {
		return fmt.Errorf("note that the plan of job %d was fetched: %w", job, err)
	}
	return nil
}

// PlanFailed is the latest job of a user with a script that ran with a plan and died of memory, or was slower than the site wants; 0: there is none.
func (l *Log) PlanFailed(ctx context.Context, uid uint32, scriptSHA256 string) (slurmJobID uint32, err error) {
	err = l.db.QueryRowContext(ctx, `SELECT coalesce(j.slurm_job_id, 0) FROM jobs j INDEXED BY jobs_by_script JOIN plans p ON p.job = j.id WHERE j.script_sha256 = ? AND j.uid = ?
		AND EXISTS (SELECT 1 FROM events e WHERE e.job = j.id AND e.code IN (?, ?)) ORDER BY j.id DESC LIMIT 1`,
		scriptSHA256, uid, decision.CodeDied, decision.CodeSlowWithPlan).Scan(&slurmJobID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("look for earlier jobs with a plan: %w", err)
	}
	return slurmJobID, nil
}

// PlansUnfetched says whether a job ran without the plan that it had been given since a time, and no node has fetched any later: the site's nodes do not ask for plans.
func (l *Log) PlansUnfetched(ctx context.Context, since time.Time) (unfetched bool, err error) {
	err = l.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM plans p WHERE p.fetched_at IS NULL AND p.at >= ? AND p.at > coalesce((SELECT max(fetched_at) FROM plans), 0)
		AND EXISTS (SELECT 1 FROM actuals a WHERE a.job = p.job AND a.after_rewrite = 1))`, millis(since)).Scan(&unfetched)
	if err != nil {
		return false, fmt.Errorf("look for plans that were not fetched: %w", err)
	}
	return unfetched, nil
}
