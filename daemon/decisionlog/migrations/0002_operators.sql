-- What the owner gave at submission and the report needs.
ALTER TABLE jobs ADD COLUMN time_limit_minutes INTEGER;              -- --time; -1: without a limit; NULL: not given, or not recorded (before schema 2)
ALTER TABLE jobs ADD COLUMN slurm_version TEXT NOT NULL DEFAULT '';  -- release of the controller at submission, '': not recorded

-- The verdict that counts, which is the latest, stands beside the job: a list that is filtered by it must not read a million decisions.
ALTER TABLE jobs ADD COLUMN verdict TEXT CHECK (verdict IN ('rewrite', 'keep', 'leave_alone'));
UPDATE jobs SET verdict = (SELECT d.verdict FROM decisions d WHERE d.job = jobs.id ORDER BY d.id DESC LIMIT 1);
CREATE TRIGGER decisions_verdict AFTER INSERT ON decisions BEGIN
  UPDATE jobs SET verdict = new.verdict WHERE id = new.job;
END;

-- One page of the list, newest first, by each filter. Every column that a filter may name is in the index, so that jobs which are passed over are not read.
CREATE INDEX jobs_by_time      ON jobs (submitted_at, id, uid, partition_name, verdict);
CREATE INDEX jobs_by_user      ON jobs (uid, submitted_at, id, partition_name, verdict);
CREATE INDEX jobs_by_partition ON jobs (partition_name, submitted_at, id, uid, verdict);
CREATE INDEX jobs_by_verdict   ON jobs (verdict, submitted_at, id, uid, partition_name);

-- What retention looks for, and what SQLite looks for when it deletes an estimate.
CREATE INDEX jobs_ended         ON jobs (updated_at) WHERE finished = 1;
CREATE INDEX decisions_estimate ON decisions (estimate);

DROP VIEW decision_list;

-- One line per job: what was asked, what was found, what was done.
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
       j.node_list
FROM jobs j
LEFT JOIN decisions d ON d.id = (SELECT max(id) FROM decisions WHERE job = j.id)
LEFT JOIN estimates e ON e.id = d.estimate;

-- Every probe, with the time that it took; seconds is NULL where no report came.
CREATE VIEW probe_list AS
SELECT p.id,
       p.job,
       j.slurm_job_id,
       p.name,
       p.slurm_job_id                                     AS probe_slurm_job_id,
       datetime(p.requested_at / 1000, 'unixepoch')       AS requested_utc,
       round((p.reported_at - p.requested_at) / 1000.0, 1) AS seconds,
       p.bundle_bytes
FROM probes p JOIN jobs j ON j.id = p.job;

-- Every answer of an estimator. The memory is NULL where the answer is unknown.
CREATE VIEW estimate_list AS
SELECT e.id,
       e.job,
       j.slurm_job_id,
       j.uid,
       datetime(e.at / 1000, 'unixepoch')                AS at_utc,
       e.estimator,
       e.gpu,
       e.confidence,
       round(e.comfortable_bytes / 1073741824.0, 2)      AS comfortable_gib,
       round(e.comfortable_high_bytes / 1073741824.0, 2) AS comfortable_high_gib,
       json_extract(e.body, '$.fits')                    AS fits,
       json_extract(e.body, '$.steps')                   AS steps,
       json_extract(e.body, '$.versions.torch')          AS torch,
       round(json_extract(e.body, '$.wall_seconds'), 1)  AS wall_seconds
FROM estimates e JOIN jobs j ON j.id = e.job;

-- Every reason why an estimate is not exact, one line each.
CREATE VIEW reason_list AS
SELECT e.id AS estimate,
       e.job,
       j.slurm_job_id,
       e.confidence,
       json_extract(r.value, '$.code')   AS code,
       json_extract(r.value, '$.detail') AS detail
FROM estimates e JOIN jobs j ON j.id = e.job, json_each(e.body, '$.reasons') r;

-- Jobs of each day (UTC) by what was decided. A verdict of NULL: nothing was decided yet, or the job left our hands first.
CREATE VIEW day_list AS
SELECT date(submitted_at / 1000, 'unixepoch') AS day_utc, mode, verdict, count(*) AS jobs
FROM jobs GROUP BY day_utc, mode, verdict;

-- Jobs of each user.
CREATE VIEW user_list AS
SELECT uid,
       count(*)                                          AS jobs,
       sum(verdict IS 'rewrite')                         AS rewrites,
       sum(verdict IS 'keep')                            AS kept,
       sum(verdict IS 'leave_alone')                     AS left_alone,
       sum(verdict IS NULL)                              AS undecided,
       datetime(max(submitted_at) / 1000, 'unixepoch')   AS last_submitted_utc
FROM jobs GROUP BY uid;

-- Why: the jobs of each code, with the latest of them.
CREATE VIEW code_list AS
SELECT j.verdict, d.code, count(*) AS jobs, max(j.id) AS latest_job
FROM jobs j JOIN decisions d ON d.id = (SELECT max(id) FROM decisions WHERE job = j.id)
GROUP BY j.verdict, d.code;

-- Jobs that gresized looks after at this moment.
CREATE VIEW open_list AS
SELECT id,
       token,
       slurm_job_id,
       uid,
       state,
       datetime(updated_at / 1000, 'unixepoch')                          AS since_utc,
       CASE WHEN hold_until > 0 THEN datetime(hold_until / 1000, 'unixepoch') END AS held_until_utc
FROM jobs WHERE finished = 0;
