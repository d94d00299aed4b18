"""The command `palyra`: its groups of commands, its client of the daemon, and what it prints.

Does not own: rules (core), wiring (app).
"""
