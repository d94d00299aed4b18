"""Works on the background queue.

Owns: claiming, renewing, performing and ending jobs. Does not own: rules (core.jobs), SQL (each store).
"""
