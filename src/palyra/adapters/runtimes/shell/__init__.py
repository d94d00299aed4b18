"""The shell runtime: commands in a sandbox, and background processes.

Does not own: judging a text (core.shell).
"""
