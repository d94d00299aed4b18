"""Projections: tables computed from events. Owns: the rows and the pure functions behind them. Not: storing them."""
