"""Limits and settings of the HTTP interface.

Owns: every bound that a client of HTTP meets, each with its reason.
Does not own: reading configuration (config), the rates of callers (access.rate_limits).
"""

import msgspec

from palyra.gateway.access.rate_limits import REQUESTS_PER_MINUTE

JSON_BYTES_MAX = (
    1024 * 1024
)  # The longest text four times over in UTF-8, with room for a schema; larger is an artifact.
PLACES_MAX = (
    500_000  # Values of a larger body, about. Decoding takes up to 0.4 microseconds each, and nothing runs beside it.
)
MEMORY_BYTES_MAX = 8 * 1024 * 1024  # A thousand remembered items of some pages each.
ARTIFACT_BYTES_MAX = 32 * 1024 * 1024  # A large photo or log; it is held in memory while it arrives.
UPLOADS_MAX = 4  # At once: with ARTIFACT_BYTES_MAX the most memory that uploads can take.
UNPROVEN_BYTES_MAX = 64 * 1024 * 1024  # Of all bodies whose signature is not checked yet: anybody may send one.
UNPROVEN_SMALL_BYTES = 16 * 1024  # Of each, besides: messages of platforms are smaller, so large ones hold up none.
HEAD_BYTES_MAX = 64 * 1024  # Request line and headers; browsers with many cookies stay far below.
HEAD_TIMEOUT_S = 15.0  # From the first byte, or from connecting, to the end of the headers.
KEEP_ALIVE_S = 30  # An idle connection is cheap, but not free.
REQUEST_TIMEOUT_S = 60.0  # Reading the body and answering. Streams have their own bounds.
UPLOAD_TIMEOUT_S = 300.0  # 32 MiB over a slow line.
VERIFY_TIMEOUT_S = 900.0  # Reads the whole journal.
SHUTDOWN_TIMEOUT_S = 10.0  # Answers under way may finish; what is still open then is cut.

HEARTBEAT_S = 15.0  # Below the idle limit of common proxies (30 to 60 s). A client that takes nothing for two is cut.
RETRY_HINT_MS = 1000  # How long a browser waits before it connects again.
OUTBOX_BYTES_MAX = 256 * 1024  # What waits for one client; beyond it the hub and the tape hold the rest.
STREAMS_MAX = 2048  # Over all clients: each costs two tasks and an outbox.
STREAMS_PER_TOKEN_MAX = 512  # More than the active runs a daemon takes by default.

PAGE_DEFAULT = 100
PAGE_MAX = 400  # One more is asked for, to know whether there is a next page; the engine gives 500 at most.
PAGE_ASKED_MAX = 1_000_000  # A larger wish than PAGE_MAX is met with PAGE_MAX; beyond this it is a mistake.
CURSOR_MAX = 2**53 - 1
QUERY_FIELDS_MAX = 16

CONNECTIONS_MAX = 4096


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`hosts` are names a client may call this server by, besides loopback names and the address it listens on."""

    host: str = "127.0.0.1"
    port: int = 7142
    tls_cert: str | None = None
    tls_key: str | None = None
    is_insecure: bool = False
    hosts: tuple[str, ...] = ()
    requests_per_minute: int = REQUESTS_PER_MINUTE
    connections_max: int = CONNECTIONS_MAX
    heartbeat_s: float = HEARTBEAT_S
    streams_max: int = STREAMS_MAX
    streams_per_token_max: int = STREAMS_PER_TOKEN_MAX
