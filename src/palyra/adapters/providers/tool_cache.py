"""Caches what is computed from a request's tools while the very same tools come again.

Does not own: what is computed.
Tools are the largest part of many requests and hardly ever change; the engine passes the same tuple until they do.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from palyra.core.tools import ToolSpec

KEPT_MAX = 64  # Agents and the sets of tools that skills leave them are few; beyond this number the cache starts again.

Made = TypeVar("Made")


class ToolCache(Generic[Made]):
    """Finds a value by the tuple's identity.

    The tuple is kept as long as its value. An equal tuple counts as another one, because it would have to be compared.
    """

    def __init__(self, make: Callable[[tuple[ToolSpec, ...]], Made]) -> None:
        self._make = make
        self._kept: dict[int, tuple[tuple[ToolSpec, ...], Made]] = {}

    def of(self, tools: tuple[ToolSpec, ...]) -> Made:
        found = self._kept.get(id(tools))
        if found is not None and found[0] is tools:
            return found[1]
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        made = self._make(tools)
        self._kept[id(tools)] = (tools, made)
        return made
