-- Remembered items. They are state: they change through core.writes, and forgetting one deletes its row.
CREATE TABLE memory_items (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    scope TEXT NOT NULL,
    scope_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    content TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    trust TEXT NOT NULL,
    taint TEXT NOT NULL,
    confidence_bps INTEGER NOT NULL,
    source TEXT NOT NULL,
    metadata TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER,
    status TEXT NOT NULL,
    superseded_by TEXT,
    candidate_id TEXT,
    uses_count INTEGER NOT NULL DEFAULT 0,
    helped_count INTEGER NOT NULL DEFAULT 0,
    harmed_count INTEGER NOT NULL DEFAULT 0,
    used_at_ms INTEGER
) STRICT;
-- One active item of the same content in a scope. It also finds the scopes of an owner without reading items.
CREATE UNIQUE INDEX memory_active ON memory_items (owner, scope, scope_id, content_hash) WHERE status = 'active';
CREATE INDEX memory_by_hash ON memory_items (owner, content_hash) WHERE status = 'active';
CREATE INDEX memory_by_owner ON memory_items (owner, id);
CREATE INDEX memory_by_kind ON memory_items (owner, kind, id) WHERE status = 'active';
CREATE INDEX memory_superseded ON memory_items (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX memory_expiring ON memory_items (expires_at_ms) WHERE expires_at_ms IS NOT NULL;
CREATE INDEX memory_by_session ON memory_items (scope_id) WHERE scope = 'session';
CREATE INDEX memory_by_candidate ON memory_items (candidate_id) WHERE candidate_id IS NOT NULL;

-- Tapes that hold the content of an item, so that forgetting the item erases it there too.
CREATE TABLE memory_mentions (
    memory_id TEXT NOT NULL,
    stream TEXT NOT NULL,
    PRIMARY KEY (memory_id, stream)
) STRICT, WITHOUT ROWID;
CREATE INDEX memory_mentions_by_stream ON memory_mentions (stream);
