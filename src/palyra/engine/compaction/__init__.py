"""Compacts sessions: gathers what is compacted, asks a model for a summary, and has the session's loop record it.

Does not own: the rules (core.compaction).
"""
