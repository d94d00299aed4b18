"""The pair of streams to an MCP server that every transport gives. Does not own: opening one (stdio, http)."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple


class Streams(NamedTuple):
    """`read` and `write` carry the package's messages. `ending` says in our words how the connection ended."""

    read: Any
    write: Any
    ending: Callable[[], Awaitable[str]]
