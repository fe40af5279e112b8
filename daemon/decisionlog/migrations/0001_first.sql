-- Times are milliseconds since 1970 (UTC), sizes are bytes, JSON columns hold one object or list each.

-- One row for each submission that asked for a GPU and reached the daemon.
CREATE TABLE jobs (
  id             INTEGER PRIMARY KEY,
  token          TEXT    NOT NULL UNIQUE,          -- stands in the job's AdminComment as gresize:v1:<token>
  mode           TEXT    NOT NULL CHECK (mode IN ('off', 'shadow', 'enforce')),
  state          TEXT    NOT NULL,                 -- last state, see docs/decisionlog.md
  finished       INTEGER NOT NULL CHECK (finished IN (0, 1)),
  slurm_job_id   INTEGER,                          -- unknown until the job was found by its token
  uid            INTEGER NOT NULL,
  gid            INTEGER NOT NULL,
  job_name       TEXT    NOT NULL,
  partition_name TEXT    NOT NULL,
  account        TEXT    NOT NULL,
  qos            TEXT    NOT NULL,
  work_dir       TEXT    NOT NULL,
  asked          TEXT    NOT NULL CHECK (json_valid(asked)),
  asked_text     TEXT    NOT NULL,                 -- the same, as a person would type it
  profile        TEXT    NOT NULL,                 -- GPU profile on which the job is probed
  fingerprint    TEXT    NOT NULL,                 -- SHA-256 over script, arguments, environment, folder and GPU
  script_sha256  TEXT    NOT NULL,
  submitted_at   INTEGER NOT NULL,
  begin_at       INTEGER NOT NULL,                 -- begin time that the owner asked for, 0: none
  hold_until     INTEGER NOT NULL,                 -- 0: not held
  updated_at     INTEGER NOT NULL,
  node_list      TEXT    NOT NULL DEFAULT ''       -- where the job was last seen to run
) STRICT;
CREATE INDEX jobs_slurm_job_id ON jobs (slurm_job_id);
CREATE INDEX jobs_open ON jobs (finished) WHERE finished = 0;
CREATE INDEX jobs_fingerprint ON jobs (fingerprint);

-- One row for each transition, written before the action that it announces.
CREATE TABLE events (
  id     INTEGER PRIMARY KEY,
  job    INTEGER NOT NULL REFERENCES jobs (id),
  at     INTEGER NOT NULL,
  state  TEXT    NOT NULL,
  code   TEXT    NOT NULL,                         -- stable word for the cause, or ''
  detail TEXT    NOT NULL                          -- a sentence for people
) STRICT;
CREATE INDEX events_job ON events (job, id);

-- One row for each probe that was asked for.
CREATE TABLE probes (
  id            INTEGER PRIMARY KEY,
  job           INTEGER NOT NULL REFERENCES jobs (id),
  name          TEXT    NOT NULL UNIQUE,           -- also the name of the probe's own Slurm job
  key_sha256    TEXT    NOT NULL,                  -- the one-time key itself is never stored here
  slurm_job_id  INTEGER,
  requested_at  INTEGER NOT NULL,
  reported_at   INTEGER,
  bundle_sha256 TEXT,
  bundle_bytes  INTEGER
) STRICT;
CREATE INDEX probes_job ON probes (job);

CREATE TABLE estimates (
  id                     INTEGER PRIMARY KEY,
  job                    INTEGER NOT NULL REFERENCES jobs (id),
  at                     INTEGER NOT NULL,
  estimator              TEXT    NOT NULL,
  gpu                    TEXT    NOT NULL,
  confidence             TEXT    NOT NULL,
  comfortable_bytes      INTEGER,                  -- of the rank that needs most; NULL when unknown
  comfortable_high_bytes INTEGER,
  body                   TEXT    NOT NULL CHECK (json_valid(body))  -- the whole estimate
) STRICT;
CREATE INDEX estimates_job ON estimates (job);

CREATE TABLE decisions (
  id           INTEGER PRIMARY KEY,
  job          INTEGER NOT NULL REFERENCES jobs (id),
  estimate     INTEGER REFERENCES estimates (id),
  at           INTEGER NOT NULL,
  verdict      TEXT    NOT NULL CHECK (verdict IN ('rewrite', 'keep', 'leave_alone')),
  code         TEXT    NOT NULL,
  reason       TEXT    NOT NULL,
  margin_bytes INTEGER NOT NULL,
  need_bytes   INTEGER NOT NULL,                   -- upper end of the estimate plus the margin, 0: no estimate
  target       TEXT    NOT NULL CHECK (json_valid(target)),
  change       TEXT    NOT NULL CHECK (json_valid(change)),
  after_text   TEXT    NOT NULL
) STRICT;
CREATE INDEX decisions_job ON decisions (job);

-- What the job really used. Nothing fills this table yet.
CREATE TABLE actuals (
  id         INTEGER PRIMARY KEY,
  job        INTEGER NOT NULL REFERENCES jobs (id),
  at         INTEGER NOT NULL,
  source     TEXT    NOT NULL,
  peak_bytes INTEGER NOT NULL
) STRICT;
CREATE INDEX actuals_job ON actuals (job);

-- One line per job: what was asked, what was found, what was done.
CREATE VIEW decision_list AS
SELECT j.id,
       j.slurm_job_id,
       j.uid,
       j.job_name,
       datetime(j.submitted_at / 1000, 'unixepoch') AS submitted_utc,
       j.mode,
       j.state,
       j.asked_text,
       d.verdict,
       d.code,
       d.after_text,
       e.confidence,
       round(e.comfortable_high_bytes / 1073741824.0, 2) AS comfortable_high_gib,
       round(d.need_bytes / 1073741824.0, 2)             AS need_gib,
       d.reason,
       j.node_list
FROM jobs j
LEFT JOIN decisions d ON d.id = (SELECT max(id) FROM decisions WHERE job = j.id)
LEFT JOIN estimates e ON e.id = d.estimate;

-- Every transition with a readable time.
CREATE VIEW event_list AS
SELECT e.job, j.slurm_job_id, strftime('%Y-%m-%d %H:%M:%f', e.at / 1000.0, 'unixepoch') AS at_utc, e.state, e.code, e.detail
FROM events e JOIN jobs j ON j.id = e.job;
