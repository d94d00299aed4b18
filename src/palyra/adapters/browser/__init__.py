"""A real browser as tools: Chromium through playwright, limited by the guard of `adapters/net`.

Does not own: plain fetching (adapters.tools).
"""
