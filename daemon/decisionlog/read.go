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

// ErrNotFound says that the log has no such job.
var ErrNotFound = errors.New("the decision log has no such job")

// Story is everything that the log knows of one job.
type Story struct {
	Job       Job                  `json:"job"`
	Events    []Event              `json:"events"`
	Probes    []Probe              `json:"probes"`
	Estimates []estimator.Estimate `json:"estimates"`
	Decisions []Decision           `json:"decisions"`
	// Actuals are what the job really used, as far as it was told.
	Actuals []Actual `json:"actuals,omitempty"`
}

const jobColumns = `j.id, j.token, j.mode, j.state, j.finished, coalesce(j.slurm_job_id, 0), j.uid, j.gid, j.job_name, j.partition_name, j.account, j.qos, j.work_dir, j.asked,
	j.profile, j.fingerprint, j.script_sha256, j.submitted_at, j.begin_at, j.hold_until, j.updated_at, j.node_list, coalesce(j.time_limit_minutes, 0), j.slurm_version, j.tasks, coalesce(j.life, 0), coalesce(j.number, 0)`

const decisionColumns = `d.at, d.verdict, d.code, d.reason, d.margin_bytes, d.need_bytes, d.target, d.change, d.margin`

// Unfinished returns the story of every job whose life is not at an end, oldest first.
func (l *Log) Unfinished(ctx context.Context) ([]Story, error) {
	return l.stories(ctx, `SELECT `+jobColumns+` FROM jobs j WHERE j.finished = 0 ORDER BY j.id`)
}

// Story returns one job by its Slurm job id, the latest when ids were used again.
func (l *Log) Story(ctx context.Context, slurmJobID uint32) (Story, error) {
	return l.one(ctx, fmt.Sprintf("job %d", slurmJobID), `j.slurm_job_id = ? ORDER BY j.id DESC LIMIT 1`, slurmJobID)
}

// StoryOfRow returns one job by its ID in this log.
func (l *Log) StoryOfRow(ctx context.Context, id int64) (Story, error) {
	return l.one(ctx, fmt.Sprintf("row %d", id), `j.id = ?`, id)
}

// StoryByToken returns one job by its token.
func (l *Log) StoryByToken(ctx context.Context, token string) (Story, error) {
	return l.one(ctx, fmt.Sprintf("token %.40q", token), `j.token = ?`, token)
}

