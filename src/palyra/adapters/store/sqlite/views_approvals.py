"""Queries for approvals and grants, behind ports.views.ApprovalViews.

Does not own: deciding them.
An approval is shown to the owner of its session and to the principal its run was accepted for (L11). A question on a
node's system tape belongs to the name of that tape.
"""

from collections.abc import Iterable

import apsw
import msgspec

from palyra.adapters.store.sqlite.connection import fetch, page_limit
from palyra.adapters.store.sqlite.empty_table import EmptyTable
from palyra.adapters.store.sqlite.reads import Reads
from palyra.adapters.store.sqlite.rows import APPROVALS, GRANTS
from palyra.core.events import Data, Draft
from palyra.core.events.tool import ApprovalResolved, ApprovalStatus
from palyra.core.ids import ApprovalId, GrantId, Principal, SessionId, StreamId
from palyra.core.projections.rows import ApprovalRow, GrantRow
from palyra.ports.views import GrantFilter


class SqliteApprovals:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._grants = EmptyTable(reads, "grants")

    def expect(self, drafts: Iterable[Draft]) -> None:
        """Notes before they are recorded whether these drafts leave an answer that covers later calls."""
        if not self._grants.is_filled and any(_lasts(draft.data) for draft in drafts):
            self._grants.expect_row()

    async def approval(self, approval_id: ApprovalId, principal: Principal | None) -> ApprovalRow | None:
        sql = """
            SELECT approvals.* FROM approvals
            LEFT JOIN sessions ON sessions.id = approvals.session_id
            LEFT JOIN runs ON runs.id = approvals.run_id
            WHERE approvals.id = :id
              AND (:principal IS NULL OR sessions.owner = :principal OR runs.principal IS :principal
                OR approvals.session_id = :principal)
        """
        found = await self._reads.ask(lambda connection: _rows(connection, sql, id=approval_id, principal=principal))
        return found[0] if found else None

    async def list_approvals(
        self,
        principal: Principal | None,
        status: ApprovalStatus | None,
        after: str,
        limit: int,
        *,
        has_system: bool = False,
    ) -> tuple[ApprovalRow, ...]:
        # Spelled out, because only then are the open questions found by their index.
        is_wanted = "= 'pending'" if status is ApprovalStatus.PENDING else "= coalesce(:status, approvals.status)"
        sql = f"""
            SELECT approvals.* FROM approvals
            LEFT JOIN sessions ON sessions.id = approvals.session_id
            LEFT JOIN runs ON runs.id = approvals.run_id
            WHERE approvals.status {is_wanted}
              AND (:after = '' OR (approvals.created_at_ms, approvals.requested_seq, approvals.id) >
                  (SELECT created_at_ms, requested_seq, id FROM approvals WHERE id = :after))
              AND (:principal IS NULL OR sessions.owner = :principal OR runs.principal IS :principal
                OR (:system AND approvals.session_id LIKE 'system:%'))
            ORDER BY approvals.created_at_ms, approvals.requested_seq, approvals.id LIMIT :limit
        """  # noqa: S608 - our words; every value is bound
        wanted = status.value if status is not None else None
        return await self._reads.ask(
            lambda connection: _rows(
                connection,
                sql,
                principal=principal,
                status=wanted,
                after=after,
                limit=page_limit(limit),
                system=int(has_system),
            )
        )

    async def pending_of(self, session_id: SessionId) -> tuple[ApprovalRow, ...]:
        sql = "SELECT * FROM approvals WHERE session_id = :session_id AND status = 'pending' ORDER BY requested_seq"
        return await self._reads.ask(lambda connection: _rows(connection, sql, session_id=session_id))

    async def is_doubted(self, principal: Principal, digest: str) -> bool:
        sql = """
            SELECT EXISTS (
                SELECT 1 FROM approvals
                JOIN sessions ON sessions.id = approvals.session_id
                LEFT JOIN runs ON runs.id = approvals.run_id
                WHERE approvals.digest = :digest AND approvals.status = 'pending' AND approvals.kind = 'uncertain'
                  AND (sessions.owner = :principal OR runs.principal IS :principal)
            )
        """
        bindings: dict[str, str | int | None] = {"digest": digest, "principal": principal}
        found = await self._reads.ask(lambda connection: fetch(connection, sql, bindings))
        return bool(found[0][0])

    async def grant(self, grant_id: GrantId, principal: Principal | None) -> GrantRow | None:
        sql = "SELECT * FROM grants WHERE id = :id AND (:principal IS NULL OR principal = :principal)"
        bindings: dict[str, str | int | None] = {"id": grant_id, "principal": principal}
        found = await self._reads.ask(lambda connection: GRANTS.select(connection, sql, bindings))
        return found[0] if found else None

    async def grants_for(self, query: GrantFilter) -> tuple[GrantRow, ...]:
        if await self._grants.is_empty():
            return ()
        sql = """
            SELECT * FROM grants
            WHERE principal = :principal AND tool = :tool AND revoked_seq IS NULL AND kind = :kind
              AND (scope = 'timeboxed' OR session_id IN (SELECT value FROM json_each(:session_ids)))
              AND NOT (scope = 'session' AND session_id = :session_ids ->> 0 AND granted_seq <= :reset_seq)
              AND (expires_at_ms IS NULL OR expires_at_ms > :now_ms)
              AND (:after IS NULL OR (created_at_ms, granted_seq, id) <
                  (SELECT created_at_ms, granted_seq, id FROM grants WHERE id = :after))
            ORDER BY created_at_ms DESC, granted_seq DESC, id DESC LIMIT :limit
        """
        bindings: dict[str, str | int | None] = {
            "reset_seq": query.reset_seq,
            "after": query.after,
            "principal": query.principal,
            "tool": query.tool,
            "kind": query.kind.value,
            "session_ids": msgspec.json.encode(query.session_ids).decode(),
            "now_ms": query.now_ms,
            "limit": page_limit(query.limit),
        }
        return await self._reads.ask(lambda connection: GRANTS.select(connection, sql, bindings))

    async def grants(self, principal: Principal | None, after: str, limit: int) -> tuple[GrantRow, ...]:
        """Returns those that are not revoked. Whether one has expired depends on the time of asking."""
        sql = """
            SELECT * FROM grants WHERE (:principal IS NULL OR principal = :principal) AND revoked_seq IS NULL
              AND (:after = '' OR (created_at_ms, granted_seq, id) >
                  (SELECT created_at_ms, granted_seq, id FROM grants WHERE id = :after))
            ORDER BY created_at_ms, granted_seq, id LIMIT :limit
        """
        bindings: dict[str, str | int | None] = {"principal": principal, "after": after, "limit": page_limit(limit)}
        return await self._reads.ask(lambda connection: GRANTS.select(connection, sql, bindings))

    async def sessions_awaiting(self, grant_id: GrantId | None, now_ms: int, limit: int) -> tuple[SessionId, ...]:
        sql = """
            SELECT approvals.session_id FROM approvals
            JOIN sessions ON sessions.id = approvals.session_id
            JOIN grants ON grants.tool = approvals.tool AND grants.principal = sessions.owner
            WHERE approvals.status = 'pending' AND approvals.kind = 'tool' AND grants.revoked_seq IS NULL
              AND (grants.expires_at_ms IS NULL OR grants.expires_at_ms > :now_ms)
              AND (grants.scope = 'timeboxed' OR grants.session_id = approvals.session_id)
              AND CASE WHEN :grant_id IS NULL THEN grants.created_at_ms >= approvals.created_at_ms
                  ELSE grants.id = :grant_id END
            GROUP BY approvals.session_id ORDER BY MIN(approvals.created_at_ms) LIMIT :limit
        """
        bindings: dict[str, str | int | None] = {"grant_id": grant_id, "now_ms": now_ms, "limit": page_limit(limit)}
        found = await self._reads.ask(lambda connection: fetch(connection, sql, bindings))
        return tuple(SessionId(StreamId(str(session_id))) for (session_id,) in found)


def _lasts(data: Data) -> bool:
    return isinstance(data, ApprovalResolved) and (data.grant is not None or data.refusal is not None)


def _rows(connection: apsw.Connection, sql: str, **bindings: str | int | None) -> tuple[ApprovalRow, ...]:
    return APPROVALS.select(connection, sql, bindings)
