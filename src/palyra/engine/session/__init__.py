"""Drives one session at a time: the loop that commits, the gate that judges, the runner of effects.

Does not own: requests (engine.api).
"""
