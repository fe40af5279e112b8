package decisionlog

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Source says who told what a job really used.
type Source string

// The sources.
const (
	// SacctGPUMem: Slurm's accounting, which samples gres/gpumem.
	SacctGPUMem Source = "sacct_gpumem"
	// NVMLAccounting: the driver's own peak of each process, read by the Epilog.
	NVMLAccounting Source = "nvml_accounting"
	// EpilogOOM: a line about CUDA memory in the output of a job that failed.
	EpilogOOM Source = "epilog_oom"
	// Reported: how the job ended, without a measurement by one of the others.
	Reported Source = "reported"
)

// Outcome is how a run of a job ended.
type Outcome string

// The outcomes. OutOfMemory is about the memory of GPUs; a job that the kernel killed for its host memory has failed.
const (
	Completed   Outcome = "completed"
	Failed      Outcome = "failed"
	OutOfMemory Outcome = "out_of_memory"
	NotKnown    Outcome = "unknown"
)

// Margin is the evidence of the margin of a decision.
type Margin struct {
	// Kind is "fixed", "seen" (the fixed one would have been less than what has been seen), "calibrated" or "floor".
	Kind string `json:"kind"`
	// Group are the actuals from which it was taken, such as "gpu=rtx3060 estimator=vgpu confidence=exact".
	Group string `json:"group,omitempty"`
	// Actuals is how many there were, and Died how many of them ran out of memory.
	Actuals int `json:"actuals,omitempty"`
	Died    int `json:"died,omitempty"`
	// Ratio is by what the upper end of the estimate was multiplied.
	Ratio float64 `json:"ratio,omitempty"`
	// TargetFailureRate is what the site had set.
	TargetFailureRate float64 `json:"target_failure_rate,omitempty"`
}

// RankPeak is the peak of one GPU of a job.
type RankPeak struct {
	GPU       string `json:"gpu"`
	PeakBytes int64  `json:"peak_bytes"`
}

// Actual is what one source says of one run of a job on one node.
type Actual struct {
	At     time.Time `json:"at"`
	Source Source    `json:"source"`
	// Run is 0 for the first start of the job, 1 after its first requeue.
	Run int `json:"run"`
	// Node is empty where the source speaks of the whole job.
	Node    string  `json:"node,omitempty"`
	Outcome Outcome `json:"outcome"`
	// ExitCode and Signal are nil where they are not known.
	ExitCode *int `json:"exit_code,omitempty"`
	Signal   *int `json:"signal,omitempty"`
	// ElapsedGPUSeconds is nil where it is not known.
	ElapsedGPUSeconds *int64 `json:"elapsed_gpu_seconds,omitempty"`
	// PeakBytes is that of the GPU that held most; 0: not known.
	PeakBytes int64      `json:"peak_bytes,omitempty"`
	Ranks     []RankPeak `json:"ranks,omitempty"`
	// HostPeakBytes is the host memory of the job's largest step; 0: not known.
	HostPeakBytes int64 `json:"host_peak_bytes,omitempty"`
	// AfterRewrite says that the job ran on what gresize had given it.
	AfterRewrite bool   `json:"after_rewrite"`
	Detail       string `json:"detail,omitempty"`
}

// MaxRankPeaks bounds the GPUs of one actual.
const MaxRankPeaks = 64

const actualColumns = `at, source, run, node, outcome, exit_code, signal, elapsed_gpu_seconds, coalesce(peak_bytes, 0), ranks, coalesce(host_peak_bytes, 0), after_rewrite, detail`

