"""What the tools of MCP servers were when they were first seen.

Owns: what each name first meant, over restarts. Does not own: what a change leads to (offers).
The names are those under which tools are offered, which grants and policies use.
Invariants: a name stays with what it first meant until a person accepts what it means now. Otherwise a grant for the
name would cover a tool that nobody agreed to. A file that cannot be read pins nothing anew: it has a fault, and no name is
usable.
"""

import asyncio
from pathlib import Path

import msgspec
import structlog

from palyra.adapters.files.private import NO_OTHER_WRITER, FileKind, PrivateFile
from palyra.core.errors import PalyraError

PINS_PER_SERVER_MAX = 2_048
KIND = FileKind(
    noun="mcp_pins",
    remedy="mend it, or remove it to accept every tool as its server offers it now",
    bytes_max=64 * 1024 * 1024,  # A hundred servers with every pin taken fit in this.
    forbidden=NO_OTHER_WRITER,
)

log = structlog.get_logger()


class Pins:
    """The pins of all servers of one daemon. Without a file they last as long as the daemon does.

    `fault` says why the file could not be read, and what to do. It is empty if the file could be read.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._file = PrivateFile(path, KIND) if path is not None else None
        self._meanings: dict[str, dict[str, str]] = {}
        self._is_saved = True
        self._saving = asyncio.Lock()
        self.fault = ""

    async def load(self) -> None:
        """Reads the file. The daemon starts even if the file cannot be read, but then no tool is offered."""
        if self._file is None:
            return
        try:
            self._meanings = await asyncio.to_thread(_read, self._file)
        except PalyraError as error:
            self.fault = f"{error.message}; then restart the daemon"
            log.error("mcp_pins_unusable", path=str(self._file.path), code=error.code)

    def is_first(self, server: str, name: str, meaning: str) -> bool:
        """Tells whether the name means what it first meant.

        The first time may be now. Without room or a readable file the answer is always no.
        """
        if self.fault:
            return False
        pinned = self._meanings.setdefault(server, {})
        if name not in pinned and len(pinned) < PINS_PER_SERVER_MAX:
            pinned[name] = meaning
            self._is_saved = False
        return pinned.get(name) == meaning

    def put(self, server: str, name: str, meaning: str) -> None:
        """Gives a name a new meaning, because a person accepted it."""
        pinned = self._meanings.setdefault(server, {})
        if pinned.get(name) != meaning and not self.fault:
            pinned[name] = meaning
            self._is_saved = False

    async def save(self) -> None:
        async with self._saving:
            if self._file is None or self._is_saved:
                return
            # This is set before writing: a name that is pinned meanwhile is written the next time.
            self._is_saved = True
            body = msgspec.json.format(msgspec.json.encode(self._meanings, order="sorted"), indent=1)
            try:
                await asyncio.to_thread(_replace, self._file, body)
            except PalyraError as error:
                self._is_saved = False
                # What is not pinned on disk could mean something else after a restart, so nothing is offered.
                self.fault = error.message
                log.warning("mcp_pins_not_saved", path=str(self._file.path), code=error.code)
            else:
                self.fault = ""


def _read(file: PrivateFile) -> dict[str, dict[str, str]]:
    found = file.read()
    if found is None:
        return {}
    try:
        return msgspec.json.decode(found.data, type=dict[str, dict[str, str]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise file.damaged("is damaged, so no tool of an MCP server is offered") from cause


def _replace(file: PrivateFile, body: bytes) -> None:
    with file.locked() as replace:
        replace(body)
