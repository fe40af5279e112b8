-- The host memory that a run took, where Slurm's accounting samples it, beside what its probe had taken.
ALTER TABLE actuals ADD COLUMN host_peak_bytes INTEGER;  -- of the largest step; NULL: not known

DROP VIEW actual_list;
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
