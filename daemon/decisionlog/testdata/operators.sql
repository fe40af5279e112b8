-- What the queries of the manual ask for and tools/decisionlog/fill.sql does not make: a probe, an open job, a job with id 42, a rewrite of today, an unsure estimate.
UPDATE jobs SET submitted_at = strftime('%s', 'now') * 1000 WHERE verdict = 'rewrite';
UPDATE jobs SET slurm_job_id = 42 WHERE id = 1;
INSERT INTO probes (job, name, key_sha256, requested_at, reported_at) VALUES (31, 'gresize-probe-a', '', 1000, 10500), (32, 'gresize-probe-b', '', 1000, NULL);
UPDATE jobs SET finished = 0, state = 'probing' WHERE id = 33;
UPDATE estimates SET confidence = 'low' WHERE job = 31;
UPDATE jobs SET mode = 'enforce' WHERE verdict = 'rewrite';
INSERT INTO actuals (job, at, source, outcome, peak_bytes, after_rewrite) SELECT id, updated_at, 'nvml_accounting', 'out_of_memory', 8000000000, 1 FROM jobs WHERE verdict = 'rewrite';
INSERT INTO lives (began_at, answered, recorded) VALUES (1000, 12, 10);
