"""The rules of memory: what an item is, what is worth keeping, and how items are found again.

Does not own: storage and search (adapters.store), vectors (ports.embedder).
"""
