"""Skills: folders with written procedures. Owns: reading, hashing and marking them. Not: what an open one narrows (core)."""