func (l *Log) stories(ctx context.Context, query string, args ...any) (all []Story, err error) {
	err = l.atOneMoment(ctx, func(c *sql.Conn) error {
		rows, err := c.QueryContext(ctx, query, args...)
		if err != nil {
			return fmt.Errorf("read jobs: %w", err)
		}
		err = each(rows, func() error {
			job, err := scanJob(rows)
			all = append(all, Story{Job: job})
			return err
		})
		if err != nil {
			return fmt.Errorf("read jobs: %w", err)
		}
		for i := range all {
			if err := fill(ctx, c, &all[i]); err != nil {
				return fmt.Errorf("read job %d: %w", all[i].Job.ID, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// atOneMoment reads the tables as they are at one moment, whatever another process writes meanwhile: a decision is seen with its event, or neither is.
func (l *Log) atOneMoment(ctx context.Context, read func(*sql.Conn) error) error {
	c, err := l.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.ExecContext(ctx, "BEGIN DEFERRED"); err != nil {
		return err
	}
	err = read(c)
	_, ended := c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // nothing was written
	return errors.Join(err, ended)
}

func fill(ctx context.Context, c *sql.Conn, s *Story) error {
	rows, err := c.QueryContext(ctx, `SELECT at, state, code, detail FROM events WHERE job = ? ORDER BY id`, s.Job.ID)
	if err != nil {
		return err
	}
	if err := each(rows, func() error {
		var e Event
		var at int64
		err := rows.Scan(&at, &e.State, &e.Code, &e.Detail)
		e.At = instant(at)
		s.Events = append(s.Events, e)
		return err
	}); err != nil {
		return err
	}
	rows, err = c.QueryContext(ctx, `SELECT id, name, key_sha256, coalesce(slurm_job_id, 0), requested_at, coalesce(reported_at, 0), coalesce(bundle_sha256, ''), coalesce(bundle_bytes, 0)
		FROM probes WHERE job = ? ORDER BY id`, s.Job.ID)
	if err != nil {
		return err
	}
	if err := each(rows, func() error {
		var p Probe
		var requested, reported int64
		err := rows.Scan(&p.ID, &p.Name, &p.KeySHA256, &p.SlurmJobID, &requested, &reported, &p.BundleSHA256, &p.BundleBytes)
		p.RequestedAt, p.ReportedAt = instant(requested), instant(reported)
		s.Probes = append(s.Probes, p)
		return err
	}); err != nil {
		return err
	}
	rows, err = c.QueryContext(ctx, `SELECT body FROM estimates WHERE job = ? ORDER BY id`, s.Job.ID)
	if err != nil {
		return err
	}
	if err := each(rows, func() error {
		var body string
		if err := rows.Scan(&body); err != nil {
			return err
		}
		var e estimator.Estimate
		err := json.Unmarshal([]byte(body), &e)
		s.Estimates = append(s.Estimates, e)
		return err
	}); err != nil {
		return err
	}
	rows, err = c.QueryContext(ctx, `SELECT `+decisionColumns+` FROM decisions d WHERE d.job = ? ORDER BY d.id`, s.Job.ID)
	if err != nil {
		return err
	}
	if err := each(rows, func() error {
		var d decisionScan
		if err := rows.Scan(d.fields()...); err != nil {
			return err
		}
		decision, err := d.decision()
		if err == nil {
			s.Decisions = append(s.Decisions, *decision)
		}
		return err
	}); err != nil {
		return err
	}
	s.Actuals, err = actualsOf(ctx, c, s.Job.ID)
	return err
}

func scanJob(rows *sql.Rows, more ...any) (Job, error) {
	var j Job
	var asked string
	var submitted, begin, hold, updated int64
	err := rows.Scan(append([]any{&j.ID, &j.Token, &j.Mode, &j.State, &j.Finished, &j.SlurmJobID, &j.UID, &j.GID, &j.Name, &j.Partition, &j.Account, &j.QOS, &j.WorkDir, &asked,
		&j.Profile, &j.Fingerprint, &j.ScriptSHA256, &submitted, &begin, &hold, &updated, &j.NodeList, &j.TimeLimitMinutes, &j.SlurmVersion, &j.Tasks, &j.Life, &j.Number}, more...)...)
	if err != nil {
		return Job{}, err
	}
	j.SubmittedAt, j.BeginAt, j.HoldUntil, j.UpdatedAt = instant(submitted), instant(begin), instant(hold), instant(updated)
	return j, json.Unmarshal([]byte(asked), &j.Asked)
}

// decisionScan reads the columns of a decision, which may all be NULL.
type decisionScan struct {
	at, margin, need                                sql.NullInt64
	verdict, code, reason, target, change, evidence sql.NullString
}

func (d *decisionScan) fields() []any {
	return []any{&d.at, &d.verdict, &d.code, &d.reason, &d.margin, &d.need, &d.target, &d.change, &d.evidence}
}

func (d *decisionScan) decision() (*Decision, error) {
	if !d.verdict.Valid {
		return nil, nil
	}
	out := Decision{At: instant(d.at.Int64), Verdict: decision.Verdict(d.verdict.String), Code: d.code.String, Reason: d.reason.String, MarginBytes: d.margin.Int64, NeedBytes: d.need.Int64}
	if err := json.Unmarshal([]byte(d.target.String), &out.Target); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(d.evidence.String), &out.Margin); err != nil {
		return nil, err
	}
	return &out, json.Unmarshal([]byte(d.change.String), &out.Change)
}

// each runs do for every row and closes the rows.
func each(rows *sql.Rows, do func() error) error {
	for rows.Next() {
		if err := do(); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// The times between which JSON has words for one, in every time zone.
var (
	earliest = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(9999, 12, 30, 0, 0, 0, 0, time.UTC)
)

// instant is the time of a column. One that no clock says is the nearest that can be written: a damaged row must not hide the others.
func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(min(max(ms, earliest.UnixMilli()), latest.UnixMilli())).UTC()
}

func toValidUTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
