"""Approvals, grants and refusals of one principal (L11).

Owns: showing, answering and revoking them, and whose yes counts. Does not own: when to ask (core.run).
Invariants: a program says no and never yes. What acts outside the sandbox, in a workspace where others than the run's
principal work too, is allowed by an operator: it would run with their files, and for them.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from palyra.core.channels.identity import is_linked
from palyra.core.drafts.outside import is_run_outside
from palyra.core.errors import Conflict, Invalid, NotFound, Unauthorized
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import ApprovalKind, ApprovalResolved, ApprovalStatus, Decision, GrantRevoked
from palyra.core.ids import ApprovalId, GrantId, Principal
from palyra.core.projections.rows import ApprovalRow, GrantRow
from palyra.core.run.questions import TOUCHED_MAX
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
_NOES = frozenset({Decision.DENY, Decision.GIVE_UP})
_OPERATORS = frozenset({"operator", "admin"})
_WORKERS = _OPERATORS | {"user"}  # Roles that may start runs, which reach the workspace of any agent.
_LINKS_PAGE = 500
RUN_OUTSIDE = "run_outside"  # The bundled policy that asks about such files.
SHELL = "shell.run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalService:
    views: ApprovalViews
    runs: RunViews
    provenance: ProvenanceViews
    journal: Journal
    loops: SessionLoops
    pairing: PairingService
    token_holders: Callable[[], tuple[Principal, ...]]

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
        _require_person(row, answer)
        if row.kind is ApprovalKind.PAIRING:
            await self.pairing.answer(approval_id, answer, by or principal)
            return await self.get(principal, approval_id)
        run = await self.runs.run(row.run_id, None) if row.run_id is not None else None
        if run is None:
            raise NotFound("run_unknown", f"approval {approval_id} has no run")
        request = await read_request(self.journal, row)
        await self._require_operator(row, answer, run.principal)
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

    async def _require_operator(self, row: ApprovalRow, answer: ApprovalAnswer, principal: Principal) -> None:
        """Refuses a user's yes to what acts outside the sandbox, if others than the run's principal work here too."""
        if answer.decision in _NOES or answer.role_max in _OPERATORS:
            return
        if acts_outside(await self._card(row)) and await self._is_shared(principal):
            message = (
                f"approval {row.id} is about what runs outside the sandbox, in a workspace that others use too; "
                f"an operator answers it: palyra approvals allow {row.id}"
            )
            raise Unauthorized("operator_needed", message)

    async def _is_shared(self, principal: Principal) -> bool:
        """Tells whether a token or a linked account of another principal reaches the workspaces of this home."""
        if any(holder != principal for holder in await asyncio.to_thread(self.token_holders)):
            return True
        after, now_ms = "", self.pairing.clock.now_ms()
        while links := await self.pairing.views.links(None, after, _LINKS_PAGE):
            if any(link.principal != principal and link.role in _WORKERS and is_linked(link, now_ms) for link in links):
                return True
            after = links[-1].id
        return False

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


def acts_outside(card: ApprovalRecord) -> bool:
    """Tells whether a question is about a command on the real folder, or a file that runs or is obeyed outside.

    A question whose calls or paths are not all known counts as one.
    """
    paths = card.touches.paths
    if len(paths) >= TOUCHED_MAX or RUN_OUTSIDE in (card.rule, *card.policies) or any(map(is_run_outside, paths)):
        return True
    return card.tool == SHELL and any(
        not isinstance(call.arguments, dict) or bool(call.arguments.get("direct")) for call in card.calls
    )


def _require_person(row: ApprovalRow, answer: ApprovalAnswer) -> None:
    if answer.client is not None and answer.decision not in _NOES:
        message = (
            f"a program may only say no to approval {row.id}; a person answers it: palyra approvals allow {row.id}"
        )
        raise Unauthorized("person_needed", message)


def _require_fitting(row: ApprovalRow, answer: ApprovalAnswer) -> None:
    if answer.decision not in _DECISIONS.get(row.kind, set()):
        fitting = ", ".join(sorted(decision.value for decision in _DECISIONS.get(row.kind, set())))
        raise Invalid("decision_unfit", f"an approval of kind {row.kind.value} is answered with {fitting}")
    if len(answer.reason) > REASON_LENGTH_MAX:
        raise Invalid("reason_length", f"a reason has at most {REASON_LENGTH_MAX} characters")
