"""Approvals, grants and refusals of one principal (L11).

Owns: showing, answering and revoking them. Does not own: when to ask (core.run).
"""

from dataclasses import dataclass

import msgspec

from palyra.core.errors import Conflict, Invalid, NotFound
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import ApprovalKind, ApprovalResolved, ApprovalStatus, Decision, GrantRevoked
from palyra.core.ids import ApprovalId, GrantId, Principal
from palyra.core.projections.rows import ApprovalRow, GrantRow
from palyra.engine.api.approval_cards import make_card, read_request
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery, GrantRecord
from palyra.engine.channels.pairing_service import PairingService
from palyra.engine.session.commands import AnswerQuestion, RecordSessionEvent
from palyra.engine.session.session_loops import SessionLoops
from palyra.ports.journal import Journal
from palyra.ports.views import ApprovalViews, ProvenanceViews, RunViews

REASON_LENGTH_MAX = 2_000
_DECISIONS = {
    ApprovalKind.TOOL: {Decision.ALLOW, Decision.DENY},
    ApprovalKind.DRAFT: {Decision.ALLOW, Decision.DENY},
    ApprovalKind.BUDGET: {Decision.ALLOW, Decision.DENY},
    ApprovalKind.PAIRING: {Decision.ALLOW, Decision.DENY},
    ApprovalKind.UNCERTAIN: {Decision.RETRY, Decision.DONE, Decision.GIVE_UP},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalService:
    views: ApprovalViews
    runs: RunViews
    provenance: ProvenanceViews
    journal: Journal
    loops: SessionLoops
    pairing: PairingService

    async def list(self, principal: Principal | None, query: ApprovalsQuery) -> tuple[ApprovalRecord, ...]:
        """Lists approvals, the oldest first."""
        rows = await self.views.list_approvals(
            principal, query.status, query.after, query.limit, has_system=query.has_system
        )
        return tuple([await self._card(row) for row in rows])

    async def get(self, principal: Principal, approval_id: ApprovalId) -> ApprovalRecord:
        return await self._card(await self._row(principal, approval_id))

    async def answer(
        self, principal: Principal, approval_id: ApprovalId, answer: ApprovalAnswer, *, by: Principal | None = None
    ) -> ApprovalRecord:
        """Decides an approval once: a second answer is a Conflict, whoever gives it.

        `by` acts with the permissions of `principal`. The caller checks that this is allowed.
        """
        row = await self._row(principal, approval_id)
        if row.status is not ApprovalStatus.PENDING:
            raise Conflict(
                "approval_decided", f"approval {approval_id} is {row.status.value} already", is_retryable=False
            )
        _require_fitting(row, answer)
        if row.kind is ApprovalKind.PAIRING:
            await self.pairing.answer(approval_id, answer, by or principal)
            return await self.get(principal, approval_id)
        run = await self.runs.run(row.run_id, None) if row.run_id is not None else None
        if run is None:
            raise NotFound("run_unknown", f"approval {approval_id} has no run")
        request = await read_request(self.journal, row)
        command = AnswerQuestion(
            approval_id=approval_id, principal=by or principal, answer=answer, request=request, run=run
        )
        await self.loops.post(row.session_id, command)
        return await self.get(principal, approval_id)

    async def grants(self, principal: Principal | None, after: str, limit: int) -> tuple[GrantRecord, ...]:
        """Lists grants and refusals, the oldest first."""
        rows = await self.views.grants(principal, after, limit)
        return tuple([await self._grant_record(row) for row in rows])

    async def revoke(self, principal: Principal, grant_id: GrantId, *, by: Principal | None = None) -> GrantRecord:
        row = await self._grant_row(principal, grant_id)
        if row.revoked_seq is not None:
            raise Conflict("grant_revoked", f"grant {grant_id} was revoked already", is_retryable=False)
        note = RecordSessionEvent(principal=by or principal, data=GrantRevoked(grant_id=grant_id))
        await self.loops.post(row.session_id, note)
        return await self._grant_record(await self._grant_row(principal, grant_id))

    async def _card(self, row: ApprovalRow) -> ApprovalRecord:
        """Makes a card. A pairing question tells which account asks, from the row that goes with its answer."""
        card = await make_card(self.journal, self.provenance, row)
        asking = await self.pairing.views.request(row.id) if row.kind is ApprovalKind.PAIRING else None
        if asking is None:
            return card
        account: JsonObject = {"channel": asking.channel, "sender_id": asking.sender_id, "display": asking.display}
        wished = {"principal": asking.principal, "role": asking.role}
        wish = f" as {asking.principal}" if asking.principal else ""
        wish += f" in the role {asking.role or 'user'}"
        account_name = asking.display or asking.sender_id
        preview = f"The account {account_name} of channel {asking.channel} asks to be linked{wish}."
        return msgspec.structs.replace(card, arguments=account | wished, preview=preview)

    async def _row(self, principal: Principal, approval_id: ApprovalId) -> ApprovalRow:
        row = await self.views.approval(approval_id, principal)
        if row is None:
            raise NotFound("approval_unknown", f"there is no approval {approval_id}")
        return row

    async def _grant_row(self, principal: Principal, grant_id: GrantId) -> GrantRow:
        row = await self.views.grant(grant_id, principal)
        if row is None:
            raise NotFound("grant_unknown", f"there is no grant {grant_id}")
        return row

    async def _grant_record(self, row: GrantRow) -> GrantRecord:
        events = await self.journal.read(row.session_id, row.granted_seq - 1, 1)
        data = events[0].data if events else None
        given = (data.grant or data.refusal) if isinstance(data, ApprovalResolved) else None
        return GrantRecord(
            id=row.id,
            session_id=row.session_id,
            approval_id=row.approval_id,
            tool=row.tool,
            scope=row.scope.value,
            constraints=given.constraints if given is not None else (),
            principal=row.principal,
            agent=row.agent,
            is_revoked=row.revoked_seq is not None,
            created_at_ms=row.created_at_ms,
            expires_at_ms=row.expires_at_ms,
            kind=row.kind.value,
        )


def _require_fitting(row: ApprovalRow, answer: ApprovalAnswer) -> None:
    if answer.decision not in _DECISIONS.get(row.kind, set()):
        fitting = ", ".join(sorted(decision.value for decision in _DECISIONS.get(row.kind, set())))
        raise Invalid("decision_unfit", f"an approval of kind {row.kind.value} is answered with {fitting}")
    if len(answer.reason) > REASON_LENGTH_MAX:
        raise Invalid("reason_length", f"a reason has at most {REASON_LENGTH_MAX} characters")
