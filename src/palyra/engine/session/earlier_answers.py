"""Finds the earlier answer that covers a call: a refusal, else a grant.

Owns: which answers are looked at, and reading their terms from the tape.
Does not own: what an answer covers (core.grants), the order of checks (gate).
Invariants: a session's answers end with its reset. A session's refusals hold for the runs that it delegates too, and so
do those of the agents above; its grants do not.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

from palyra.core.errors import Conflict
from palyra.core.events.tool import ApprovalResolved, Grant, Refusal
from palyra.core.grants import GrantCase, covers, refuses
from palyra.core.ids import GrantId, Principal, SessionId
from palyra.core.projections.rows import GrantKind, GrantRow
from palyra.ports.journal import Journal
from palyra.ports.views import ApprovalViews, GrantFilter

PAGE_ROWS = 200
# For one tool of one principal, in one session and for all of them. Each is compared with every call of the tool.
REFUSALS_MAX = 500


class AnswerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call is made: its session, the seq of that session's last reset, and the sessions above."""

    session_id: SessionId
    reset_seq: int
    sessions_above: tuple[SessionId, ...] = ()


class FoundRefusal(msgspec.Struct, frozen=True):
    """`said` is the reason that the person gave with it."""

    refusal: Refusal
    said: str


@dataclass(frozen=True, slots=True)
class EarlierAnswers:
    approvals: ApprovalViews
    journal: Journal

    async def find_refusal(self, case: GrantCase, place: AnswerPlace) -> FoundRefusal | None:
        session_ids = (place.session_id, *place.sessions_above)
        async for row in self._rows(GrantKind.REFUSAL, case, place, session_ids):
            answer = await self._read(row)
            if answer is not None and answer.refusal is not None and refuses(answer.refusal, case):
                return FoundRefusal(answer.refusal, answer.reason)
        return None

    async def find_grant(self, case: GrantCase, place: AnswerPlace) -> Grant | None:
        async for row in self._rows(GrantKind.GRANT, case, place, (place.session_id,)):
            answer = await self._read(row)
            if answer is not None and answer.grant is not None and covers(answer.grant, case):
                return answer.grant
        return None

    async def giver_of(self, grant_id: GrantId) -> Principal | None:
        """Returns who gave a grant or a refusal, or None if that was erased."""
        row = await self.approvals.grant(grant_id, None)
        answer = await self._read(row) if row is not None else None
        return answer.decided_by if answer is not None else None

    async def is_doubted(self, principal: Principal, digest: str) -> bool:
        return await self.approvals.is_doubted(principal, digest)

    async def require_room(self, refusal: Refusal, place: AnswerPlace, now_ms: int) -> None:
        """Conflict if this tool has as many refusals as are kept, in the session or for all of them."""
        wish = GrantFilter(
            kind=GrantKind.REFUSAL,
            principal=refusal.principal,
            tool=refusal.tool,
            session_ids=(place.session_id,),
            now_ms=now_ms,
            limit=PAGE_ROWS,
            reset_seq=place.reset_seq,
        )
        count = len([row async for row in self._pages(wish) if row.scope is refusal.scope])
        if count >= REFUSALS_MAX:
            message = (
                f"{refusal.tool} has {count} refusals of scope {refusal.scope.value}, which is the limit; "
                "answer no for once, or revoke one that is not needed (palyra approvals grants list)"
            )
            raise Conflict("refusals_full", message, is_retryable=False)

    def _rows(
        self, kind: GrantKind, case: GrantCase, place: AnswerPlace, session_ids: tuple[SessionId, ...]
    ) -> AsyncIterator[GrantRow]:
        wish = GrantFilter(
            kind=kind,
            principal=case.principal,
            tool=case.tool,
            session_ids=session_ids,
            now_ms=case.now_ms,
            limit=PAGE_ROWS,
            reset_seq=place.reset_seq,
        )
        return self._pages(wish)

    async def _pages(self, wish: GrantFilter) -> AsyncIterator[GrantRow]:
        """Yields all rows, the newest first. An old no is as good as a new one, so none is left out."""
        while True:
            rows = await self.approvals.grants_for(wish)
            for row in rows:
                yield row
            if len(rows) < wish.limit:
                return
            wish = msgspec.structs.replace(wish, after=rows[-1].id)

    async def _read(self, row: GrantRow) -> ApprovalResolved | None:
        """Reads the terms from the tape; the row only says where they are."""
        events = await self.journal.read(row.session_id, row.granted_seq - 1, 1)
        data = events[0].data if events else None
        return data if isinstance(data, ApprovalResolved) else None
