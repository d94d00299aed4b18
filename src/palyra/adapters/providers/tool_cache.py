"""What is made of a request's tools. Owns: keeping it while the very same tools come again. Not: what is made.

Tools are the largest part of many requests and hardly ever change; the engine hands on the same tuple until they do.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from palyra.core.tools import ToolSpec

KEPT_MAX = 64  # Agents and what their skills leave them are few; more than these are made again.

Made = TypeVar("Made")


class ToolCache(Generic[Made]):
    """Found by the tuple itself, which is held for as long: another one may be equal and yet have to be looked at."""

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
