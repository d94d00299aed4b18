-- Whether an answer that covers later calls was a yes (grant) or a no (refusal). All earlier ones were a yes.
ALTER TABLE grants ADD COLUMN kind TEXT NOT NULL DEFAULT 'grant';
