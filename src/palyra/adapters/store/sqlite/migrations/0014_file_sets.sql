-- Files written under taint that are too many for a row each: a row whose path ends with a slash, and what it holds.
ALTER TABLE files ADD COLUMN members TEXT NOT NULL DEFAULT '';
CREATE INDEX files_sets ON files (path) WHERE members <> '';
