"""Projections: tables computed from events, with their rows and the pure functions behind them.

Does not own: storing them (adapters.store).
"""
