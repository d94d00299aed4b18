"""A way to speak with a server. Owns: the pair of streams that every transport gives. Not: opening one (stdio, http)."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple


class Streams(NamedTuple):
    """`read` and `write` carry the package's messages. `ending` says in our words how it ended, once it has."""

    read: Any
    write: Any
    ending: Callable[[], Awaitable[str]]
