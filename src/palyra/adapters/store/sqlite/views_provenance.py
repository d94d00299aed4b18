"""Provenance, asked for. Owns: the queries behind ports.views.Provenance. Not: what taints (core.taint)."""

import apsw

from palyra.adapters.store.sqlite.reads import Reads
from palyra.adapters.store.sqlite.rows import FILES, TAINTS
from palyra.core.ids import SessionId
from palyra.core.projections.rows import FileRow, TaintRow


class SqliteProvenance:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def taint(self, session_id: SessionId) -> TaintRow | None:
        sql = "SELECT * FROM taints WHERE id = ?"
        found = await self._reads.ask(lambda connection: TAINTS.select(connection, sql, (session_id,)))
        return found[0] if found else None

    async def tainted_file(self, path: str, sha256: str) -> FileRow | None:
        sql = "SELECT * FROM files WHERE path = ? AND sha256 = ? ORDER BY id LIMIT 1"
        found = await self._reads.ask(lambda connection: FILES.select(connection, sql, (path, sha256)))
        return found[0] if found else None

    async def tainted_paths(self, paths: tuple[str, ...]) -> tuple[FileRow, ...]:
        if not paths:
            return ()
        return await self._reads.ask(lambda connection: tuple(row for path in paths for row in _at(connection, path)))

    async def taints_workspace(self, root: str) -> bool:
        """By path, so that a root inside another one is found from both; `0` is the character after `/`."""
        sql = "SELECT * FROM files WHERE path >= :folder || '/' AND path < :folder || '0' LIMIT 1"
        folder = root.rstrip("/")
        found = await self._reads.ask(lambda connection: FILES.select(connection, sql, {"folder": folder}))
        return bool(found)


def _at(connection: apsw.Connection, path: str) -> tuple[FileRow, ...]:
    """At most one row, by the index; `0` is the character after `/`."""
    if path.endswith("/"):
        sql = "SELECT * FROM files WHERE path >= ? AND path < ? ORDER BY path LIMIT 1"
        return FILES.select(connection, sql, (path, f"{path[:-1]}0"))
    return FILES.select(connection, "SELECT * FROM files WHERE path = ? LIMIT 1", (path,))
