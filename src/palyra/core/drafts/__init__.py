"""Rules of drafts: what a set of changes is, which of them ask, and how they are applied by hashes."""
