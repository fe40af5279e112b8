-- What a report asks of a job stands beside it, so that a million jobs are summed up by one walk through one index.

-- Requests are few and long: each is kept once.
CREATE TABLE requests (
  id   INTEGER PRIMARY KEY,
  body TEXT NOT NULL UNIQUE CHECK (json_valid(body))
) STRICT;

ALTER TABLE jobs ADD COLUMN tasks    INTEGER NOT NULL DEFAULT 1;             -- of an array; 1 before schema 5, whatever it was
ALTER TABLE jobs ADD COLUMN code     TEXT    NOT NULL DEFAULT '';            -- of the latest decision
ALTER TABLE jobs ADD COLUMN asked_id INTEGER REFERENCES requests (id);       -- the same as asked
ALTER TABLE jobs ADD COLUMN now_id   INTEGER REFERENCES requests (id);       -- what the latest decision makes of it; NULL: nothing

INSERT INTO requests (body) SELECT DISTINCT asked FROM jobs;
INSERT INTO requests (body) SELECT DISTINCT json_extract(change, '$.result') FROM decisions WHERE verdict = 'rewrite' AND json_extract(change, '$.result') IS NOT NULL ON CONFLICT DO NOTHING;
UPDATE jobs SET asked_id = (SELECT r.id FROM requests r WHERE r.body = jobs.asked);
UPDATE jobs SET code = d.code, now_id = iif(d.verdict = 'rewrite', (SELECT r.id FROM requests r WHERE r.body = json_extract(d.change, '$.result')), NULL)
FROM decisions d WHERE d.id = (SELECT max(id) FROM decisions WHERE job = jobs.id);

CREATE TRIGGER jobs_request AFTER INSERT ON jobs BEGIN
  INSERT INTO requests (body) VALUES (new.asked) ON CONFLICT DO NOTHING;
  UPDATE jobs SET asked_id = (SELECT id FROM requests WHERE body = new.asked) WHERE id = new.id;
END;
DROP TRIGGER decisions_verdict;
CREATE TRIGGER decisions_verdict AFTER INSERT ON decisions BEGIN
  INSERT INTO requests (body) SELECT json_extract(new.change, '$.result') WHERE new.verdict = 'rewrite' AND json_extract(new.change, '$.result') IS NOT NULL ON CONFLICT DO NOTHING;
  UPDATE jobs SET verdict = new.verdict, code = new.code,
    now_id = iif(new.verdict = 'rewrite', (SELECT id FROM requests WHERE body = json_extract(new.change, '$.result')), NULL) WHERE id = new.job;
END;

-- In the order of the groups of a report, with all that a filter or a sum asks for.
CREATE INDEX jobs_by_group ON jobs (asked_id, now_id, mode, state, verdict, code, outcome, finished, time_limit_minutes, tasks, submitted_at, uid, partition_name);

-- Answers that were taken over, and what was measured of a job.
CREATE INDEX estimates_taken_over ON estimates (job) WHERE from_job IS NOT NULL;
CREATE INDEX actuals_by_job       ON actuals (job, run, peak_bytes, after_rewrite) WHERE peak_bytes IS NOT NULL;
