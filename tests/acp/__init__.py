"""Editors that speak the Agent Client Protocol to the real command."""
