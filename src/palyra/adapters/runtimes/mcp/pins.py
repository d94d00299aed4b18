"""What tools were when they were first seen. Owns: one digest a tool, over restarts. Not: what is done about a change (offers).

A grant names a tool. Were the server to give that name to something else later, the grant would cover what nobody agreed to;
so a name stays with what it first meant, and what it became gets a name of its own.
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
        self._digests: dict[str, dict[str, str]] = {}
        self._is_saved = True
        self._saving = asyncio.Lock()

    async def load(self) -> None:
        """A file that cannot be read is no reason not to start; it is said, and everything is seen for the first time."""
        if self._path is None:
            return
        try:
            body = await asyncio.to_thread(self._path.read_bytes)
            self._digests = msgspec.json.decode(body, type=dict[str, dict[str, str]])
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as cause:
            log.warning("mcp_pins_unreadable", path=str(self._path), error=type(cause).__name__)

    def first_seen(self, server: str, raw_name: str, digest: str) -> str:
        """The digest under which this tool was first seen, which is this one if it never was."""
        pinned = self._digests.setdefault(server, {})
        if raw_name not in pinned and len(pinned) < PINS_PER_SERVER_MAX:
            pinned[raw_name] = digest
            self._is_saved = False
        return pinned.get(raw_name, "")

    async def save(self) -> None:
        async with self._saving:
            if self._path is None or self._is_saved:
                return
            self._is_saved = True
            body = msgspec.json.format(msgspec.json.encode(self._digests, order="sorted"), indent=1)
            try:
                await asyncio.to_thread(_replace, self._path, body)
            except OSError as cause:
                log.warning("mcp_pins_not_saved", path=str(self._path), error=type(cause).__name__)


def _replace(path: Path, body: bytes) -> None:
    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(body)
    os.replace(beside, path)
