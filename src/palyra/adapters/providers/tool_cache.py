"""Caches what is computed from a request's tools while the very same tools come again.

Does not own: what is computed.
Tools are the largest part of many requests and hardly ever change; the engine passes the same tuple until they do.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from palyra.core.tools import ToolSpec

ENTRIES_MAX = (
    64  # Agents and the sets of tools that skills leave them are few; beyond this number the cache starts again.
)

Made = TypeVar("Made")


class ToolCache(Generic[Made]):
    """Finds a value by the tuple's identity.

    The tuple is kept as long as its value. An equal tuple counts as another one, because it would have to be compared.
    """

    def __init__(self, make: Callable[[tuple[ToolSpec, ...]], Made]) -> None:
        self._make = make
        self._values: dict[int, tuple[tuple[ToolSpec, ...], Made]] = {}

    def of(self, tools: tuple[ToolSpec, ...]) -> Made:
        found = self._values.get(id(tools))
        if found is not None and found[0] is tools:
            return found[1]
        if len(self._values) >= ENTRIES_MAX:
            self._values.clear()
        made = self._make(tools)
        self._values[id(tools)] = (tools, made)
        return made
