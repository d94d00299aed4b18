"""Policies: what may run, what asks, what is refused."""
