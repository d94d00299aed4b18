"""Queries for provenance, behind ports.views.ProvenanceViews. Does not own: what taints (core.taint)."""

from collections.abc import Iterable
from typing import NamedTuple

import apsw
from msgspec.structs import replace

from palyra.adapters.store.sqlite.connection import fetch
from palyra.adapters.store.sqlite.empty_table import EmptyTable
from palyra.adapters.store.sqlite.reads import Reads
from palyra.adapters.store.sqlite.rows import FILES, TAINTS
from palyra.core.events import Data, Draft
from palyra.core.events.draft import DraftJudged
from palyra.core.events.session import DocumentChanged
from palyra.core.events.tool import ToolFinished, ToolJudged
from palyra.core.file_sets import may_hold, name_bytes, unpack_members
from palyra.core.ids import SessionId
from palyra.core.projections.rows import FileRow, TaintRow

SETS_CACHED_MAX = 64  # Of at most 120 KB each.


class SqliteProvenance:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._files = EmptyTable(reads, "files")
        self._sets = _TaintedSets()

    def expect(self, drafts: Iterable[Draft]) -> None:
        """Notes before they are recorded whether these drafts taint a file."""
        if not self._files.is_filled and any(_may_taint(draft.data) for draft in drafts):
            self._files.expect_row()

    async def taint(self, session_id: SessionId) -> TaintRow | None:
        sql = "SELECT * FROM taints WHERE id = ?"
        found = await self._reads.ask(lambda connection: TAINTS.select(connection, sql, (session_id,)))
        return found[0] if found else None

    async def tainted_file(self, path: str, sha256: str) -> FileRow | None:
        if await self._files.is_empty():
            return None

        def find(connection: apsw.Connection) -> FileRow | None:
            sql = "SELECT * FROM files WHERE path = ? AND sha256 = ? ORDER BY id LIMIT 1"
            found = FILES.select(connection, sql, (path, sha256))
            return found[0] if found else self._sets.open(connection).find(path, name_bytes(path, sha256))

        return await self._reads.ask(find)

    async def tainted_paths(self, paths: tuple[str, ...]) -> tuple[FileRow, ...]:
        if not paths or await self._files.is_empty():
            return ()

        def find(connection: apsw.Connection) -> tuple[FileRow, ...]:
            sets = self._sets.open(connection)
            found = (_at(connection, path) or sets.find(path, path) for path in paths)
            return tuple(row for row in found if row is not None)

        return await self._reads.ask(find)

    async def taints_workspace(self, root: str) -> bool:
        """Looks by path, so that a root inside another one is found from both."""
        return bool(await self.tainted_paths((f"{root.rstrip('/')}/",)))


class _TaintedSets:
    """Caches what sets hold: a look-up of many files would read it again for each. A set never changes."""

    def __init__(self) -> None:
        self._bits: dict[str, bytes] = {}

    def open(self, connection: apsw.Connection) -> "_OpenSets":
        listed = fetch(connection, "SELECT id, path FROM files WHERE members <> '' ORDER BY path, id", ())
        return _OpenSets(self, connection, tuple((str(set_id), str(folder)) for set_id, folder in listed))

    def bits(self, connection: apsw.Connection, set_id: str) -> bytes:
        found = self._bits.get(set_id)
        if found is None:
            (row,) = FILES.select(connection, FILES.select_sql, (set_id,))
            if len(self._bits) >= SETS_CACHED_MAX:
                self._bits = {}
            found = self._bits[set_id] = unpack_members(row.members)
        return found


class _OpenSets(NamedTuple):
    """The sets of a journal during one query: the id and the folder of each."""

    sets: _TaintedSets
    connection: apsw.Connection
    listed: tuple[tuple[str, str], ...]

    def find(self, path: str, name: str) -> FileRow | None:
        """Returns the row of a set that may hold the name, with the path that was asked for."""
        for set_id, folder in self.listed:
            if path.startswith(folder) and may_hold(self.sets.bits(self.connection, set_id), name):
                (row,) = FILES.select(self.connection, FILES.select_sql, (set_id,))
                return replace(row, path=path, members="")
        return None


def _may_taint(data: Data) -> bool:
    match data:
        case ToolJudged(writes=files, taint=taint):
            return bool(files) and (bool(taint) or any(file.taint for file in files))
        case DraftJudged(writes=files, write_sets=sets):
            return bool(sets) or any(file.taint for file in files)
        case ToolFinished(written=files):
            return any(file.taint for file in files)
        case DocumentChanged(written=written):
            return bool(written.taint)
        case _:
            return False


def _at(connection: apsw.Connection, path: str) -> FileRow | None:
    """Returns a row by the index. `0` is the character after `/`."""
    if path.endswith("/"):
        sql = "SELECT * FROM files WHERE path >= ? AND path < ? ORDER BY path LIMIT 1"
        found = FILES.select(connection, sql, (path, f"{path[:-1]}0"))
    else:
        found = FILES.select(connection, "SELECT * FROM files WHERE path = ? LIMIT 1", (path,))
    is_set = bool(found) and found[0].path.endswith("/")
    return replace(found[0], path=path.rstrip("/"), members="") if is_set else next(iter(found), None)
