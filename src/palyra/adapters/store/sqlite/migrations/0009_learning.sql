-- What learning proposes. The words of a candidate are here alone, so that deleting the row forgets them.
CREATE TABLE candidates (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    session_id TEXT NOT NULL,
    content TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    applied_to TEXT NOT NULL,
    document TEXT NOT NULL,
    record TEXT NOT NULL,
    revision INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX candidates_by_owner ON candidates (owner, status, id);
CREATE INDEX candidates_by_content ON candidates (owner, kind, content_hash);
CREATE INDEX candidates_by_session ON candidates (session_id);
CREATE INDEX candidates_by_document ON candidates (document, kind) WHERE document <> '';

-- Which items were given to which runs, and what came of those runs.
CREATE TABLE item_uses (
    kind TEXT NOT NULL,
    item_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    session_id TEXT NOT NULL,
    outcome TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (kind, item_id, run_id)
) STRICT;
CREATE INDEX item_uses_by_owner ON item_uses (owner, at_ms);
CREATE INDEX item_uses_by_session ON item_uses (session_id);

-- Which runs were reflected on.
CREATE TABLE reflections (
    run_id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    how TEXT NOT NULL,
    found_count INTEGER NOT NULL,
    junk_count INTEGER NOT NULL,
    at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX reflections_by_session ON reflections (session_id, at_ms);
CREATE INDEX reflections_by_owner ON reflections (owner, at_ms);
