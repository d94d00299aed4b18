"""Compaction `session_window_v1`: what of a long conversation is kept word for word, and what becomes a summary.

Does not own: reading tapes and calling models (engine.jobs.compaction).
"""
