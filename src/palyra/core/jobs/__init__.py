"""The background queue (BackgroundQueue): jobs, when each is retried, and whose job comes next.

Does not own: storing jobs (core.writes, ports.jobs), nor performing them (engine.jobs).
"""
