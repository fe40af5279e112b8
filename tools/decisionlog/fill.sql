-- Fills an empty decision log with as many finished jobs as the one row of the table temp.fill says, in its column jobs, for measurements:
--   { cat daemon/decisionlog/migrations/*.sql; echo "PRAGMA user_version = $(ls daemon/decisionlog/migrations | wc -l);"; } | sqlite3 big.db
--   { echo 'CREATE TEMP TABLE fill AS SELECT 1000000 AS jobs;'; cat tools/decisionlog/fill.sql; } | sqlite3 big.db
-- One job a second up to a fixed day; 200 users, 5 partitions; of 50 jobs, 30 are left alone, 14 kept and 6 rewritten, none of part4. User 7 submitted once in 100 000 jobs.
INSERT INTO jobs (id, token, mode, state, finished, slurm_job_id, uid, gid, job_name, partition_name, account, qos, work_dir, asked, asked_text, profile, fingerprint,
                  script_sha256, submitted_at, begin_at, hold_until, updated_at, node_list, time_limit_minutes, slurm_version)
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n, temp.fill WHERE i < jobs)
SELECT i, printf('token%016d', i), 'shadow', iif(i % 50 < 30, 'left_alone', 'shadowed'), 1, 1000 + i, iif(i % 100000 = 0, 7, 1000 + i * 7919 % 200), 100, 'train-' || (i % 977),
       'part' || (i % 5), 'account' || (i % 31), 'normal', '/home/user/project-' || (i % 101), '{"tres_per_node":"gres:gpu:1","features":"gpu80g"}', '--gres=gpu:1 --constraint=gpu80g',
       'a100-80', printf('%064d', i % 5000), printf('%064d', i % 4000), 1795000000000 + i * 1000, 0, 0, 1795000000000 + i * 1000 + 90000, '', 240, '22.05.8'
FROM n;

INSERT INTO events (job, at, state, code, detail)
SELECT id, submitted_at, iif(state = 'left_alone', state, 'stamped'), iif(state = 'left_alone', 'array_job', ''), '' FROM jobs;
INSERT INTO events (job, at, state, code, detail) SELECT id, updated_at, state, 'smaller_row_fits', 'shadow mode: nothing was changed' FROM jobs WHERE state = 'shadowed';

INSERT INTO estimates (job, at, estimator, gpu, confidence, comfortable_bytes, comfortable_high_bytes, body)
SELECT id, updated_at, 'vgpu', 'a100-80', 'high', 7516192768, 8589934592,
       '{"schema":"gresize.estimate/1","estimator":"vgpu","gpu":"a100-80","ranks":[{"rank":0,"peak_allocated_bytes":5368709120,"peak_reserved_bytes":6442450944,"outside_bytes":1073741824,"comfortable_bytes":7516192768,"comfortable_high_bytes":8589934592}],"confidence":"high","reasons":[{"code":"workspace_bounded","detail":"conv"}],"versions":{"gresize":"0"},"wall_seconds":9.5,"steps":4,"fits":true}'
FROM jobs WHERE state = 'shadowed';

INSERT INTO decisions (job, estimate, at, verdict, code, reason, margin_bytes, need_bytes, target, change, after_text)
SELECT j.id, e.id, j.updated_at,
       CASE WHEN j.state = 'left_alone' THEN 'leave_alone' WHEN (j.id % 50 < 42 OR j.id % 5 = 4) THEN 'keep' ELSE 'rewrite' END,
       CASE WHEN j.state = 'left_alone' THEN 'array_job' WHEN (j.id % 50 < 42 OR j.id % 5 = 4) THEN 'already_smallest' ELSE 'smaller_row_fits' END,
       'a sentence of the length that such a sentence has, with what was asked for and what would do',
       iif(e.id IS NULL, 0, 536870912), iif(e.id IS NULL, 0, 9126805504), iif((j.id % 50 < 42 OR j.id % 5 = 4), '{}', '{"constraint":"gpu12g"}'),
       iif((j.id % 50 < 42 OR j.id % 5 = 4), '{"set":null,"result":{}}', '{"set":[{"key":"Features","value":"gpu12g"}],"result":{"tres_per_node":"gres:gpu:1","features":"gpu12g"}}'),
       iif((j.id % 50 < 42 OR j.id % 5 = 4), '', '--gres=gpu:1 --constraint=gpu12g')
FROM jobs j LEFT JOIN estimates e ON e.job = j.id;

-- Two of five jobs that were tried were measured, on the card that they had asked for.
INSERT INTO actuals (job, at, source, node, outcome, exit_code, signal, elapsed_gpu_seconds, peak_bytes)
SELECT id, updated_at + 3600000, 'nvml_accounting', 'gpu' || (id % 64), 'completed', 0, 0, 3600, 6442450944 + id % 1000 * 2097152 FROM jobs WHERE state = 'shadowed' AND id % 5 < 2;
