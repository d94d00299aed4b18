"""A request that is written at once. Owns: the first step of writing its body. Not: what is sent, or where to (client).

aiohttp writes a body in a task of its own. From Python 3.12 on such a task begins at once; before that it waits for a
turn of the loop, behind the words of every other answer that is under way.
"""

import sys
from collections.abc import Coroutine, Generator
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection


class PromptRequest(aiohttp.ClientRequest):
    """What the connection takes of the body now is written now; a task goes on only with what is left."""

    def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> Coroutine[Any, Any, None]:
        writing = super().write_bytes(writer, conn, content_length)
        return writing if sys.version_info >= (3, 12) else begun(writing)


def begun(work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    """The same work with its first step made."""
    try:
        waits_for = work.send(None)
    except StopIteration:
        return _nothing()
    return _rest(work, waits_for)


async def _nothing() -> None:
    """All is done."""


async def _rest(work: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await _Rest(work, waits_for)


class _Rest(Generator[Any, Any, None]):
    """What the first step waits for is waited for before the second."""

    def __init__(self, work: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        return self

    def send(self, value: Any) -> Any:
        if self._waits_for is not None:
            waits_for, self._waits_for = self._waits_for, None
            return waits_for
        return self._work.send(value)

    def throw(self, *problem: Any) -> Any:
        self._waits_for = None
        return self._work.throw(*problem)
