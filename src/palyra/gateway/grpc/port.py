"""The port of gRPC before gRPC is loaded.

Owns: refusing an unsafe address, and taking the port early, so that a taken one is known when the daemon starts.
Does not own: the server (server), which takes a tenth of a second to load and therefore starts after HTTP.
"""

import socket
from pathlib import Path

from palyra.core.errors import Invalid, Unavailable
from palyra.gateway.grpc.settings import GrpcSettings
from palyra.gateway.http.server import is_loopback


def check_grpc_bind(settings: GrpcSettings) -> None:
    """Invalid for a bind that would send tokens and everything else over a network in the clear, or for half a TLS."""
    if (settings.tls_cert is None) is not (settings.tls_key is None):
        raise Invalid("tls_incomplete", "TLS needs both tls_cert and tls_key in [server]")
    if settings.client_ca is not None and settings.tls_cert is None:
        raise Invalid("tls_incomplete", "grpc_client_ca in [server] needs tls_cert and tls_key")
    if settings.tls_cert is None and not is_loopback(settings.host) and not settings.is_insecure:
        message = f"{settings.host} can be reached from other machines: set tls_cert and tls_key, or pass --insecure"
        raise Invalid("bind_insecure", message)
    for path in (settings.tls_cert, settings.tls_key, settings.client_ca):
        if path is not None and not Path(path).is_file():
            raise Invalid("tls_unreadable", f"there is no file {path}; check [server]")


def hold_port(settings: GrpcSettings) -> socket.socket:
    """Takes the port. Close the socket right before the server starts. Unavailable if somebody else has the port."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=1)
    except OSError as cause:
        what = f"cannot listen on {settings.address}: {cause.strerror or cause}; change grpc in [server]"
        raise Unavailable("address_unusable", what) from cause
