-- A list by state. The filters of the list beside it are in the index, as in those of the others.
CREATE INDEX jobs_by_state ON jobs (state, submitted_at, id, uid, partition_name, verdict);
