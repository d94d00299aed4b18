"""The journal on SQLite: WAL, one writer thread with group commit, and readers beside it."""
