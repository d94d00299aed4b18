-- Files that go out with a message: a list of artifacts, each with its name and media type.
ALTER TABLE outbox ADD COLUMN files TEXT NOT NULL DEFAULT '[]';
