"""Finds the earlier answer that covers a call: a refusal, else a grant.

Owns: which answers are looked at, and reading their terms from the tape.
Does not own: what an answer covers (core.grants), the order of checks (gate).
Invariants: a session's answers end with its reset. A session's refusals hold for the runs that it delegates too, and so
do those of the agents above; its grants do not.
"""

from dataclasses import dataclass

import msgspec

from palyra.core.events.tool import ApprovalResolved, Grant, Refusal, Scope
from palyra.core.grants import GrantCase, covers, refuses
from palyra.core.ids import GrantId, Principal, SessionId
from palyra.core.projections.rows import GrantKind, GrantRow
from palyra.ports.journal import Journal
from palyra.ports.views import ApprovalViews, GrantFilter

# Of each kind, for one tool of one principal, the newest first.
ANSWERS_LOOKED_AT_MAX = 200


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
        for row in await self._rows(GrantKind.REFUSAL, case, place, session_ids):
            answer = await self._read(row)
            if answer is not None and answer.refusal is not None and refuses(answer.refusal, case):
                return FoundRefusal(answer.refusal, answer.reason)
        return None

    async def find_grant(self, case: GrantCase, place: AnswerPlace) -> Grant | None:
        for row in await self._rows(GrantKind.GRANT, case, place, (place.session_id,)):
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

    async def _rows(
        self, kind: GrantKind, case: GrantCase, place: AnswerPlace, session_ids: tuple[SessionId, ...]
    ) -> list[GrantRow]:
        wish = GrantFilter(
            kind=kind,
            principal=case.principal,
            tool=case.tool,
            session_ids=session_ids,
            now_ms=case.now_ms,
            limit=ANSWERS_LOOKED_AT_MAX,
        )
        return [row for row in await self.approvals.grants_for(wish) if not _is_void(row, place)]

    async def _read(self, row: GrantRow) -> ApprovalResolved | None:
        """Reads the terms from the tape; the row only says where they are."""
        events = await self.journal.read(row.session_id, row.granted_seq - 1, 1)
        data = events[0].data if events else None
        return data if isinstance(data, ApprovalResolved) else None


def _is_void(row: GrantRow, place: AnswerPlace) -> bool:
    is_before_reset = row.session_id == place.session_id and row.granted_seq <= place.reset_seq
    return row.scope is Scope.SESSION and is_before_reset
