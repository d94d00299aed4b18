"""Queries for provenance, behind ports.views.ProvenanceViews.

Does not own: what taints (core.taint).
"""

from collections.abc import Iterable

import apsw

from palyra.adapters.store.sqlite.reads import Reads
from palyra.adapters.store.sqlite.rows import FILES, TAINTS
from palyra.core.events import Data, Draft
from palyra.core.events.session import DocumentChanged
from palyra.core.events.tool import ToolFinished, ToolJudged
from palyra.core.ids import SessionId
from palyra.core.projections.rows import FileRow, TaintRow


class SqliteProvenance:
    """Caches whether there is any tainted file. Most journals hold none, and then no look-up leaves the event loop.

    One process writes a journal, so only what it is about to record can change this.
    """

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._is_empty: bool | None = None

    def expect(self, drafts: Iterable[Draft]) -> None:
        """Notes before they are recorded whether these drafts taint a file."""
        if self._is_empty is not False and any(_may_taint(draft.data) for draft in drafts):
            self._is_empty = False

    async def taint(self, session_id: SessionId) -> TaintRow | None:
        sql = "SELECT * FROM taints WHERE id = ?"
        found = await self._reads.ask(lambda connection: TAINTS.select(connection, sql, (session_id,)))
        return found[0] if found else None

    async def _has_none(self) -> bool:
        if self._is_empty is None:
            found = await self._reads.ask(
                lambda connection: FILES.select(connection, "SELECT * FROM files LIMIT 1", ())
            )
            # A draft that was noted while this query ran counts more.
            self._is_empty = not found if self._is_empty is None else self._is_empty
        return self._is_empty

    async def tainted_file(self, path: str, sha256: str) -> FileRow | None:
        if await self._has_none():
            return None
        sql = "SELECT * FROM files WHERE path = ? AND sha256 = ? ORDER BY id LIMIT 1"
        found = await self._reads.ask(lambda connection: FILES.select(connection, sql, (path, sha256)))
        return found[0] if found else None

    async def tainted_paths(self, paths: tuple[str, ...]) -> tuple[FileRow, ...]:
        if not paths or await self._has_none():
            return ()
        return await self._reads.ask(lambda connection: tuple(row for path in paths for row in _at(connection, path)))

    async def taints_workspace(self, root: str) -> bool:
        """Looks by path, so that a root inside another one is found from both. `0` is the character after `/`."""
        if await self._has_none():
            return False
        sql = "SELECT * FROM files WHERE path >= :folder || '/' AND path < :folder || '0' LIMIT 1"
        folder = root.rstrip("/")
        found = await self._reads.ask(lambda connection: FILES.select(connection, sql, {"folder": folder}))
        return bool(found)


def _may_taint(data: Data) -> bool:
    match data:
        case ToolJudged(writes=files, taint=taint):
            return bool(files) and (bool(taint) or any(file.taint for file in files))
        case ToolFinished(written=files):
            return any(file.taint for file in files)
        case DocumentChanged(written=written):
            return bool(written.taint)
        case _:
            return False


def _at(connection: apsw.Connection, path: str) -> tuple[FileRow, ...]:
    """Returns at most one row, by the index. `0` is the character after `/`."""
    if path.endswith("/"):
        sql = "SELECT * FROM files WHERE path >= ? AND path < ? ORDER BY path LIMIT 1"
        return FILES.select(connection, sql, (path, f"{path[:-1]}0"))
    return FILES.select(connection, "SELECT * FROM files WHERE path = ? LIMIT 1", (path,))
