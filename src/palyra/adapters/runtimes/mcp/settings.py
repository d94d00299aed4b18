"""How one server is reached and trusted. Owns: its settings and every limit of the client. Not: reading palyra.toml (config)."""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

import msgspec

MESSAGE_BYTES_MAX = 8 * 1024 * 1024  # One message: a picture of 6 MB fits. What is longer is thrown away unread.
INBOUND_REQUESTS_MAX = 32  # Questions of a server that does not read our answers.
CALLS_AT_ONCE_MAX = 8  # Per server; more wait their turn.
START_TIMEOUT_S = 60.0  # The first start of a packaged server may fetch it.
REQUEST_TIMEOUT_S = 20.0  # Of every request that is no call.
RESTART_WAIT_S = 15.0  # How long a call waits for a server that is being restarted.
PING_TIMEOUT_S = 5.0  # After a call was given up: a server that does not answer this is restarted.
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.5, 60.0
STEADY_S = 60.0  # A server that worked this long begins again with the first delay.
STOP_GRACE_S = 2.0  # Between SIGTERM and SIGKILL.


def _no_variables() -> Mapping[str, str]:
    return {}


def _no_token() -> str | None:
    return None


class ServerTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long things may take. Tests have less of it."""

    start_s: float = START_TIMEOUT_S
    request_s: float = REQUEST_TIMEOUT_S
    restart_wait_s: float = RESTART_WAIT_S
    ping_s: float = PING_TIMEOUT_S
    backoff_first_s: float = BACKOFF_FIRST_S
    backoff_max_s: float = BACKOFF_MAX_S
    steady_s: float = STEADY_S
    stop_grace_s: float = STOP_GRACE_S


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[mcp]]` section. `env` and `token` are asked at every start, so that a changed secret is used; may raise."""

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
    owner: str = "nobody"  # Of the processes: a daemon finds by it what an earlier one, which was killed, left behind.

    @property
    def is_trusted_to_read(self) -> bool:
        """Whether what is no tool (resources, prompts) counts as reading only."""
        return self.trust_annotations or "*" in self.read_only


def is_named(name: str, patterns: tuple[str, ...]) -> bool:
    """By the server's own name of a tool, as a pattern of the shell."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
