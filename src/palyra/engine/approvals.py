"""Approvals and grants, asked for. Owns: showing and answering them for one principal (L11). Not: when to ask (core)."""

from palyra.core.errors import Conflict, Invalid, NotFound
from palyra.core.events.base import JsonObject
from palyra.core.events.model import ModelOutput
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    GrantRevoked,
    ToolProposed,
)
from palyra.core.ids import ApprovalId, GrantId, Principal
from palyra.core.projections.rows import ApprovalRow, GrantRow
from palyra.engine.office import Office
from palyra.engine.orders import AnswerQuestion, Note
from palyra.engine.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery, GrantRecord

LOOK_BACK_EVENTS = 200  # A proposal is at most a turn's calls before its question.
REASON_LENGTH_MAX = 2_000
_DECISIONS = {
    ApprovalKind.TOOL: {Decision.ALLOW, Decision.DENY},
    ApprovalKind.BUDGET: {Decision.ALLOW, Decision.DENY},
    ApprovalKind.UNCERTAIN: {Decision.RETRY, Decision.DONE, Decision.GIVE_UP},
}


class Approvals:
    def __init__(self, office: Office) -> None:
        self._office = office

    async def list(self, principal: Principal, query: ApprovalsQuery) -> tuple[ApprovalRecord, ...]:
        rows = await self._office.views.approvals.list_approvals(principal, query.status, query.after, query.limit)
        return tuple([await self._record(row) for row in rows])

    async def get(self, principal: Principal, approval_id: ApprovalId) -> ApprovalRecord:
        return await self._record(await self._row(principal, approval_id))

    async def answer(self, principal: Principal, approval_id: ApprovalId, answer: ApprovalAnswer) -> ApprovalRecord:
        """Decided once: the second answer is a Conflict, whoever gives it."""
        row = await self._row(principal, approval_id)
        if row.status is not ApprovalStatus.PENDING:
            raise Conflict(
                "approval_decided", f"approval {approval_id} is {row.status.value} already", is_retryable=False
            )
        if answer.decision not in _DECISIONS.get(row.kind, set()):
            fitting = ", ".join(sorted(decision.value for decision in _DECISIONS.get(row.kind, set())))
            raise Invalid("decision_unfit", f"an approval of kind {row.kind.value} is answered with {fitting}")
        if len(answer.reason) > REASON_LENGTH_MAX:
            raise Invalid("reason_length", f"a reason has at most {REASON_LENGTH_MAX} characters")
        run = await self._office.views.runs.run(row.run_id, None) if row.run_id is not None else None
        if run is None:
            raise NotFound("run_unknown", f"approval {approval_id} has no run")
        order = AnswerQuestion(
            approval_id=approval_id, principal=principal, answer=answer, request=await self._request(row), run=run
        )
        await self._office.desks.at(row.session_id).post(order)
        return await self.get(principal, approval_id)

    async def grants(self, principal: Principal, after: str, limit: int) -> tuple[GrantRecord, ...]:
        rows = await self._office.views.approvals.grants(principal, after, limit)
        return tuple([await self._grant_record(row) for row in rows])

    async def revoke(self, principal: Principal, grant_id: GrantId) -> GrantRecord:
        row = await self._grant_row(principal, grant_id)
        if row.revoked_seq is not None:
            raise Conflict("grant_revoked", f"grant {grant_id} was revoked already", is_retryable=False)
        note = Note(principal=principal, data=GrantRevoked(grant_id=grant_id))
        await self._office.desks.at(row.session_id).post(note)
        return await self._grant_record(await self._grant_row(principal, grant_id))

    async def _row(self, principal: Principal, approval_id: ApprovalId) -> ApprovalRow:
        row = await self._office.views.approvals.approval(approval_id, principal)
        if row is None:
            raise NotFound("approval_unknown", f"there is no approval {approval_id}")
        return row

    async def _grant_row(self, principal: Principal, grant_id: GrantId) -> GrantRow:
        row = await self._office.views.approvals.grant(grant_id, principal)
        if row is None:
            raise NotFound("grant_unknown", f"there is no grant {grant_id}")
        return row

    async def _request(self, row: ApprovalRow) -> ApprovalRequested:
        events = await self._office.journal.read(row.session_id, row.requested_seq - 1, 1)
        data = events[0].data if events else None
        if not isinstance(data, ApprovalRequested):
            raise NotFound("approval_erased", f"what approval {row.id} asked was erased")
        return data

    async def _record(self, row: ApprovalRow) -> ApprovalRecord:
        request = await self._request(row)
        return ApprovalRecord(
            id=row.id,
            kind=row.kind.value,
            run_id=row.run_id,
            session_id=row.session_id,
            call_id=row.call_id,
            tool=row.tool,
            arguments=await self._arguments(row),
            status=row.status.value,
            rule=request.rule,
            policies=request.policies,
            risk=request.risk.value,
            taint=request.taint,
            digest=row.digest,
            preview=request.preview,
            options=request.options,
            created_at_ms=row.created_at_ms,
            expires_at_ms=row.expires_at_ms,
            decided_by=row.decided_by,
        )

    async def _arguments(self, row: ApprovalRow) -> JsonObject | str | None:
        """From the proposal on the tape, which is a little before the question."""
        if row.call_id is None:
            return None
        first = max(0, row.requested_seq - 1 - LOOK_BACK_EVENTS)
        events = await self._office.journal.read(row.session_id, first, row.requested_seq - 1 - first)
        for event in reversed(events):
            match event.data:
                case ToolProposed(call_id=call_id, arguments=arguments) if call_id == row.call_id:
                    return arguments
                case ModelOutput(tool_calls=calls):
                    found = [call.arguments for call in calls if call.call_id == row.call_id]
                    if found:
                        return found[0]
                case _:
                    continue
        return None

    async def _grant_record(self, row: GrantRow) -> GrantRecord:
        events = await self._office.journal.read(row.session_id, row.granted_seq - 1, 1)
        data = events[0].data if events else None
        grant = data.grant if isinstance(data, ApprovalResolved) else None
        return GrantRecord(
            id=row.id,
            session_id=row.session_id,
            approval_id=row.approval_id,
            tool=row.tool,
            scope=row.scope.value,
            constraints=grant.constraints if grant is not None else (),
            principal=row.principal,
            agent=row.agent,
            is_revoked=row.revoked_seq is not None,
            created_at_ms=row.created_at_ms,
            expires_at_ms=row.expires_at_ms,
        )
