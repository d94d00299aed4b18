-- Where a session's taint came from, and which bytes were written under taint. Projections: computed from events.

CREATE TABLE taints (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    sources TEXT NOT NULL,
    seq INTEGER NOT NULL
) STRICT;
CREATE INDEX taints_by_session ON taints (session_id);

CREATE TABLE files (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    root TEXT NOT NULL,
    path TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    sources TEXT NOT NULL,
    seq INTEGER NOT NULL
) STRICT;
CREATE INDEX files_by_session ON files (session_id);
CREATE INDEX files_by_path ON files (path, sha256);
