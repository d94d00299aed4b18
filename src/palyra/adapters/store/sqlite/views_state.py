"""Queries for state tables: leases, heartbeats, sealed secrets and links of artifacts."""

from collections.abc import Iterable
from typing import Any

import msgspec

from palyra.adapters.store.sqlite.connection import fetch, page_limit
from palyra.adapters.store.sqlite.reads import Reads
from palyra.core.ids import ArtifactId, Principal, RunId, StreamId, uploads_stream
from palyra.core.trust import Trust
from palyra.core.writes import Heartbeat, Lease, LinkArtifact


class SqliteState:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def lease(self, name: str) -> Lease | None:
        sql = "SELECT name, owner, token, expires_at_ms FROM leases WHERE name = ?"
        found = await self._rows(sql, name)
        return Lease(*found[0]) if found else None

    async def stalled_heartbeats(self, before_ms: int, limit: int) -> tuple[Heartbeat, ...]:
        """Reads the whole table: it has one row for each run in progress."""
        sql = """
            SELECT run_id, node, at_ms, progress_at_ms FROM heartbeats
            WHERE at_ms < ? OR progress_at_ms < ? ORDER BY min(at_ms, progress_at_ms) LIMIT ?
        """
        found = await self._rows(sql, before_ms, before_ms, page_limit(limit))
        return tuple([Heartbeat(*cells) for cells in found])

    async def sealed_secret(self, run_id: RunId, secret_id: str) -> bytes | None:
        sql = "SELECT sealed FROM sealed_secrets WHERE run_id = ? AND secret_id = ?"
        found = await self._rows(sql, run_id, secret_id)
        return found[0][0] if found else None

    async def artifacts_of(self, stream: StreamId) -> tuple[ArtifactId, ...]:
        """Returns the artifacts of a tape. Ask before erasing it: afterwards nothing says which they were."""
        sql = "SELECT artifact_id FROM artifact_links WHERE stream = ? ORDER BY artifact_id"
        found = await self._rows(sql, stream)
        return tuple([ArtifactId(artifact_id) for (artifact_id,) in found])

    async def unlinked(self, artifacts: Iterable[ArtifactId]) -> tuple[ArtifactId, ...]:
        """Returns those of the given artifacts that no tape refers to, so that their files may be removed."""
        sql = """
            SELECT value FROM json_each(?)
            WHERE value NOT IN (SELECT artifact_id FROM artifact_links WHERE artifact_id = value)
        """
        given = msgspec.json.encode(list(artifacts)).decode()
        found = await self._rows(sql, given)
        return tuple([ArtifactId(artifact_id) for (artifact_id,) in found])

    async def artifact_for(self, artifact_id: ArtifactId, principal: Principal) -> LinkArtifact | None:
        sql = """
            SELECT artifact_links.* FROM artifact_links LEFT JOIN sessions ON sessions.id = artifact_links.stream
            WHERE artifact_id = ? AND (artifact_links.stream = ? OR sessions.owner = ?)
            ORDER BY instr('external local operator system', artifact_links.trust) LIMIT 1
        """
        found = await self._rows(sql, artifact_id, uploads_stream(principal), principal)
        if not found:
            return None
        _, stream, size_bytes, media_type, at_ms, trust, source = found[0]
        return LinkArtifact(artifact_id, stream, size_bytes, media_type, at_ms, Trust(trust), source)

    async def last_position(self) -> int:
        found = await self._rows("SELECT max(position) FROM events")
        return found[0][0] or 0

    async def _rows(self, sql: str, *bindings: str | int) -> list[tuple[Any, ...]]:
        return await self._reads.ask(lambda connection: fetch(connection, sql, bindings))
