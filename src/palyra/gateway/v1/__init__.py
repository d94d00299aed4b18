"""Messages of the gRPC interface, generated from `proto/palyra/gateway/v1` by `make protos`. Do not edit them.

Owns: nothing by hand. Does not own: the service (gateway.grpc), the clients (palyra.client).
"""
