"""gRPC: the server, its methods, the bidirectional stream of a run, and its messages.

Owns: how the engine's services are asked for over gRPC.
Does not own: who may ask (gateway.access), generated messages (gateway.v1), HTTP (gateway.http).
"""