// AddActual stores an actual, with an event of its job where there is one, and with the intention to give the job its owner's request back.
// It returns false when the same source has spoken of this run before: nothing is stored then.
func (l *Log) AddActual(ctx context.Context, job int64, a Actual, e *Event, rescue bool) (added bool, err error) {
	if a.Ranks == nil {
		a.Ranks = []RankPeak{}
	}
	ranks, err := json.Marshal(a.Ranks[:min(len(a.Ranks), MaxRankPeaks)])
	if err != nil {
		return false, fmt.Errorf("add actual: %w", err)
	}
	err = l.inTransaction(ctx, func(tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, `INSERT INTO actuals (job, at, source, run, node, outcome, exit_code, signal, elapsed_gpu_seconds, peak_bytes, ranks, host_peak_bytes, after_rewrite, detail)
			VALUES (?,?,?,?,?,?,?,?,?,nullif(?, 0),?,nullif(?, 0),?,?) ON CONFLICT (job, source, run, node) DO NOTHING`,
			job, millis(a.At), a.Source, a.Run, text(a.Node), a.Outcome, a.ExitCode, a.Signal, a.ElapsedGPUSeconds, a.PeakBytes, string(ranks), a.HostPeakBytes, a.AfterRewrite, text(a.Detail))
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 {
			return err
		}
		added = true
		if e != nil {
			if err := addEvent(ctx, tx, job, *e); err != nil {
				return err
			}
		}
		if rescue {
			_, err = tx.ExecContext(ctx, `INSERT INTO rescues (job, at, state) VALUES (?,?,'asked') ON CONFLICT (job) DO NOTHING`, job, millis(a.At))
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("add actual of job %d: %w", job, err)
	}
	if added {
		l.observed(Observation{Actual: &a})
	}
	return added, nil
}

// actualsOf are what is known of a job, in the order in which they were told.
func actualsOf(ctx context.Context, c *sql.Conn, job int64) ([]Actual, error) {
	rows, err := c.QueryContext(ctx, `SELECT `+actualColumns+` FROM actuals WHERE job = ? ORDER BY id`, job)
	if err != nil {
		return nil, err
	}
	var all []Actual
	return all, each(rows, func() error {
		var a Actual
		var at int64
		var ranks string
		if err := rows.Scan(&at, &a.Source, &a.Run, &a.Node, &a.Outcome, &a.ExitCode, &a.Signal, &a.ElapsedGPUSeconds, &a.PeakBytes, &ranks, &a.HostPeakBytes, &a.AfterRewrite, &a.Detail); err != nil {
			return err
		}
		a.At = instant(at)
		err := json.Unmarshal([]byte(ranks), &a.Ranks)
		if len(a.Ranks) == 0 {
			a.Ranks = nil
		}
		all = append(all, a)
		return err
	})
}

// Measured is an estimate beside what was measured.
type Measured struct {
	// ID grows with time; a job may have several, and the largest peak of a run counts.
	ID, Job int64
	Run     int
	UID     uint32
	At      time.Time
	// GPU, Estimator and Confidence are those of the estimate for the card on which the job ran.
	GPU, Estimator, Confidence string
	// EstimateBytes is its upper end.
	EstimateBytes int64
	// PeakBytes is what was measured; 0: nothing was, and the job died of memory.
	PeakBytes int64
	Outcome   Outcome
	// ElapsedGPUSeconds is 0 where it is not known.
	ElapsedGPUSeconds int64
}

// takesShare says of an estimate that its program takes a share of the card at its start, whatever it needs: what such a job was seen to use says nothing of its need.
const takesShare = `instr(e.body, '"code":"share_of_card"') > 0`

// Measured returns estimates with what was measured, oldest first, of actuals with a larger id than after. Jobs whose estimate has no number, and those
// that took a share of the card, are left out, unless they died of memory.
func (l *Log) Measured(ctx context.Context, after int64, limit int) ([]Measured, error) {
	rows, err := l.db.QueryContext(ctx, `SELECT a.id, a.job, a.run, (SELECT uid FROM jobs WHERE id = a.job), a.at, e.gpu, e.estimator, e.confidence, e.comfortable_high_bytes, iif(`+takesShare+`, 0, coalesce(a.peak_bytes, 0)), a.outcome, coalesce(a.elapsed_gpu_seconds, 0)
		FROM actuals a INDEXED BY actuals_peaks JOIN estimates e
		ON e.id = iif(a.after_rewrite, (SELECT d.estimate FROM decisions d WHERE d.job = a.job ORDER BY d.id DESC LIMIT 1), (SELECT min(id) FROM estimates WHERE job = a.job))
		WHERE a.id > ? AND (a.peak_bytes IS NOT NULL OR a.outcome = 'out_of_memory') AND (a.outcome = 'out_of_memory' OR NOT `+takesShare+`) AND e.comfortable_high_bytes > 0 ORDER BY a.id LIMIT ?`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read actuals: %w", err)
	}
	var all []Measured
	if err := each(rows, func() error {
		var m Measured
		var at int64
		err := rows.Scan(&m.ID, &m.Job, &m.Run, &m.UID, &at, &m.GPU, &m.Estimator, &m.Confidence, &m.EstimateBytes, &m.PeakBytes, &m.Outcome, &m.ElapsedGPUSeconds)
		m.At = instant(at)
		all = append(all, m)
		return err
	}); err != nil {
		return nil, fmt.Errorf("read actuals: %w", err)
	}
	return all, nil
}

// LatestMeasured returns the last limit of them, oldest first.
func (l *Log) LatestMeasured(ctx context.Context, limit int) ([]Measured, error) {
	var after int64
	err := l.db.QueryRowContext(ctx, `SELECT id FROM actuals INDEXED BY actuals_peaks WHERE peak_bytes IS NOT NULL OR outcome = 'out_of_memory' ORDER BY id DESC LIMIT 1 OFFSET ?`, limit).Scan(&after)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read actuals: %w", err)
	}
	return l.Measured(ctx, after, limit)
}

