"""What a person accepted of MCP servers: the file `mcp-accepted.json` of a home.

Owns: which version of which tool was accepted. Does not own: what follows (offers), showing definitions (app.mcp).
Only the command line writes the file, after it showed the definitions. A daemon reads it again when it changes.
Invariant: a damaged file accepts nothing.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog

from palyra.adapters.files.private import NO_OTHER_WRITER, FileKind, ParsedFile, PrivateFile
from palyra.core.errors import PalyraError

KIND = FileKind(
    noun="mcp_accepted",
    remedy="remove it and accept the servers again with palyra mcp accept",
    bytes_max=16 * 1024 * 1024,
    forbidden=NO_OTHER_WRITER,
)

Versions = dict[str, dict[str, str]]

log = structlog.get_logger()


class Acceptances:
    """Accepted versions by server and by name. Without a file nothing is accepted."""

    def __init__(self, path: Path | None = None) -> None:
        self._file = PrivateFile(path, KIND) if path is not None else None
        self._parsed = ParsedFile(self._file, _parse) if self._file is not None else None
        self._known: Versions = {}
        self._fault = ""

    def refresh(self) -> bool:
        """Reads the file if it changed. Returns whether anything else is accepted now."""
        if self._parsed is None:
            return False
        try:
            found = self._parsed.now()
            fault = ""
        except PalyraError as error:
            found, fault = {}, error.message
        if fault and fault != self._fault:
            log.error("mcp_acceptances_unusable", reason=fault)
        self._fault = fault
        is_other, self._known = found != self._known, found
        return is_other

    def version(self, server: str, name: str) -> str | None:
        """Returns the version that was accepted under this name."""
        return self._known.get(server, {}).get(name)

    def count(self, server: str) -> int:
        return len(self._known.get(server, {}))

    def accept(self, server: str, versions: Mapping[str, str]) -> None:
        """Accepts these versions in place of whatever was accepted of that server. An empty map accepts nothing."""
        if self._file is None or self._parsed is None:
            return
        with self._file.locked() as replace:
            known = self._parsed.read()
            others = {name: accepted for name, accepted in known.items() if name != server}
            changed = {**others, server: dict(versions)} if versions else others
            replace(msgspec.json.format(msgspec.json.encode(changed, order="sorted"), indent=1))
        self.refresh()


def _parse(data: bytes | None) -> Versions:
    if data is None:
        return {}
    try:
        return msgspec.json.decode(data, type=Versions)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        log.error("mcp_acceptances_damaged", remedy=KIND.remedy)
        return {}
