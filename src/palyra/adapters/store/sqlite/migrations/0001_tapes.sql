-- Tapes and the tables derived from them. Never edited once released: the next change is a new file.

-- One row a tape, so that events carry a small integer instead of its name.
CREATE TABLE tapes (
    id INTEGER PRIMARY KEY,
    stream TEXT NOT NULL UNIQUE
) STRICT;

-- The facts. A rowid table with one unique index: clustering by tape was measured slower.
-- data is canonical JSON; salt is null once data was erased; digest and hash never change.
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    tape_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    run_id TEXT,
    type TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    actor TEXT NOT NULL,
    trust TEXT NOT NULL,
    data BLOB NOT NULL,
    salt BLOB,
    digest BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_by_tape ON events (tape_id, seq);

-- Projections: computed from events by core.projections, compared by verify, rebuilt at will.

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    agent TEXT NOT NULL,
    key TEXT,
    label TEXT,
    parent_id TEXT,
    parent_seq INTEGER,
    reset_seq INTEGER NOT NULL,
    compacted_seq INTEGER NOT NULL,
    active_run_id TEXT,
    is_erased INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    seq INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_by_owner ON sessions (owner, id);
CREATE UNIQUE INDEX sessions_by_key ON sessions (owner, key) WHERE key IS NOT NULL;
CREATE INDEX sessions_by_label ON sessions (owner, label) WHERE label IS NOT NULL;
CREATE INDEX sessions_by_parent ON sessions (parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    principal TEXT NOT NULL,
    agent TEXT NOT NULL,
    origin TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    idempotency_key TEXT,
    accepted_seq INTEGER NOT NULL,
    answer_seq INTEGER,
    ended_seq INTEGER,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost_nano_usd INTEGER NOT NULL,
    unpriced_count INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    seq INTEGER NOT NULL
) STRICT;
CREATE INDEX runs_by_session ON runs (session_id, id);
CREATE UNIQUE INDEX runs_by_idempotency_key ON runs (principal, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX runs_unfinished ON runs (session_id, accepted_seq) WHERE ended_seq IS NULL;

CREATE TABLE approvals (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    run_id TEXT,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    digest TEXT NOT NULL,
    call_id TEXT,
    tool TEXT,
    requested_seq INTEGER NOT NULL,
    resolved_seq INTEGER,
    decided_by TEXT,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER,
    seq INTEGER NOT NULL
) STRICT;
CREATE INDEX approvals_by_session ON approvals (session_id, digest);
CREATE INDEX approvals_pending ON approvals (session_id, requested_seq) WHERE status = 'pending';

CREATE TABLE grants (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    approval_id TEXT NOT NULL,
    principal TEXT NOT NULL,
    agent TEXT NOT NULL,
    tool TEXT NOT NULL,
    scope TEXT NOT NULL,
    granted_seq INTEGER NOT NULL,
    revoked_seq INTEGER,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER,
    seq INTEGER NOT NULL
) STRICT;
CREATE INDEX grants_by_principal ON grants (principal, id);
CREATE INDEX grants_by_tool ON grants (principal, tool, created_at_ms) WHERE revoked_seq IS NULL;
CREATE INDEX grants_by_session ON grants (session_id);

CREATE TABLE usage (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    model TEXT NOT NULL,
    quarter INTEGER NOT NULL,
    calls_count INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost_nano_usd INTEGER NOT NULL,
    unpriced_count INTEGER NOT NULL,
    seq INTEGER NOT NULL
) STRICT;
CREATE INDEX usage_by_session ON usage (session_id);
CREATE INDEX usage_by_run ON usage (run_id);
CREATE INDEX usage_by_quarter ON usage (quarter);

-- State: changed through core.writes.

CREATE TABLE heartbeats (
    run_id TEXT PRIMARY KEY,
    node TEXT NOT NULL,
    at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    token INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE sealed_secrets (
    run_id TEXT NOT NULL,
    secret_id TEXT NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (run_id, secret_id)
) STRICT;

CREATE TABLE artifact_links (
    artifact_id TEXT NOT NULL,
    stream TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    media_type TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (artifact_id, stream)
) STRICT;
CREATE INDEX artifact_links_by_stream ON artifact_links (stream);