// Past is what an earlier job of the same owner really used.
type Past struct {
	// Job is the row of the log, SlurmJobID its job.
	Job        int64
	SlurmJobID uint32
	At         time.Time
	// GPU is the profile of the card on which the job ran, as far as its estimate tells; empty: not known.
	GPU string
	// Estimator made that estimate, and EstimateBytes is its upper end; 0: there is no number.
	Estimator     string
	EstimateBytes int64
	Outcome       Outcome
	// PeakBytes is the largest that any source measured; 0: nothing was.
	PeakBytes int64
}

// PastByFingerprint returns what the latest jobs of a user with a fingerprint really used, newest first. What one used with a plan says nothing of one without.
func (l *Log) PastByFingerprint(ctx context.Context, uid uint32, fingerprint string, limit int) ([]Past, error) {
	return l.past(ctx, uid, `INDEXED BY jobs_by_fingerprint JOIN actuals a ON a.job = j.id WHERE j.fingerprint = ?`, fingerprint, limit)
}

// PastByScript returns what the latest jobs of a user with the same script really used, whatever their arguments and environment were, newest first.
func (l *Log) PastByScript(ctx context.Context, uid uint32, scriptSHA256 string, limit int) ([]Past, error) {
	return l.past(ctx, uid, `INDEXED BY jobs_by_script JOIN actuals a ON a.job = j.id WHERE j.script_sha256 = ?`, scriptSHA256, limit)
}

func (l *Log) past(ctx context.Context, uid uint32, where, key string, limit int) ([]Past, error) {
	// #nosec G202 -- where is one of two columns
	rows, err := l.db.QueryContext(ctx, `SELECT g.id, g.slurm, g.at, coalesce(e.gpu, ''), coalesce(e.estimator, ''), coalesce(e.comfortable_high_bytes, 0), g.outcome, iif(`+takesShare+`, 0, g.peak)
		FROM (SELECT j.id, coalesce(j.slurm_job_id, 0) AS slurm, max(a.at) AS at, max(a.after_rewrite) AS rewritten, coalesce(j.outcome, 'unknown') AS outcome, coalesce(max(a.peak_bytes), 0) AS peak
			FROM jobs j `+where+` AND j.uid = ? AND NOT EXISTS (SELECT 1 FROM plans p WHERE p.job = j.id) GROUP BY j.id ORDER BY j.id DESC LIMIT ?) g
		LEFT JOIN estimates e ON e.id = iif(g.rewritten, (SELECT d.estimate FROM decisions d WHERE d.job = g.id ORDER BY d.id DESC LIMIT 1), (SELECT min(id) FROM estimates WHERE job = g.id))
		ORDER BY g.id DESC`, key, uid, limit)
	if err != nil {
		return nil, fmt.Errorf("read earlier jobs: %w", err)
	}
	var all []Past
	if err := each(rows, func() error {
		var p Past
		var at int64
		err := rows.Scan(&p.Job, &p.SlurmJobID, &at, &p.GPU, &p.Estimator, &p.EstimateBytes, &p.Outcome, &p.PeakBytes)
		p.At = instant(at)
		all = append(all, p)
		return err
	}); err != nil {
		return nil, fmt.Errorf("read earlier jobs: %w", err)
	}
	return all, nil
}

// DiedAfterRewrite returns the latest job of a user with a fingerprint that ran out of memory on what gresize had given it; 0: there is none. Of one that ran with a plan, PlanFailed knows.
func (l *Log) DiedAfterRewrite(ctx context.Context, uid uint32, fingerprint string) (slurmJobID uint32, err error) {
	err = l.db.QueryRowContext(ctx, `SELECT coalesce(j.slurm_job_id, 0) FROM jobs j INDEXED BY jobs_by_fingerprint WHERE j.fingerprint = ? AND j.uid = ? AND j.outcome = 'out_of_memory'
		AND EXISTS (SELECT 1 FROM actuals a WHERE a.job = j.id AND a.outcome = 'out_of_memory' AND a.after_rewrite = 1) AND NOT EXISTS (SELECT 1 FROM plans p WHERE p.job = j.id)
		ORDER BY j.id DESC LIMIT 1`, fingerprint, uid).Scan(&slurmJobID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("look for earlier deaths: %w", err)
	}
	return slurmJobID, nil
}

// latestChanged bounds the jobs that are looked at for an owner's deaths.
const latestChanged = 500

