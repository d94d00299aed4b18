"""Commands of `palyra`, one module for each group. Not: what they show on a terminal (terminal)."""
