"""The journal on SQLite: WAL, one writer thread with group commit, readers beside it."""
