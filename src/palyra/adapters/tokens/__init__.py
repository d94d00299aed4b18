"""Bearer tokens of one node: its admin token and a file of others. Does not own: checking requests (gateway)."""
