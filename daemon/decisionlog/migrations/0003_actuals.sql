-- What jobs really used, and how they ended. The table of schema 1 was never filled.
DROP TABLE actuals;
CREATE TABLE actuals (
  id                  INTEGER PRIMARY KEY,
  job                 INTEGER NOT NULL REFERENCES jobs (id),
  at                  INTEGER NOT NULL,
  source              TEXT    NOT NULL CHECK (source IN ('sacct_gpumem', 'nvml_accounting', 'epilog_oom', 'reported')),
  run                 INTEGER NOT NULL DEFAULT 0,   -- 0: the first start, 1: after the first requeue, …
  node                TEXT    NOT NULL DEFAULT '',  -- of which it speaks; '': of the whole job
  outcome             TEXT    NOT NULL CHECK (outcome IN ('completed', 'failed', 'out_of_memory', 'unknown')),
  exit_code           INTEGER,                      -- NULL: not known
  signal              INTEGER,                      -- that ended the job; NULL: not known
  elapsed_gpu_seconds INTEGER,                      -- seconds times GPUs; NULL: not known
  peak_bytes          INTEGER,                      -- of the GPU that held most; NULL: not known
  ranks               TEXT    NOT NULL DEFAULT '[]' CHECK (json_valid(ranks)),  -- [{"gpu": "0", "peak_bytes": …}], where GPUs are told apart
  after_rewrite       INTEGER NOT NULL DEFAULT 0 CHECK (after_rewrite IN (0, 1)),  -- the job ran on what gresize had given it
  detail              TEXT    NOT NULL DEFAULT '',
  UNIQUE (job, source, run, node)
) STRICT;
CREATE INDEX actuals_peaks ON actuals (id, job) WHERE peak_bytes IS NOT NULL OR outcome = 'out_of_memory';

-- How a job ended stands beside it, as its verdict does. Out of memory stays, whatever a later run did.
ALTER TABLE jobs ADD COLUMN outcome TEXT CHECK (outcome IN ('completed', 'failed', 'out_of_memory', 'unknown'));
CREATE TRIGGER actuals_outcome AFTER INSERT ON actuals BEGIN
  UPDATE jobs SET outcome = new.outcome
  WHERE id = new.job AND outcome IS NOT 'out_of_memory' AND (outcome IS NULL OR new.outcome <> 'unknown');
END;
CREATE INDEX jobs_out_of_memory ON jobs (submitted_at, id, uid, partition_name, verdict, outcome) WHERE outcome = 'out_of_memory';

-- A job that died of memory on what gresize had given it: that its owner's request is to be put back is written before it is done.
CREATE TABLE rescues (
  id     INTEGER PRIMARY KEY,
  job    INTEGER NOT NULL UNIQUE REFERENCES jobs (id),
  at     INTEGER NOT NULL,
  state  TEXT    NOT NULL CHECK (state IN ('asked', 'requeued', 'restored', 'refused')),
  detail TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX rescues_open ON rescues (state) WHERE state IN ('asked', 'requeued');

-- Which margin, from how many actuals: the evidence of a decision.
ALTER TABLE decisions ADD COLUMN margin TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(margin));

-- An answer that was taken over from an earlier job, and what that job's probe read.
ALTER TABLE estimates ADD COLUMN from_job INTEGER;  -- jobs.id whose probe found it; NULL: the job's own
CREATE TABLE inputs (
  id    INTEGER PRIMARY KEY,
  job   INTEGER NOT NULL UNIQUE REFERENCES jobs (id),
  files INTEGER NOT NULL,
  body  BLOB    NOT NULL                            -- gresize.inputs/1, gzip
) STRICT;

-- Earlier jobs of the same kind: by what they are, and by their script alone.
DROP INDEX jobs_fingerprint;
CREATE INDEX jobs_by_fingerprint ON jobs (fingerprint, uid, id);
CREATE INDEX jobs_by_script      ON jobs (script_sha256, uid, id);

DROP VIEW decision_list;
CREATE VIEW decision_list AS
SELECT j.id,
       j.slurm_job_id,
       j.uid,
       j.job_name,
       j.partition_name,
       j.account,
       j.qos,
       datetime(j.submitted_at / 1000, 'unixepoch') AS submitted_utc,
       j.mode,
       j.state,
       j.finished,
       j.time_limit_minutes,
       j.asked_text,
       d.verdict,
       d.code,
       d.after_text,
       e.estimator,
       e.gpu,
       e.confidence,
       round(e.comfortable_high_bytes / 1073741824.0, 2) AS comfortable_high_gib,
       round(d.margin_bytes / 1073741824.0, 2)           AS margin_gib,
       round(d.need_bytes / 1073741824.0, 2)             AS need_gib,
       d.reason,
       j.node_list,
       j.outcome
FROM jobs j
LEFT JOIN decisions d ON d.id = (SELECT max(id) FROM decisions WHERE job = j.id)
LEFT JOIN estimates e ON e.id = d.estimate;

-- What was estimated against what was used. The estimate is the one for the card on which the job ran: a job that was not changed ran on what it had
-- asked for, which is the card of its first estimate. error_percent above 0: the job used more than the upper end.
CREATE VIEW actual_list AS
SELECT a.id,
       a.job,
       j.slurm_job_id,
       j.uid,
       j.job_name,
       datetime(a.at / 1000, 'unixepoch') AS at_utc,
       a.source,
       a.run,
       a.node,
       a.outcome,
       a.exit_code,
       round(a.elapsed_gpu_seconds / 3600.0, 2)          AS gpu_hours,
       e.estimator,
       e.gpu,
       e.confidence,
       round(e.comfortable_bytes / 1073741824.0, 2)      AS comfortable_gib,
       round(e.comfortable_high_bytes / 1073741824.0, 2) AS comfortable_high_gib,
       round(a.peak_bytes / 1073741824.0, 2)             AS peak_gib,
       round(100.0 * (a.peak_bytes - e.comfortable_high_bytes) / e.comfortable_high_bytes, 1) AS error_percent,
       a.after_rewrite,
       a.detail
FROM actuals a JOIN jobs j ON j.id = a.job
LEFT JOIN estimates e ON e.id = iif(a.after_rewrite, (SELECT d.estimate FROM decisions d WHERE d.job = a.job ORDER BY d.id DESC LIMIT 1), (SELECT min(id) FROM estimates WHERE job = a.job));

-- The rows of the site's table that were given, and how many jobs died on them.
CREATE VIEW row_list AS
SELECT d.target,
       count(*)                                          AS jobs,
       sum(j.outcome IS NOT NULL)                        AS known,
       sum(j.outcome IS 'out_of_memory' AND EXISTS (SELECT 1 FROM actuals a WHERE a.job = j.id AND a.outcome = 'out_of_memory' AND a.after_rewrite = 1)) AS died
FROM jobs j JOIN decisions d ON d.id = (SELECT max(id) FROM decisions WHERE job = j.id)
WHERE j.verdict = 'rewrite' AND j.mode = 'enforce'
GROUP BY d.target;
