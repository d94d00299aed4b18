"""Approvals, grants and refusals of one principal (L11).

Owns: showing, answering and revoking them, and whose yes counts. Does not own: when to ask (core.run).
Invariants: a program says no and never yes. What acts outside the sandbox, in a workspace where others than the run's
principal work too, is allowed by an operator: it would run with their files, and for them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from palyra.core.channels.identity import is_linked
from palyra.core.drafts.outside import is_run_outside
from palyra.core.errors import Conflict, Invalid, NotFound, Unauthorized
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    GrantRevoked,
)
from palyra.core.ids import ApprovalId, GrantId, Principal, parse_artifact_id
from palyra.core.projections.rows import ApprovalRow, GrantRow
from palyra.core.run.questions import TOUCHED_MAX
from palyra.engine.api.approval_cards import make_card, read_request, whole_text
from palyra.engine.api.requests import (
    ApprovalAnswer,
    ApprovalRecord,
    ApprovalsQuery,
    AskedCall,
    FullPreview,
    GrantRecord,
)
from palyra.engine.channels.pairing_service import PairingService
from palyra.engine.session.commands import AnswerQuestion, RecordSessionEvent
from palyra.engine.session.session_loops import SessionLoops
from palyra.ports.artifacts import Artifacts
from palyra.ports.journal import Journal
from palyra.ports.views import ApprovalViews, ProvenanceViews, RunViews

REASON_LENGTH_MAX = 2_000
FULL_PAGE_CHARS = 256 * 1024  # An answer that every client takes.
READ_MARKS_MAX = 10_000
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
REAL_FOLDER = ("direct", "background")  # Arguments with which a command works on the real folder.


class ReadMarks:
    """Who has read which card whole. It is kept in memory: after a restart a long card is read again."""

    def __init__(self) -> None:
        self._read_to: OrderedDict[tuple[ApprovalId, Principal], int] = OrderedDict()
        self._whole: OrderedDict[tuple[ApprovalId, Principal], None] = OrderedDict()

    def note(self, approval_id: ApprovalId, principal: Principal, start: int, end: int, *, is_last: bool) -> None:
        """Notes a page. A page counts only if all before it were read."""
        key = (approval_id, principal)
        if start > self._read_to.get(key, 0):
            return
        self._read_to[key] = max(end, self._read_to.get(key, 0))
        _keep_newest(self._read_to)
        if is_last:
            self.note_whole(approval_id, principal)

    def note_whole(self, approval_id: ApprovalId, principal: Principal) -> None:
        self._whole[approval_id, principal] = None
        _keep_newest(self._whole)

    def has(self, approval_id: ApprovalId, principal: Principal) -> bool:
        return (approval_id, principal) in self._whole

    def require(self, approval_id: ApprovalId, principal: Principal) -> None:
        if not self.has(approval_id, principal):
            message = (
                f"the card of {approval_id} does not show all that a yes would allow; read it first: "
                f"palyra approvals show {approval_id} --full, or GET /api/v1/approvals/{approval_id}/full; or deny it"
            )
            raise Conflict("not_shown", message, is_retryable=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalService:
    views: ApprovalViews
    runs: RunViews
    provenance: ProvenanceViews
    journal: Journal
    loops: SessionLoops
    pairing: PairingService
    artifacts: Artifacts
    token_holders: Callable[[], tuple[Principal, ...]]
    read_marks: ReadMarks = field(default_factory=ReadMarks)

    async def list(self, principal: Principal | None, query: ApprovalsQuery) -> tuple[ApprovalRecord, ...]:
        """Lists approvals, the oldest first."""
        rows = await self.views.list_approvals(
            principal, query.status, query.after, query.limit, has_system=query.has_system
        )
        return tuple([await self._card(row) for row in rows])

    async def get(self, principal: Principal, approval_id: ApprovalId) -> ApprovalRecord:
        return await self._card(await self._row(principal, approval_id))

    async def asked(self, row: ApprovalRow) -> tuple[ApprovalRequested, tuple[AskedCall, ...]]:
        """Returns a question, and the calls that it is about."""
        return await read_request(self.journal, row), (await self._card(row)).calls

    async def full(
        self,
        principal: Principal,
        approval_id: ApprovalId,
        offset: int,
        *,
        by: Principal | None = None,
        client: str | None = None,
    ) -> FullPreview:
        """Returns a page of all that a yes would allow. Whoever has got the last page too has read it.

        `client` names the program that asks. What a program has read, its person has not.
        """
        row = await self._row(principal, approval_id)
        request = await read_request(self.journal, row)
        text = await self._whole_text(row, request)
        end = min(len(text), offset + FULL_PAGE_CHARS)
        if client is None:
            self.read_marks.note(approval_id, by or principal, offset, end, is_last=end == len(text))
        return FullPreview(text=text[offset:end], total_chars=len(text), next_offset=end if end < len(text) else None)

    async def _whole_text(self, row: ApprovalRow, request: ApprovalRequested) -> str:
        if request.full is not None:
            artifact_id = parse_artifact_id(request.full.artifact_id)
            return (await self.artifacts.get(artifact_id, 0, request.full.bytes)).decode("utf-8", "replace")
        return whole_text(await self._card(row))

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
        if answer.decision is Decision.ALLOW and (await self._card(row)).is_cut:
            self.read_marks.require(approval_id, by or principal)
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
    return any(
        not isinstance(call.arguments, dict) or any(call.arguments.get(name) for name in REAL_FOLDER)
        for call in card.calls
    )


def _require_person(row: ApprovalRow, answer: ApprovalAnswer) -> None:
    if answer.client is not None and answer.decision not in _NOES:
        message = (
            f"a program may only say no to approval {row.id}; a person answers it: palyra approvals allow {row.id}"
        )
        raise Unauthorized("person_needed", message)


def _keep_newest(kept: OrderedDict[Any, Any]) -> None:
    while len(kept) > READ_MARKS_MAX:
        kept.popitem(last=False)


def _require_fitting(row: ApprovalRow, answer: ApprovalAnswer) -> None:
    if answer.decision not in _DECISIONS.get(row.kind, set()):
        fitting = ", ".join(sorted(decision.value for decision in _DECISIONS.get(row.kind, set())))
        raise Invalid("decision_unfit", f"an approval of kind {row.kind.value} is answered with {fitting}")
    if len(answer.reason) > REASON_LENGTH_MAX:
        raise Invalid("reason_length", f"a reason has at most {REASON_LENGTH_MAX} characters")
