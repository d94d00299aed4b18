"""Bearer tokens of one node: its admin token and a file of others. Not: checking requests (gateway)."""
