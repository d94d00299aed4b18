"""Writes anchors to the places that `[journal] anchors` names: a file elsewhere, a command, a webhook.

Owns: writing one line for each checkpoint, and trying again what failed. Does not own: what an anchor says
(core.checkpoint), comparing it (core.verification).
Invariants: one place that fails holds up no other and no checkpoint. What waits is bounded, and the oldest is dropped
first: each anchor covers all that came before it.
"""

import asyncio
import os
import shlex
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import structlog

from palyra.adapters.net.client import HttpClient, Outgoing
from palyra.core.checkpoint import Anchor, anchor_line
from palyra.core.errors import PalyraError

WAITING_MAX = 1_000  # Anchors that a place has not taken yet.
TIMEOUT_S = 10.0
FILE, COMMAND = "file:", "command:"

log = structlog.get_logger()


class AnchorPlace(Protocol):
    async def write(self, lines: bytes) -> None:
        """Takes the lines, or raises OSError."""
        ...


class AnchorPlaces:
    """Implements ports.anchors."""

    def __init__(self, places: Sequence[tuple[str, AnchorPlace]]) -> None:
        self._places = tuple((name, place, deque[Anchor](maxlen=WAITING_MAX)) for name, place in places)
        self._lock = asyncio.Lock()

    async def keep(self, anchors: Sequence[Anchor]) -> None:
        async with self._lock:
            for name, place, waiting in self._places:
                waiting.extend(anchors)
                await _offer(name, place, waiting)


async def _offer(name: str, place: AnchorPlace, waiting: deque[Anchor]) -> None:
    if not waiting:
        return
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await place.write(b"".join(map(anchor_line, waiting)))
    except (OSError, PalyraError, TimeoutError) as error:
        log.warning("anchor_failed", place=name, waiting_count=len(waiting), reason=str(error) or "it took too long")
    else:
        waiting.clear()


def open_places(names: Sequence[str], client: HttpClient | None) -> AnchorPlaces:
    """`client` is needed for addresses alone."""
    return AnchorPlaces([(name, _open(name, client)) for name in names])


def _open(name: str, client: HttpClient | None) -> AnchorPlace:
    if name.startswith(FILE):
        return _File(Path(name.removeprefix(FILE)).expanduser())
    if name.startswith(COMMAND):
        return _Command(tuple(shlex.split(name.removeprefix(COMMAND))))
    return _Webhook(name, client)


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def write(self, lines: bytes) -> None:
        await asyncio.to_thread(self._append, lines)

    def _append(self, lines: bytes) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, lines)
            os.fsync(file)
        finally:
            os.close(file)


class _Command:
    """Starts the operator's command, which reads the lines from its input."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words

    async def write(self, lines: bytes) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
        )
        try:
            await process.communicate(lines)
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if process.returncode:
            raise OSError(f"the command ended with {process.returncode}")


class _Webhook:
    """Posts the lines to an address that the operator configured."""

    def __init__(self, url: str, client: HttpClient | None) -> None:
        self._url = url
        self._client = client

    async def write(self, lines: bytes) -> None:
        if self._client is None:
            raise OSError("there is no network here")
        headers = {"content-type": "application/jsonl"}
        async with self._client.post(Outgoing(url=self._url, headers=headers, body=lines)) as reply:
            if reply.status >= 300:
                raise OSError(f"the address answered with {reply.status}")
