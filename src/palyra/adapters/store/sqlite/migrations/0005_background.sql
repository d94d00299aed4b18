-- The background queue. Jobs are state: they change through core.writes.
CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    principal TEXT NOT NULL,
    payload TEXT NOT NULL,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL,
    dedupe_key TEXT,
    session_id TEXT,
    not_before_ms INTEGER NOT NULL,
    expires_at_ms INTEGER,
    attempts INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    owner TEXT,
    token INTEGER NOT NULL,
    leased_until_ms INTEGER NOT NULL,
    progress_at_ms INTEGER NOT NULL,
    progress TEXT NOT NULL,
    error TEXT,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
) STRICT;
-- The queue of one principal within a kind, so that nobody's backlog is read to find another's first job.
CREATE INDEX jobs_queued ON jobs (kind, principal, priority DESC, not_before_ms, id) WHERE state = 'queued';
-- The principals of a kind, each with the time at which its first job is due.
CREATE INDEX jobs_by_turn ON jobs (kind, principal, not_before_ms) WHERE state = 'queued';
CREATE INDEX jobs_dead ON jobs (id) WHERE state = 'dead';
CREATE INDEX jobs_running ON jobs (leased_until_ms) WHERE state = 'running';
CREATE INDEX jobs_due ON jobs (not_before_ms) WHERE state = 'queued';
CREATE INDEX jobs_expiring ON jobs (expires_at_ms) WHERE state = 'queued' AND expires_at_ms IS NOT NULL;
CREATE INDEX jobs_ended ON jobs (updated_at_ms) WHERE state NOT IN ('queued', 'running');
CREATE UNIQUE INDEX jobs_by_dedupe_key ON jobs (kind, dedupe_key)
    WHERE dedupe_key IS NOT NULL AND state IN ('queued', 'running');
CREATE INDEX jobs_by_session ON jobs (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX jobs_by_principal ON jobs (principal, id);

-- Delegated runs: which run started them.
ALTER TABLE runs ADD COLUMN parent_run_id TEXT;
CREATE INDEX runs_by_parent ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL;

-- Incidents are a projection of system tapes: what the watchdog found stuck or degraded.
CREATE TABLE incidents (
    id TEXT PRIMARY KEY,
    stream TEXT NOT NULL,
    domain TEXT NOT NULL,
    subject TEXT NOT NULL,
    severity TEXT NOT NULL,
    status TEXT NOT NULL,
    resolution TEXT,
    remedies TEXT NOT NULL,
    first_seen_ms INTEGER NOT NULL,
    opened_at_ms INTEGER NOT NULL,
    opened_count INTEGER NOT NULL,
    acted_count INTEGER NOT NULL,
    told_count INTEGER NOT NULL,
    acted_at_ms INTEGER,
    resolved_at_ms INTEGER,
    opened_seq INTEGER NOT NULL,
    seq INTEGER NOT NULL
) STRICT;
CREATE INDEX incidents_open ON incidents (id) WHERE status = 'open';
CREATE INDEX incidents_resolved ON incidents (resolved_at_ms) WHERE status = 'resolved';
CREATE INDEX incidents_by_stream ON incidents (stream);

-- Routines. The definition holds the prompt; a removed routine has none, and its row stays for its history.
CREATE TABLE routines (
    id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    name TEXT NOT NULL,
    definition TEXT NOT NULL,
    is_configured INTEGER NOT NULL,
    is_paused INTEGER NOT NULL,
    is_removed INTEGER NOT NULL,
    next_at_ms INTEGER,
    last_due_ms INTEGER,
    fired_count INTEGER NOT NULL,
    skipped_count INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX routines_by_name ON routines (principal, name) WHERE is_removed = 0;
CREATE INDEX routines_due ON routines (next_at_ms) WHERE next_at_ms IS NOT NULL AND is_paused = 0 AND is_removed = 0;
CREATE INDEX routines_removed ON routines (updated_at_ms) WHERE is_removed = 1;
CREATE TABLE routine_fires (
    routine_id TEXT NOT NULL,
    due_at_ms INTEGER NOT NULL,
    principal TEXT NOT NULL,
    reason TEXT,
    count INTEGER NOT NULL,
    is_manual INTEGER NOT NULL,
    job_id TEXT,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (routine_id, due_at_ms)
) STRICT;

-- Uncertain calls by what they do: the same call must not be repeated in another session of its principal.
CREATE INDEX approvals_in_doubt ON approvals (digest) WHERE status = 'pending' AND kind = 'uncertain';
