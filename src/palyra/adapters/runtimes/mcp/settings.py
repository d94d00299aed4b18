"""How one MCP server is reached and trusted: its settings, and every limit of the client.

Does not own: reading palyra.toml (config).
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

import msgspec

# Limits one message. A picture of 6 MB fits; a longer message is thrown away unread.
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
INBOUND_REQUESTS_MAX = 32  # Limits the open requests of a server that does not read our answers.
CALLS_AT_ONCE_MAX = 8  # The limit holds for each server. Further calls wait their turn.
START_TIMEOUT_S = 60.0  # The first start of a packaged server may have to fetch it.
REQUEST_TIMEOUT_S = 20.0  # Limits every request that is no tool call.
RESTART_WAIT_S = 15.0  # A call waits so long for a server that is being restarted.
PING_TIMEOUT_S = 5.0  # A ping follows a call that was given up. A server that does not answer it in time is restarted.
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.5, 60.0
STEADY_S = 60.0  # A server that worked this long begins again with the first delay.
STOP_GRACE_S = 2.0  # SIGKILL follows SIGTERM after this time.


def _no_variables() -> Mapping[str, str]:
    return {}


def _no_token() -> str | None:
    return None


class ServerTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long things may take. Tests use shorter times."""

    start_s: float = START_TIMEOUT_S
    request_s: float = REQUEST_TIMEOUT_S
    restart_wait_s: float = RESTART_WAIT_S
    ping_s: float = PING_TIMEOUT_S
    backoff_first_s: float = BACKOFF_FIRST_S
    backoff_max_s: float = BACKOFF_MAX_S
    steady_s: float = STEADY_S
    stop_grace_s: float = STOP_GRACE_S


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[mcp]]` section.

    `env` and `token` are called at every start, so that a changed secret is used. Both may raise.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str | None = None
    env: Callable[[], Mapping[str, str]] = _no_variables
    token: Callable[[], str | None] = _no_token
    trust_annotations: bool = False
    read_only: tuple[str, ...] = ()
    idempotent: tuple[str, ...] = ()
    timeout_s: float = 60.0
    timeouts: ServerTimeouts = ServerTimeouts()
    owner: str = "nobody"  # Marks the processes: by it a daemon finds what an earlier, killed daemon left behind.

    @property
    def is_trusted_to_read(self) -> bool:
        """Tells whether reading resources and prompts counts as reading only."""
        return self.trust_annotations or "*" in self.read_only


def is_named(name: str, patterns: tuple[str, ...]) -> bool:
    """Matches the server's own name of a tool against patterns of the shell."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
