"""The shell runtime: commands in a sandbox, and background processes.

Does not own: judging what a command changed (engine.session.draft_gate).
"""
