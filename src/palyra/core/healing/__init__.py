"""The rules of self-healing: what counts as stuck or degraded, and what follows from it.

Does not own: looking at anything or doing anything about it (engine.healing).
"""
