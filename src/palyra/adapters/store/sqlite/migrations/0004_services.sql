-- Sessions of service runs: what for, and which session they are for.
ALTER TABLE sessions ADD COLUMN purpose TEXT;
ALTER TABLE sessions ADD COLUMN serves TEXT;
CREATE INDEX sessions_serves ON sessions (serves) WHERE serves IS NOT NULL;

-- When a run's last event or live text was seen, beside when it was last known to be alive.
ALTER TABLE heartbeats ADD COLUMN progress_at_ms INTEGER NOT NULL DEFAULT 0;
