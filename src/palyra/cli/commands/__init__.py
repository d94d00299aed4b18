"""The commands of `palyra`, one module for each group. Does not own: how things look on a terminal (terminal)."""
