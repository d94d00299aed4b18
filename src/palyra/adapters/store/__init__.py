"""Stores of the journal: what they all share, and one package for each database.

Does not own: rules of commits (core.commit).
"""
