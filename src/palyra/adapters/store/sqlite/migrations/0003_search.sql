-- What people said and were answered, by its words; and how far each artifact may be trusted.

-- The index holds no text of its own: it is read from the events, through this view.
CREATE VIEW search_texts AS
    SELECT position, json_extract(CAST(data AS TEXT), '$.text') AS text
    FROM events WHERE type IN ('message.user', 'message.assistant') AND salt IS NOT NULL;

CREATE VIRTUAL TABLE search USING fts5(
    text, content = 'search_texts', content_rowid = 'position', tokenize = 'unicode61 remove_diacritics 2'
);
-- Words of a text that is erased leave the index at once, and not only when its parts are merged one day.
INSERT INTO search (search, rank) VALUES ('secure-delete', 1);
INSERT INTO search (search) VALUES ('rebuild');

-- Of links made before this, nobody recorded where their bodies came from.
ALTER TABLE artifact_links ADD COLUMN trust TEXT NOT NULL DEFAULT 'external';
ALTER TABLE artifact_links ADD COLUMN source TEXT;
