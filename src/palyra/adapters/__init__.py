"""Translations between our ports and the world. Each imports core and ports, never another adapter (net and files aside)."""
