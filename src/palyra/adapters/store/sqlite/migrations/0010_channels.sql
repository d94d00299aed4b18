-- Channels are state: what came in, who is who, and what goes out. They change through core.writes.

-- Deliveries that were taken, so that the same one twice is a duplicate.
CREATE TABLE channel_envelopes (
    channel TEXT NOT NULL,
    envelope_id TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (channel, envelope_id)
) STRICT;
CREATE INDEX channel_envelopes_by_time ON channel_envelopes (at_ms);

CREATE TABLE channel_states (
    channel TEXT PRIMARY KEY,
    is_paused INTEGER NOT NULL,
    at_ms INTEGER NOT NULL
) STRICT;

-- Accounts that a person linked to a principal. A revoked link stays, for the record.
CREATE TABLE channel_links (
    id TEXT PRIMARY KEY,
    channel TEXT NOT NULL,
    sender_id TEXT NOT NULL,
    principal TEXT NOT NULL,
    role TEXT NOT NULL,
    display TEXT NOT NULL,
    made_by TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    revoked_at_ms INTEGER
) STRICT;
CREATE UNIQUE INDEX channel_links_by_account ON channel_links (channel, sender_id) WHERE revoked_at_ms IS NULL;

CREATE TABLE pairing_codes (
    id TEXT PRIMARY KEY,
    code_hash TEXT NOT NULL UNIQUE,
    made_by TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    channel TEXT,
    principal TEXT,
    role TEXT,
    used_at_ms INTEGER
) STRICT;

-- An account that gave a right code, until a person answers. It goes with the answer.
CREATE TABLE pairing_requests (
    approval_id TEXT PRIMARY KEY,
    channel TEXT NOT NULL,
    sender_id TEXT NOT NULL,
    display TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    principal TEXT,
    role TEXT,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL
) STRICT;

-- Wrong codes of a sender; of the whole channel where sender_id is empty.
CREATE TABLE pairing_attempts (
    channel TEXT NOT NULL,
    sender_id TEXT NOT NULL,
    wrong_count INTEGER NOT NULL,
    since_ms INTEGER NOT NULL,
    locked_until_ms INTEGER NOT NULL,
    PRIMARY KEY (channel, sender_id)
) STRICT;

CREATE TABLE outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    channel TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    thread_id TEXT,
    reply_to TEXT,
    session_id TEXT,
    buttons TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    part INTEGER NOT NULL,
    not_before_ms INTEGER NOT NULL,
    error TEXT,
    message_ids TEXT NOT NULL,
    updated_at_ms INTEGER NOT NULL
) STRICT;
-- The first item of a conversation that still waits.
CREATE INDEX outbox_open ON outbox (channel, conversation_id, number) WHERE state IN ('queued', 'sending');
CREATE INDEX outbox_stuck ON outbox (channel, number) WHERE state IN ('dead', 'uncertain');
CREATE INDEX outbox_ended ON outbox (updated_at_ms) WHERE state IN ('sent', 'discarded');
CREATE INDEX outbox_by_session ON outbox (session_id) WHERE session_id IS NOT NULL;
