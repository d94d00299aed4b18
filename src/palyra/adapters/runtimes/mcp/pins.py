"""What tools were when they were first seen. Owns: what each name first meant, over restarts. Not: a change's effect (offers).

A grant names a tool. Were the server to give that name to something else later, the grant would cover what nobody agreed to;
so a name stays with what it first meant, and what it became gets a name of its own. Names here are those under which tools
are offered: what grants and policies know.
"""

import asyncio
import os
from pathlib import Path

import msgspec
import structlog

PINS_PER_SERVER_MAX = 2_048

log = structlog.get_logger()


class Pins:
    """Of all servers of one daemon. Without a file they last as long as the daemon does."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._meanings: dict[str, dict[str, str]] = {}
        self._is_saved = True
        self._saving = asyncio.Lock()

    async def load(self) -> None:
        """A file that cannot be read is no reason not to start; it is said, and everything is seen for the first time."""
        if self._path is None:
            return
        try:
            body = await asyncio.to_thread(self._path.read_bytes)
            self._meanings = msgspec.json.decode(body, type=dict[str, dict[str, str]])
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as cause:
            log.warning("mcp_pins_unreadable", path=str(self._path), error=type(cause).__name__)

    def is_first(self, server: str, name: str, meaning: str) -> bool:
        """Whether the name means what it did when it was first seen, which may be now. Where there is no room it never does."""
        pinned = self._meanings.setdefault(server, {})
        if name not in pinned and len(pinned) < PINS_PER_SERVER_MAX:
            pinned[name] = meaning
            self._is_saved = False
        return pinned.get(name) == meaning

    async def save(self) -> None:
        async with self._saving:
            if self._path is None or self._is_saved:
                return
            self._is_saved = True
            body = msgspec.json.format(msgspec.json.encode(self._meanings, order="sorted"), indent=1)
            try:
                await asyncio.to_thread(_replace, self._path, body)
            except OSError as cause:
                log.warning("mcp_pins_not_saved", path=str(self._path), error=type(cause).__name__)


def _replace(path: Path, body: bytes) -> None:
    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(body)
    os.replace(beside, path)
