"""Watches the daemon: looks for what is stuck or degraded, records incidents, and acts on them.

Does not own: what counts as stuck and what follows from it (core.healing).
"""
