-- The plan with which a job runs on a card that is one size too small: what of it goes to host memory, and when (docs/run.md). Its node fetches it from here.
CREATE TABLE plans (
  id          INTEGER PRIMARY KEY,
  job         INTEGER NOT NULL UNIQUE REFERENCES jobs (id),
  at          INTEGER NOT NULL,
  slowdown    REAL    NOT NULL,                     -- by how many times a step is longer at most, by roofline
  host_bytes  INTEGER NOT NULL,                     -- of pinned host memory
  moved_bytes INTEGER NOT NULL,                     -- to and from the host in an iteration
  fetched_at  INTEGER,                              -- when a node last did; NULL: none has
  body        BLOB    NOT NULL                      -- gresize.offload/1
) STRICT;
