"""A run is a fold over its tape. Owns: every rule of a run. Not: performing anything (engine)."""
