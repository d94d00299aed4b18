-- Marks are a projection of session tapes: checkpoints and pins. Their texts stay in the events.
CREATE TABLE marks (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    made_seq INTEGER NOT NULL,
    at_seq INTEGER NOT NULL,
    removed_seq INTEGER,
    created_at_ms INTEGER NOT NULL,
    seq INTEGER NOT NULL
) STRICT;
CREATE INDEX marks_by_session ON marks (session_id, kind, made_seq);
