"""The engine performs what core decides: time, concurrency, and the order of effects.

Does not own: rules (core), translations (adapters).
"""
