-- One row for each life of gresized. Its submissions are numbered as they are answered, and what was answered and never written is seen to be missing.
CREATE TABLE lives (
  id       INTEGER PRIMARY KEY,
  began_at INTEGER NOT NULL,
  ended_at INTEGER,                                -- NULL: it goes on, or was killed
  answered INTEGER,                                -- submissions that got a number; NULL: not known yet, or after a power cut
  recorded INTEGER NOT NULL DEFAULT 0              -- how many of them have a row, those that were deleted for their age included
) STRICT;

-- Both NULL in rows of earlier releases.
ALTER TABLE jobs ADD COLUMN life INTEGER REFERENCES lives (id);
ALTER TABLE jobs ADD COLUMN number INTEGER;

CREATE VIEW life_list AS
SELECT id,
       datetime(began_at / 1000, 'unixepoch') AS began_utc,
       datetime(ended_at / 1000, 'unixepoch') AS ended_utc,
       CASE WHEN ended_at IS NOT NULL THEN 'ended' WHEN id = (SELECT max(id) FROM lives) THEN 'goes on' ELSE 'killed' END AS life,
       answered,
       recorded,
       answered - recorded AS missing
FROM lives;
