"""Limits and settings of the gRPC interface.

Owns: every bound that a client of gRPC meets, each with its reason.
Does not own: reading configuration (config), the rates of callers (access.rate_limits), the number of streams that
follow runs, which HTTP and gRPC share (gateway.http.sse).
"""

import msgspec

from palyra.gateway.http.settings import HEARTBEAT_S, JSON_BYTES_MAX

MESSAGE_BYTES_MAX = JSON_BYTES_MAX  # What a client sends; larger is an artifact, as over HTTP.
METADATA_BYTES_MAX = 16 * 1024
PAGE_BYTES_MAX = 2 * 1024 * 1024  # Of one answer. Clients refuse more than 4 MiB unless they are told otherwise.
DELTA_LENGTH_MAX = 64 * 1024  # Characters of joined live text in one message.
WRITE_TIMEOUT_S = 2 * HEARTBEAT_S  # A client that takes nothing for so long is cut, as over HTTP.
FIRST_MESSAGE_S = 15.0  # From opening a stream to its first message.
CHECKS_MAX = 64  # Health checks whose message is awaited at once. They need no token, and each may hold a message.
CHECK_MESSAGE_S = 5.0  # Clients send it together with the call.
LATE_ANSWER_S = 10.0  # How long the end of a stream waits for a request of the client that is under way.
ANSWERS_WAITING_MAX = 16  # Acknowledgements that wait for the client; beyond it no more of its messages are read.

CONNECTIONS_MAX = 1024
CALLS_MAX = 4096  # At once, over all connections.
CALLS_PER_CONNECTION_MAX = 512  # As many streams as a token may have open.
# A silent connection takes a place for so long. Clients that found none try again after 0.8 to 1.2 seconds.
HANDSHAKE_TIMEOUT_MS = 700
TLS_HANDSHAKE_TIMEOUT_MS = 1_500  # Two round trips more, which may be slow ones.
IDLE_CONNECTION_MS = 60_000  # Without a call. Libraries open another one when they need it.
KEEPALIVE_MS = 30_000  # A silent connection is pinged, so that one whose machine is gone does not stay.
KEEPALIVE_TIMEOUT_MS = 10_000
PING_INTERVAL_MS = 10_000  # A client that pings more often is disconnected.
LAST_WRITE_S = 5.0  # A stream that is ended finishes the message it is writing.
STOP_GRACE_S = 5.0  # Calls under way may finish; what is still open then is cut.


class GrpcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`client_ca` is a file of certificates: if it is set, clients must present one that those have signed (mTLS)."""

    host: str = "127.0.0.1"
    port: int = 7143
    tls_cert: str | None = None
    tls_key: str | None = None
    client_ca: str | None = None
    is_insecure: bool = False
    connections_max: int = CONNECTIONS_MAX

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
