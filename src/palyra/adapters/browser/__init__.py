"""A real browser as tools. Owns: Chromium through playwright, held to the guard of `adapters/net`. Not: plain fetching."""
