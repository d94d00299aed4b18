"""Commits before they are written. Owns: their preconditions and the rows they leave. Does not own: a database."""
