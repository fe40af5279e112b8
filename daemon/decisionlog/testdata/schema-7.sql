PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
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
, time_limit_minutes INTEGER, slurm_version TEXT NOT NULL DEFAULT '', verdict TEXT CHECK (verdict IN ('rewrite', 'keep', 'leave_alone')), outcome TEXT CHECK (outcome IN ('completed', 'failed', 'out_of_memory', 'unknown')), tasks    INTEGER NOT NULL DEFAULT 1, code     TEXT    NOT NULL DEFAULT '', asked_id INTEGER REFERENCES requests (id), now_id   INTEGER REFERENCES requests (id), life INTEGER REFERENCES lives (id), number INTEGER) STRICT;
INSERT INTO jobs VALUES(1,'tokrewritten','enforce','verified',1,7,1001,100,'train�','gpu','','','/home/a b','{"tres_per_node":"gres:gpu:1","features":"gpu80g"}','--gres=gpu:1 --constraint=gpu80g','a100-80','f','s',1795831200000,0,1795831260000,1795831206000,'gpu1',NULL,'','rewrite','completed',1,'smaller_row_fits',1,2,NULL,NULL);
INSERT INTO jobs VALUES(2,'tokalone','shadow','left_alone',1,NULL,1002,100,'train�','big','','','/home/a b','{"tres_per_node":"gres:gpu:1","features":"gpu80g"}','--gres=gpu:1 --constraint=gpu80g','a100-80','f','s',1795834800000,0,0,1795834800000,'',NULL,'','leave_alone',NULL,1,'array_job',1,NULL,NULL,NULL);
INSERT INTO jobs VALUES(3,'tokopen','enforce','held',0,NULL,1001,100,'train�','gpu','','','/home/a b','{"tres_per_node":"gres:gpu:1","features":"gpu80g"}','--gres=gpu:1 --constraint=gpu80g','a100-80','f','s',1795831200000,0,1795831260000,1795838400000,'',NULL,'',NULL,NULL,1,'',1,NULL,NULL,NULL);
CREATE TABLE events (
  id     INTEGER PRIMARY KEY,
  job    INTEGER NOT NULL REFERENCES jobs (id),
  at     INTEGER NOT NULL,
  state  TEXT    NOT NULL,
  code   TEXT    NOT NULL,                         -- stable word for the cause, or ''
  detail TEXT    NOT NULL                          -- a sentence for people
) STRICT;
INSERT INTO events VALUES(1,1,1795831200000,'held','','the plugin was told to hold the job');
INSERT INTO events VALUES(2,1,1795831201000,'found','','');
INSERT INTO events VALUES(3,1,1795831202000,'probing','','');
INSERT INTO events VALUES(4,1,1795831203000,'reported','','');
INSERT INTO events VALUES(5,1,1795831204000,'estimated','','');
INSERT INTO events VALUES(6,1,1795831205000,'decided','smaller_row_fits','');
INSERT INTO events VALUES(7,1,1795831206000,'verified','','');
INSERT INTO events VALUES(8,2,1795834800000,'left_alone','array_job','');
INSERT INTO events VALUES(9,3,1795838400000,'held','','');
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
INSERT INTO probes VALUES(1,1,'gresize-probe-a','hash',8,1795831202000,1795831203000,'sum',9);
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
, from_job INTEGER) STRICT;
INSERT INTO estimates VALUES(1,1,1795831204000,'vgpu','a100-80','high',7516192768,8589934592,'{"schema":"gresize.estimate/1","estimator":"vgpu","gpu":"a100-80","ranks":[{"rank":0,"peak_allocated_bytes":5368709120,"peak_reserved_bytes":6442450944,"outside_bytes":1073741824,"comfortable_bytes":7516192768,"comfortable_high_bytes":8589934592}],"confidence":"high","reasons":[{"code":"workspace_bounded","detail":"conv"}],"versions":{"gresize":""},"wall_seconds":0,"steps":4,"fits":true}',NULL);
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
, margin TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(margin))) STRICT;
INSERT INTO decisions VALUES(1,1,1,1795831201000,'keep','already_smallest','first look',0,0,'{}','{"set":null,"result":{}}','','{}');
INSERT INTO decisions VALUES(2,1,1,1795831202000,'rewrite','smaller_row_fits','the job needs 8.5 GiB',536870912,9126805504,'{"constraint":"gpu12g"}','{"set":[{"key":"Features","value":"gpu12g"}],"result":{"tres_per_node":"gres:gpu:1","features":"gpu12g"}}','--gres=gpu:1 --constraint=gpu12g','{}');
INSERT INTO decisions VALUES(3,2,NULL,1795834800000,'leave_alone','array_job','it is an array',0,0,'{}','{"set":null,"result":{}}','','{}');
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
  detail              TEXT    NOT NULL DEFAULT '', host_peak_bytes INTEGER,
  UNIQUE (job, source, run, node)
) STRICT;
INSERT INTO actuals VALUES(1,1,1795831900000,'nvml_accounting',0,'gpu1','completed',0,NULL,600,8053063680,'[{"gpu":"0","peak_bytes":8053063680}]',1,'',NULL);
CREATE TABLE rescues (
  id     INTEGER PRIMARY KEY,
  job    INTEGER NOT NULL UNIQUE REFERENCES jobs (id),
  at     INTEGER NOT NULL,
  state  TEXT    NOT NULL CHECK (state IN ('asked', 'requeued', 'restored', 'refused')),
  detail TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE inputs (
  id    INTEGER PRIMARY KEY,
  job   INTEGER NOT NULL UNIQUE REFERENCES jobs (id),
  files INTEGER NOT NULL,
  body  BLOB    NOT NULL                            -- gresize.inputs/1, gzip
) STRICT;
CREATE TABLE requests (
  id   INTEGER PRIMARY KEY,
  body TEXT NOT NULL UNIQUE CHECK (json_valid(body))
) STRICT;
INSERT INTO requests VALUES(1,'{"tres_per_node":"gres:gpu:1","features":"gpu80g"}');
INSERT INTO requests VALUES(2,'{"tres_per_node":"gres:gpu:1","features":"gpu12g"}');
CREATE TABLE lives (
  id       INTEGER PRIMARY KEY,
  began_at INTEGER NOT NULL,
  ended_at INTEGER,                                -- NULL: it goes on, or was killed
  answered INTEGER,                                -- submissions that got a number; NULL: not known yet, or after a power cut
  recorded INTEGER NOT NULL DEFAULT 0              -- how many of them have a row, those that were deleted for their age included
) STRICT;
CREATE INDEX jobs_slurm_job_id ON jobs (slurm_job_id);
CREATE INDEX jobs_open ON jobs (finished) WHERE finished = 0;
CREATE INDEX events_job ON events (job, id);
CREATE INDEX probes_job ON probes (job);
CREATE INDEX estimates_job ON estimates (job);
CREATE INDEX decisions_job ON decisions (job);
CREATE VIEW event_list AS
SELECT e.job, j.slurm_job_id, strftime('%Y-%m-%d %H:%M:%f', e.at / 1000.0, 'unixepoch') AS at_utc, e.state, e.code, e.detail
FROM events e JOIN jobs j ON j.id = e.job;
CREATE INDEX jobs_by_time      ON jobs (submitted_at, id, uid, partition_name, verdict);
CREATE INDEX jobs_by_user      ON jobs (uid, submitted_at, id, partition_name, verdict);
CREATE INDEX jobs_by_partition ON jobs (partition_name, submitted_at, id, uid, verdict);
CREATE INDEX jobs_by_verdict   ON jobs (verdict, submitted_at, id, uid, partition_name);
CREATE INDEX jobs_ended         ON jobs (updated_at) WHERE finished = 1;
CREATE INDEX decisions_estimate ON decisions (estimate);
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
CREATE VIEW reason_list AS
SELECT e.id AS estimate,
       e.job,
       j.slurm_job_id,
       e.confidence,
       json_extract(r.value, '$.code')   AS code,
       json_extract(r.value, '$.detail') AS detail
FROM estimates e JOIN jobs j ON j.id = e.job, json_each(e.body, '$.reasons') r;
CREATE VIEW day_list AS
SELECT date(submitted_at / 1000, 'unixepoch') AS day_utc, mode, verdict, count(*) AS jobs
FROM jobs GROUP BY day_utc, mode, verdict;
CREATE VIEW user_list AS
SELECT uid,
       count(*)                                          AS jobs,
       sum(verdict IS 'rewrite')                         AS rewrites,
       sum(verdict IS 'keep')                            AS kept,
       sum(verdict IS 'leave_alone')                     AS left_alone,
       sum(verdict IS NULL)                              AS undecided,
       datetime(max(submitted_at) / 1000, 'unixepoch')   AS last_submitted_utc
FROM jobs GROUP BY uid;
CREATE VIEW code_list AS
SELECT j.verdict, d.code, count(*) AS jobs, max(j.id) AS latest_job
FROM jobs j JOIN decisions d ON d.id = (SELECT max(id) FROM decisions WHERE job = j.id)
GROUP BY j.verdict, d.code;
CREATE VIEW open_list AS
SELECT id,
       token,
       slurm_job_id,
       uid,
       state,
       datetime(updated_at / 1000, 'unixepoch')                          AS since_utc,
       CASE WHEN hold_until > 0 THEN datetime(hold_until / 1000, 'unixepoch') END AS held_until_utc
FROM jobs WHERE finished = 0;
CREATE INDEX actuals_peaks ON actuals (id, job) WHERE peak_bytes IS NOT NULL OR outcome = 'out_of_memory';
CREATE TRIGGER actuals_outcome AFTER INSERT ON actuals BEGIN
  UPDATE jobs SET outcome = new.outcome
  WHERE id = new.job AND outcome IS NOT 'out_of_memory' AND (outcome IS NULL OR new.outcome <> 'unknown');
END;
CREATE INDEX jobs_out_of_memory ON jobs (submitted_at, id, uid, partition_name, verdict, outcome) WHERE outcome = 'out_of_memory';
CREATE INDEX rescues_open ON rescues (state) WHERE state IN ('asked', 'requeued');
CREATE INDEX jobs_by_fingerprint ON jobs (fingerprint, uid, id);
CREATE INDEX jobs_by_script      ON jobs (script_sha256, uid, id);
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
CREATE VIEW row_list AS
SELECT d.target,
       count(*)                                          AS jobs,
       sum(j.outcome IS NOT NULL)                        AS known,
       sum(j.outcome IS 'out_of_memory' AND EXISTS (SELECT 1 FROM actuals a WHERE a.job = j.id AND a.outcome = 'out_of_memory' AND a.after_rewrite = 1)) AS died
FROM jobs j JOIN decisions d ON d.id = (SELECT max(id) FROM decisions WHERE job = j.id)
WHERE j.verdict = 'rewrite' AND j.mode = 'enforce'
GROUP BY d.target;
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
       round(json_extract(e.body, '$.host_peak_bytes') / 1073741824.0, 2) AS probe_host_gib,
       round(a.host_peak_bytes / 1073741824.0, 2)        AS host_gib,
       a.after_rewrite,
       a.detail
FROM actuals a JOIN jobs j ON j.id = a.job
LEFT JOIN estimates e ON e.id = iif(a.after_rewrite, (SELECT d.estimate FROM decisions d WHERE d.job = a.job ORDER BY d.id DESC LIMIT 1), (SELECT min(id) FROM estimates WHERE job = a.job));
CREATE TRIGGER jobs_request AFTER INSERT ON jobs BEGIN
  INSERT INTO requests (body) VALUES (new.asked) ON CONFLICT DO NOTHING;
  UPDATE jobs SET asked_id = (SELECT id FROM requests WHERE body = new.asked) WHERE id = new.id;
END;
CREATE TRIGGER decisions_verdict AFTER INSERT ON decisions BEGIN
  INSERT INTO requests (body) SELECT json_extract(new.change, '$.result') WHERE new.verdict = 'rewrite' AND json_extract(new.change, '$.result') IS NOT NULL ON CONFLICT DO NOTHING;
  UPDATE jobs SET verdict = new.verdict, code = new.code,
    now_id = iif(new.verdict = 'rewrite', (SELECT id FROM requests WHERE body = json_extract(new.change, '$.result')), NULL) WHERE id = new.job;
END;
CREATE INDEX jobs_by_group ON jobs (asked_id, now_id, mode, state, verdict, code, outcome, finished, time_limit_minutes, tasks, submitted_at, uid, partition_name);
CREATE INDEX estimates_taken_over ON estimates (job) WHERE from_job IS NOT NULL;
CREATE INDEX actuals_by_job       ON actuals (job, run, peak_bytes, after_rewrite) WHERE peak_bytes IS NOT NULL;
CREATE VIEW life_list AS
SELECT id,
       datetime(began_at / 1000, 'unixepoch') AS began_utc,
       datetime(ended_at / 1000, 'unixepoch') AS ended_utc,
       CASE WHEN ended_at IS NOT NULL THEN 'ended' WHEN id = (SELECT max(id) FROM lives) THEN 'goes on' ELSE 'killed' END AS life,
       answered,
       recorded,
       answered - recorded AS missing
FROM lives;
CREATE INDEX jobs_by_state ON jobs (state, submitted_at, id, uid, partition_name, verdict);
COMMIT;
PRAGMA user_version = 7;
