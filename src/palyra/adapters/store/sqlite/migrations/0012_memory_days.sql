-- The day on which an item was said, counted from 1970, or 0. A conversation that counts its positions anew in each
-- session is in order by day and position. A question that names a time reads the items of its days.
ALTER TABLE memory_entries ADD COLUMN day INTEGER NOT NULL DEFAULT 0;
UPDATE memory_entries SET day = said_from_ms / 86400000 WHERE said_from_ms IS NOT NULL;
DROP INDEX memory_entries_threads;
CREATE INDEX memory_entries_threads ON memory_entries (thread, day, position) WHERE thread IS NOT NULL;
CREATE INDEX memory_entries_days ON memory_entries (day) WHERE day <> 0;
