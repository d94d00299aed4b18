"""HTTP: the server, the application, requests, responses and event streams.

Does not own: routes (gateway.routes), who may do what (gateway.access).
"""
