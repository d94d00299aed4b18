-- The index of remembered items: by words, by vectors, and by who said them when.

-- Items that a question filters alike. A question reads only the partitions that it may see.
CREATE TABLE memory_partitions (
    id INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    scope TEXT NOT NULL,
    scope_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    trust TEXT NOT NULL,
    items_count INTEGER NOT NULL,
    UNIQUE (owner, scope, scope_id, kind, trust)
) STRICT;

-- One entry for each active item. `thread` stands for a conversation, `pairs` for words of scripts without spaces.
-- `vector_version` is empty until the item has a vector.
CREATE TABLE memory_entries (
    number INTEGER PRIMARY KEY,
    partition INTEGER NOT NULL,
    expires_at_ms INTEGER,
    thread INTEGER,
    position INTEGER,
    speaker TEXT NOT NULL,
    said_from_ms INTEGER,
    said_until_ms INTEGER,
    pairs TEXT NOT NULL,
    vector_version TEXT NOT NULL
) STRICT;
CREATE INDEX memory_entries_threads ON memory_entries (thread, position) WHERE thread IS NOT NULL;
CREATE INDEX memory_entries_versions ON memory_entries (vector_version, number);
CREATE INDEX memory_entries_expiring ON memory_entries (expires_at_ms, partition) WHERE expires_at_ms IS NOT NULL;

-- Whose names a question may hold: one row for each word of a speaker's name.
CREATE TABLE memory_speakers (
    partition INTEGER NOT NULL,
    word TEXT NOT NULL,
    speaker TEXT NOT NULL,
    items_count INTEGER NOT NULL,
    PRIMARY KEY (partition, word, speaker)
) STRICT, WITHOUT ROWID;

-- The index by words holds no text of its own: FTS5 reads it through this view.
CREATE VIEW memory_texts AS
    SELECT entries.number AS number, items.content AS content, entries.pairs AS pairs
    FROM memory_entries AS entries CROSS JOIN memory_items AS items ON items.number = entries.number;
CREATE VIRTUAL TABLE memory_words USING fts5(
    content, pairs, content = 'memory_texts', content_rowid = 'number',
    tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO memory_words (memory_words, rank) VALUES ('secure-delete', 1);
CREATE VIRTUAL TABLE memory_terms USING fts5vocab('memory_words', 'row');

-- Vectors in full (16-bit floats), and the signs of their parts in blocks, which a search reads whole.
CREATE TABLE memory_vectors (
    number INTEGER PRIMARY KEY,
    block INTEGER NOT NULL,
    vector BLOB NOT NULL
) STRICT;
CREATE TABLE memory_blocks (
    id INTEGER PRIMARY KEY,
    partition INTEGER NOT NULL,
    version TEXT NOT NULL,
    items_count INTEGER NOT NULL,
    numbers BLOB NOT NULL,
    signs BLOB NOT NULL
) STRICT;
CREATE INDEX memory_blocks_by_partition ON memory_blocks (partition, version, items_count);

