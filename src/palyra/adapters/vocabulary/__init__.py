"""Counts tokens with bundled vocabularies."""
