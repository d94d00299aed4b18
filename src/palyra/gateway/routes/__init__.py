"""Routes of the HTTP API, one module for each noun.

Owns: the form of each request and answer.
Does not own: what is done (engine.api), who may do it (gateway.access).
"""
