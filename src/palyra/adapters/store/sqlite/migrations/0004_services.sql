-- Sessions of service runs: what for, and which session they are for.
ALTER TABLE sessions ADD COLUMN purpose TEXT;
ALTER TABLE sessions ADD COLUMN serves TEXT;
CREATE INDEX sessions_serves ON sessions (serves) WHERE serves IS NOT NULL;
