"""Embedders, one module each, behind ports.embedder."""
