"""Ports: the Protocols that adapters implement, in our own words, one file per noun.

Does not own: implementations (adapters).
"""
