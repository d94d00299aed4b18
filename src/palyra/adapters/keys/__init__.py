"""Keys in files: the node's signing key, the public keys beside the journal, and the key that seals secrets."""
