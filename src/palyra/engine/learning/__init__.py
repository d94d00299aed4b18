"""Performs learning: reads runs that are over, stores what was found, and applies what was accepted.

Does not own: rules (core.learning), jobs (engine.jobs), what people decide (engine.api.candidates).
"""
