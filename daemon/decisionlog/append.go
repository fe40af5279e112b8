package decisionlog

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/request"
)

// ErrStateChanged says that a job was not in the state from which a transition was to be made.
var ErrStateChanged = errors.New("the job is in another state")

// Job is one submission.
type Job struct {
	ID         int64           `json:"id"`
	Token      string          `json:"token"`
	Mode       string          `json:"mode"`
	State      string          `json:"state"`
	Finished   bool            `json:"finished"`
	SlurmJobID uint32          `json:"slurm_job_id,omitempty"`
	UID        uint32          `json:"uid"`
	GID        uint32          `json:"gid"`
	Name       string          `json:"job_name"`
	Partition  string          `json:"partition,omitempty"`
	Account    string          `json:"account,omitempty"`
	QOS        string          `json:"qos,omitempty"`
	WorkDir    string          `json:"work_dir"`
	Asked      request.Request `json:"asked"`
	// Profile is the GPU profile on which the job is probed, the latest one when there were several.
	Profile      string    `json:"profile,omitempty"`
	Fingerprint  string    `json:"fingerprint"`
	ScriptSHA256 string    `json:"script_sha256"`
	SubmittedAt  time.Time `json:"submitted_at"`
	// BeginAt is the begin time that the owner asked for; zero: none.
	BeginAt time.Time `json:"begin_at,omitzero"`
	// HoldUntil is when the job starts by itself; zero: it is not held.
	HoldUntil time.Time `json:"hold_until,omitzero"`
	UpdatedAt time.Time `json:"updated_at"`
	NodeList  string    `json:"node_list,omitempty"`
	// TimeLimitMinutes is the owner's --time; 0: not given or not known, NoTimeLimit: without one.
	TimeLimitMinutes int64 `json:"time_limit_minutes,omitempty"`
	// Life and Number say which answer of which life of the daemon it was; 0: it has no number.
	Life   int64 `json:"life,omitempty"`
	Number int64 `json:"number,omitempty"`
	// SlurmVersion is the controller's release at submission, e.g. 22.05.8; empty: not known.
	SlurmVersion string `json:"slurm_version,omitempty"`
	// Tasks are those of an array, 1 of any other job; 0 is taken for 1.
	Tasks int64 `json:"tasks,omitempty"`
}

// NoTimeLimit is the TimeLimitMinutes of a job that may run for ever.
const NoTimeLimit = -1

// Event is one transition of a job.
type Event struct {
	At     time.Time `json:"at"`
	State  string    `json:"state"`
	Code   string    `json:"code,omitempty"`
	Detail string    `json:"detail,omitempty"`
}

// Probe is one probe that was asked for.
type Probe struct {
	ID           int64     `json:"id"`
	Name         string    `json:"name"`
	KeySHA256    string    `json:"-"`
	SlurmJobID   uint32    `json:"slurm_job_id,omitempty"`
	RequestedAt  time.Time `json:"requested_at"`
	ReportedAt   time.Time `json:"reported_at,omitzero"`
	BundleSHA256 string    `json:"bundle_sha256,omitempty"`
	BundleBytes  int64     `json:"bundle_bytes,omitempty"`
}

// Decision is a verdict with its reason.
type Decision struct {
	At          time.Time        `json:"at"`
	Verdict     decision.Verdict `json:"verdict"`
	Code        string           `json:"code"`
	Reason      string           `json:"reason"`
	MarginBytes int64            `json:"margin_bytes"`
	// Margin is the evidence of the margin; the zero value in rows of earlier releases.
	Margin    Margin         `json:"margin,omitzero"`
	NeedBytes int64          `json:"need_bytes"`
	Target    request.Target `json:"target"`
	Change    request.Change `json:"change"`
}

