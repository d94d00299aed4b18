-- How far a conversation was read, where the platform lists its messages. It changes with the envelopes that are taken.
CREATE TABLE channel_positions (
    channel TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (channel, conversation_id)
) STRICT;
CREATE INDEX channel_positions_by_time ON channel_positions (at_ms);