// OwnersDeaths is how many of an owner's latest changed jobs since a time died of memory on what they were given, and of how many it is known how they ended.
func (l *Log) OwnersDeaths(ctx context.Context, uid uint32, since time.Time) (died, known int, err error) {
	err = l.db.QueryRowContext(ctx, `SELECT coalesce(sum(g.outcome = 'out_of_memory' AND EXISTS (SELECT 1 FROM actuals a WHERE a.job = g.id AND a.outcome = 'out_of_memory' AND a.after_rewrite = 1)), 0),
			coalesce(sum(g.outcome IN ('completed', 'failed', 'out_of_memory')), 0)
		FROM (SELECT id, outcome FROM jobs INDEXED BY jobs_by_user WHERE uid = ? AND submitted_at >= ? AND verdict = 'rewrite' AND mode = 'enforce' ORDER BY submitted_at DESC LIMIT ?) g`,
		uid, millis(since), latestChanged).Scan(&died, &known)
	if err != nil {
		return 0, 0, fmt.Errorf("look for an owner's deaths: %w", err)
	}
	return died, known, nil
}

// Rescue is a job that died on what gresize had given it, and is to run again with what its owner had asked for.
type Rescue struct {
	Job   int64
	At    time.Time
	State string
}

// The states of a rescue. After the last two nothing more is done.
const (
	// RescueAsked: the job is to be requeued.
	RescueAsked = "asked"
	// RescueRequeued: it waits in the queue again; its request is to be put back.
	RescueRequeued = "requeued"
	// RescueRestored: it asks for what its owner had asked for.
	RescueRestored = "restored"
	// RescueRefused: it cannot be done.
	RescueRefused = "refused"
)

// OpenRescues returns the rescues that are not at an end, oldest first.
func (l *Log) OpenRescues(ctx context.Context) ([]Rescue, error) {
	rows, err := l.db.QueryContext(ctx, `SELECT job, at, state FROM rescues WHERE state IN ('asked', 'requeued') ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("read rescues: %w", err)
	}
	var all []Rescue
	if err := each(rows, func() error {
		var r Rescue
		var at int64
		err := rows.Scan(&r.Job, &at, &r.State)
		r.At = instant(at)
		all = append(all, r)
		return err
	}); err != nil {
		return nil, fmt.Errorf("read rescues: %w", err)
	}
	return all, nil
}

// MoveRescue stores the next state of a rescue with an event of its job.
func (l *Log) MoveRescue(ctx context.Context, job int64, state string, e Event) error {
	err := l.inTransaction(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE rescues SET state = ?, detail = ? WHERE job = ?`, state, text(e.Detail), job); err != nil {
			return err
		}
		return addEvent(ctx, tx, job, e)
	})
	if err != nil {
		return fmt.Errorf("store the rescue of job %d: %w", job, err)
	}
	return nil
}

// StoryOf returns one job by its row.
func (l *Log) StoryOf(ctx context.Context, id int64) (Story, error) {
	return l.one(ctx, fmt.Sprintf("row %d", id), `j.id = ?`, id)
}

// StoryOfOwner returns the latest job with a Slurm job id that belongs to a user.
func (l *Log) StoryOfOwner(ctx context.Context, slurmJobID, uid uint32) (Story, error) {
	return l.one(ctx, fmt.Sprintf("job %d of user %d", slurmJobID, uid), `j.slurm_job_id = ? AND j.uid = ? ORDER BY j.id DESC LIMIT 1`, slurmJobID, uid)
}

func (l *Log) one(ctx context.Context, name, where string, args ...any) (Story, error) {
	found, err := l.stories(ctx, `SELECT `+jobColumns+` FROM jobs j WHERE `+where, args...)
	if err != nil {
		return Story{}, err
	}
	if len(found) == 0 {
		return Story{}, fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	return found[0], nil
}

// AwaitingAccounting returns the Slurm job ids of jobs that were submitted since a time and of which Slurm's accounting has not spoken, those with a larger
// row first than after, and the row of the last one; the row is 0 when there are no more.
func (l *Log) AwaitingAccounting(ctx context.Context, since time.Time, after int64, limit int) (ids []uint32, last int64, err error) {
	rows, err := l.db.QueryContext(ctx, `SELECT j.id, j.slurm_job_id FROM jobs j WHERE j.id > ? AND j.submitted_at >= ? AND j.slurm_job_id IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM actuals a WHERE a.job = j.id AND a.source = 'sacct_gpumem') ORDER BY j.id LIMIT ?`, after, millis(since), limit)
	if err != nil {
		return nil, 0, fmt.Errorf("read jobs without accounting: %w", err)
	}
	if err := each(rows, func() error {
		var id uint32
		err := rows.Scan(&last, &id)
		ids = append(ids, id)
		return err
	}); err != nil {
		return nil, 0, fmt.Errorf("read jobs without accounting: %w", err)
	}
	if len(ids) < limit {
		last = 0
	}
	return ids, last, nil
}