// Transition moves a job to another state, together with what was learnt. It is one transaction.
type Transition struct {
	Job      int64
	From, To string
	At       time.Time
	Code     string
	Detail   string
	// Finished marks the last state of a job.
	Finished bool
	// SlurmJobID, NodeList and Profile are stored when they are not empty.
	SlurmJobID uint32
	NodeList   string
	Profile    string
	// NewProbe is a probe that will be asked for next.
	NewProbe *Probe
	// Reported tells what arrived from the probe named in it.
	Reported *Probe
	Estimate *estimator.Estimate
	// FromJob is the row of the job whose probe found the estimate; 0: its own.
	FromJob  int64
	Decision *Decision
	// Plan is what the job runs with on the card that was decided on.
	Plan *Plan
}

// NewJob is a job with its first event, and with a decision where one was made at once.
type NewJob struct {
	Job      Job
	First    Event
	Decision *Decision
}

// AddJobs stores jobs in one transaction, all or none of them. It returns the ids of their rows.
func (l *Log) AddJobs(ctx context.Context, all ...NewJob) (ids []int64, err error) {
	err = l.inTransaction(ctx, func(tx *sql.Tx) error {
		for _, n := range all {
			id, err := addJob(ctx, tx, n)
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("add job: %w", err)
	}
	for _, n := range all {
		l.observed(Observation{State: n.First.State, Decision: n.Decision})
	}
	return ids, nil
}

func addJob(ctx context.Context, tx *sql.Tx, n NewJob) (int64, error) {
	j, first := n.Job, n.First
	asked, err := json.Marshal(j.Asked)
	if err != nil {
		return 0, err
	}
	done, err := tx.ExecContext(ctx, `INSERT INTO jobs (token, mode, state, finished, uid, gid, job_name, partition_name, account, qos, work_dir, asked, asked_text,
		profile, fingerprint, script_sha256, submitted_at, begin_at, hold_until, updated_at,
		time_limit_minutes, slurm_version, tasks, life, number) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,nullif(?, 0),?,?,nullif(?, 0),nullif(?, 0))`,
		j.Token, j.Mode, first.State, j.Finished, j.UID, j.GID, text(j.Name), text(j.Partition), text(j.Account), text(j.QOS), text(j.WorkDir), string(asked), text(j.Asked.String()),
		j.Profile, j.Fingerprint, j.ScriptSHA256, millis(j.SubmittedAt), millis(j.BeginAt), millis(j.HoldUntil), millis(first.At), j.TimeLimitMinutes, j.SlurmVersion, max(j.Tasks, 1), j.Life, j.Number)
	if err != nil {
		return 0, err
	}
	if j.Life != 0 {
		if _, err := tx.ExecContext(ctx, `UPDATE lives SET recorded = recorded + 1 WHERE id = ?`, j.Life); err != nil {
			return 0, err
		}
	}
	id, err := done.LastInsertId()
	if err != nil {
		return 0, err
	}
	if err := addEvent(ctx, tx, id, first); err != nil {
		return 0, err
	}
	if n.Decision != nil {
		return id, addDecision(ctx, tx, id, nil, n.Decision)
	}
	return id, nil
}

// Advance makes a transition durable. It returns ErrStateChanged when the job is not in state From.
func (l *Log) Advance(ctx context.Context, t Transition) error {
	err := l.inTransaction(ctx, func(tx *sql.Tx) error { return advance(ctx, tx, t) })
	if err != nil {
		return fmt.Errorf("job %d, %s to %s: %w", t.Job, t.From, t.To, err)
	}
	l.observed(Observation{State: t.To, Decision: t.Decision})
	return nil
}

func advance(ctx context.Context, tx *sql.Tx, t Transition) error {
	done, err := tx.ExecContext(ctx, `UPDATE jobs SET state = ?, finished = ?, updated_at = ?, slurm_job_id = coalesce(nullif(?, 0), slurm_job_id),
		node_list = coalesce(nullif(?, ''), node_list), profile = coalesce(nullif(?, ''), profile) WHERE id = ? AND state = ? AND finished = 0`, t.To, t.Finished, millis(t.At), t.SlurmJobID, text(t.NodeList), t.Profile, t.Job, t.From)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil {
		return err
	} else if n != 1 {
		return ErrStateChanged
	}
	if err := addEvent(ctx, tx, t.Job, Event{At: t.At, State: t.To, Code: t.Code, Detail: t.Detail}); err != nil {
		return err
	}
	if p := t.NewProbe; p != nil {
		if _, err := tx.ExecContext(ctx, `INSERT INTO probes (job, name, key_sha256, requested_at) VALUES (?,?,?,?)`, t.Job, p.Name, p.KeySHA256, millis(t.At)); err != nil {
			return err
		}
	}
	if p := t.Reported; p != nil {
		if _, err := tx.ExecContext(ctx, `UPDATE probes SET reported_at = ?, bundle_sha256 = ?, bundle_bytes = ? WHERE name = ? AND job = ?`, millis(t.At), p.BundleSHA256, p.BundleBytes, p.Name, t.Job); err != nil {
			return err
		}
	}
	if t.Plan != nil {
		if err := addPlan(ctx, tx, t.Job, t.At, t.Plan); err != nil {
			return err
		}
	}
	var estimateID *int64
	if t.Estimate != nil {
		if err := addEstimate(ctx, tx, t.Job, t.At, t.Estimate, t.FromJob); err != nil {
			return err
		}
	}
	if t.Decision != nil {
		var id int64
		switch err := tx.QueryRowContext(ctx, `SELECT max(id) FROM estimates WHERE job = ? HAVING max(id) IS NOT NULL`, t.Job).Scan(&id); {
		case err == nil:
			estimateID = &id
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		return addDecision(ctx, tx, t.Job, estimateID, t.Decision)
	}
	return nil
}

// SetProbeJob stores the Slurm job id of a probe once it is known.
func (l *Log) SetProbeJob(ctx context.Context, name string, slurmJobID uint32) error {
	if _, err := l.db.ExecContext(ctx, `UPDATE probes SET slurm_job_id = ? WHERE name = ?`, slurmJobID, name); err != nil {
		return fmt.Errorf("store the job id of probe %s: %w", name, err)
	}
	return nil
}

func addEvent(ctx context.Context, tx *sql.Tx, job int64, e Event) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO events (job, at, state, code, detail) VALUES (?,?,?,?,?)`, job, millis(e.At), e.State, e.Code, text(e.Detail))
	return err
}

func addEstimate(ctx context.Context, tx *sql.Tx, job int64, at time.Time, e *estimator.Estimate, fromJob int64) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	var comfortable, high *int64
	if rank, ok := e.Largest(); ok && e.Confidence != estimator.Unknown {
		comfortable, high = &rank.ComfortableBytes, &rank.ComfortableHighBytes
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO estimates (job, at, estimator, gpu, confidence, comfortable_bytes, comfortable_high_bytes, body, from_job) VALUES (?,?,?,?,?,?,?,?,nullif(?, 0))`,
		job, millis(at), e.Estimator, e.GPU, string(e.Confidence), comfortable, high, string(body), fromJob)
	return err
}

func addDecision(ctx context.Context, tx *sql.Tx, job int64, estimateID *int64, d *Decision) error {
	target, err := json.Marshal(d.Target)
	if err != nil {
		return err
	}
	change, err := json.Marshal(d.Change)
	if err != nil {
		return err
	}
	after := ""
	if d.Verdict == decision.Rewrite {
		after = d.Change.Result.String()
	}
	margin, err := json.Marshal(d.Margin)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO decisions (job, estimate, at, verdict, code, reason, margin_bytes, need_bytes, target, change, after_text, margin) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)`,
		job, estimateID, millis(d.At), string(d.Verdict), d.Code, text(d.Reason), d.MarginBytes, d.NeedBytes, string(target), string(change), text(after), string(margin))
	return err
}

func (l *Log) inTransaction(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	l.wrote.Store(time.Now().UnixNano())
	return nil
}

// millis is how a time is stored; the zero time is 0.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// text keeps what is stored readable: names, paths and texts of commands are bytes without a promise.
func text(s string) string {
	const longest = 16 << 10
	if len(s) > longest {
		s = s[:longest] + "…"
	}
	return toValidUTF8(s)
}
