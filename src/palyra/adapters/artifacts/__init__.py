"""Storage for artifacts: bodies too large for an event, named by their hash."""
