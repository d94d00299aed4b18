"""Queries for candidates, uses of what was learned, and reflections, behind ports.learning.LearningViews."""

from typing import Any

import msgspec

from palyra.adapters.store.sqlite.connection import fetch, page_limit
from palyra.adapters.store.sqlite.reads import Reads
from palyra.core.errors import Corrupt
from palyra.core.ids import CandidateId, Principal, RunId, SessionId
from palyra.core.learning.model import (
    Candidate,
    CandidateKind,
    CandidateStatus,
    ItemUse,
    Reflection,
    UsedKind,
    UseOutcome,
)
from palyra.ports.learning import CandidateFilter

SAME_MAX = 50
DOCUMENT_MAX = 500

_USE_COLUMNS = "owner, kind, item_id, run_id, session_id, outcome, at_ms"
_REFLECTION_COLUMNS = "run_id, session_id, owner, how, found_count, junk_count, at_ms"
_candidate = msgspec.json.Decoder(Candidate)


class SqliteLearning:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def candidate(self, candidate_id: CandidateId, owner: Principal | None) -> Candidate | None:
        sql = "SELECT record FROM candidates WHERE id = ? AND (? = '' OR owner = ?)"
        found = await self._candidates(sql, candidate_id, owner or "", owner or "")
        return found[0] if found else None

    async def list_candidates(self, owner: Principal | None, query: CandidateFilter) -> tuple[Candidate, ...]:
        sql = """
            SELECT record FROM candidates
            WHERE id > ? AND (? = '' OR owner = ?) AND (? = '' OR kind = ?)
                AND ((? = '' AND status <> 'suppressed') OR status = ?)
            ORDER BY id LIMIT ?
        """
        kind = query.kind.value if query.kind is not None else ""
        status = query.status.value if query.status is not None else ""
        cells = (query.after, owner or "", owner or "", kind, kind, status, status, page_limit(query.limit))
        return await self._candidates(sql, *cells)

    async def same_content(self, owner: Principal, kind: CandidateKind, content_hash: str) -> tuple[Candidate, ...]:
        sql = """
            SELECT record FROM candidates WHERE owner = ? AND kind = ? AND content_hash = ?
            ORDER BY updated_at_ms DESC LIMIT ?
        """
        return await self._candidates(sql, owner, kind.value, content_hash, SAME_MAX)

    async def count_candidates(self, owner: Principal) -> dict[CandidateStatus, int]:
        sql = "SELECT status, count(*) FROM candidates WHERE owner = ? GROUP BY status"
        rows = await self._reads.ask(lambda connection: fetch(connection, sql, (owner,)))
        return {CandidateStatus(status): count for status, count in rows}

    async def candidates_in(
        self, document: str, kind: CandidateKind, owner: Principal | None = None
    ) -> tuple[Candidate, ...]:
        sql = """
            SELECT record FROM candidates WHERE document = ? AND document <> '' AND kind = ? AND status = 'accepted'
            AND (? = '' OR owner = ?) ORDER BY created_at_ms DESC LIMIT ?
        """
        return await self._candidates(sql, document, kind.value, owner or "", owner or "", DOCUMENT_MAX)

    async def candidates_for_documents(self, limit: int) -> tuple[Candidate, ...]:
        sql = "SELECT record FROM candidates WHERE document <> '' AND status = 'accepted' LIMIT ?"
        return await self._candidates(sql, limit)

    async def uses(self, owner: Principal, since_ms: int, limit: int) -> tuple[ItemUse, ...]:
        sql = f"""
            SELECT {_USE_COLUMNS} FROM item_uses WHERE owner = ? AND at_ms >= ? ORDER BY at_ms DESC LIMIT ?
        """  # noqa: S608 - our names; every value is bound
        rows = await self._reads.ask(lambda connection: fetch(connection, sql, (owner, since_ms, limit)))
        return tuple([_read_use(row) for row in rows])

    async def reflections(self, owner: Principal, since_ms: int, limit: int) -> tuple[Reflection, ...]:
        sql = f"""
            SELECT {_REFLECTION_COLUMNS} FROM reflections WHERE owner = ? AND at_ms >= ? ORDER BY at_ms DESC LIMIT ?
        """  # noqa: S608 - our names; every value is bound
        rows = await self._reads.ask(lambda connection: fetch(connection, sql, (owner, since_ms, limit)))
        return tuple([_read_reflection(row) for row in rows])

    async def last_reflection(self, session_id: SessionId, run_id: RunId) -> tuple[Reflection | None, int | None]:
        own = f"SELECT {_REFLECTION_COLUMNS} FROM reflections WHERE run_id = ?"  # noqa: S608 - our names
        rows = await self._reads.ask(lambda connection: fetch(connection, own, (run_id,)))
        last = "SELECT max(at_ms) FROM reflections WHERE session_id = ? AND how = 'model'"
        asked: int | None = (await self._reads.ask(lambda connection: fetch(connection, last, (session_id,))))[0][0]
        return (_read_reflection(rows[0]) if rows else None), asked

    async def _candidates(self, sql: str, *bindings: str | int) -> tuple[Candidate, ...]:
        rows = await self._reads.ask(lambda connection: fetch(connection, sql, bindings))
        try:
            return tuple([_candidate.decode(row[0]) for row in rows])
        except msgspec.DecodeError as cause:
            raise Corrupt("row_unreadable", "a candidates row is damaged") from cause


def _read_use(cells: tuple[Any, ...]) -> ItemUse:
    named = dict(zip(ItemUse.__struct_fields__, cells, strict=True))
    return ItemUse(**{**named, "kind": UsedKind(named["kind"]), "outcome": UseOutcome(named["outcome"])})


def _read_reflection(cells: tuple[Any, ...]) -> Reflection:
    return Reflection(**dict(zip(Reflection.__struct_fields__, cells, strict=True)))
