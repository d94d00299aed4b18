"""Keeps memory in order: erases what tapes hold of forgotten items, and forgets items whose time is over."""
