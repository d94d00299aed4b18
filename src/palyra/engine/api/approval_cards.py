"""Approvals as people see them, assembled from their row and their tape.

Does not own: asking or answering (api.approvals).
Invariant: everything is read from the tape, where secrets are markers (L5).
"""

from palyra.core.errors import NotFound
from palyra.core.events import Event
from palyra.core.events.base import JsonObject
from palyra.core.events.model import ModelOutput
from palyra.core.events.tool import ApprovalRequested, ApprovalResolved, ToolJudged, ToolProposed, Touches
from palyra.core.grants import decisions_for
from palyra.core.projections.rows import ApprovalRow
from palyra.core.run.questions import PREVIEW_LENGTH_MAX, touches_of, whole_call
from palyra.engine.api.requests import ApprovalRecord, AskedCall, OfferedOption
from palyra.engine.api.taint import origins_of
from palyra.ports.journal import Journal
from palyra.ports.views import ProvenanceViews

# How far before its question a call is searched: near first, then a whole turn's proposals and verdicts.
LOOK_BACK_EVENTS = (40, 500)
WHOLE_CHARS_MAX = 3_000  # Tools cut their previews at 4 KiB, so that a longer one may be no longer whole.


async def make_card(journal: Journal, provenance: ProvenanceViews, row: ApprovalRow) -> ApprovalRecord:
    request = await read_request(journal, row)
    calls = await _read_calls(journal, row, request)
    resolved = await _read_resolution(journal, row)
    return ApprovalRecord(
        id=row.id,
        kind=row.kind.value,
        run_id=row.run_id,
        session_id=row.session_id,
        call_id=row.call_id,
        tool=row.tool,
        arguments=calls[0].arguments if calls else None,
        status=row.status.value,
        rule=request.rule,
        policies=request.policies,
        risk=request.risk.value,
        taint=request.taint,
        digest=row.digest,
        preview=request.preview,
        options=_offered(request),
        created_at_ms=row.created_at_ms,
        expires_at_ms=row.expires_at_ms,
        decided_by=row.decided_by,
        taint_origins=await origins_of(provenance, row.session_id, request.taint),
        reason=request.reason,
        count=request.count,
        calls=calls,
        touches=request.touches or Touches(),
        is_cut=_is_cut(request, calls),
        covered_by=resolved.covered_by if resolved is not None else None,
        decided_reason=resolved.reason if resolved is not None else "",
        decided_rule=resolved.rule if resolved is not None else None,
    )


def whole_text(card: ApprovalRecord) -> str:
    """Returns all that a card's yes would allow: its preview, and each call's arguments without any cut."""
    calls = (whole_call(card.tool or "", call.arguments) for call in card.calls)
    return "\n\n".join(filter(None, (card.preview, *calls)))


def _is_cut(request: ApprovalRequested, calls: tuple[AskedCall, ...]) -> bool:
    """Tells whether the previews leave out something that a yes would allow, or may do so."""
    lengths = [len(call.preview or "") for call in calls]
    return request.full is not None or sum(lengths) > PREVIEW_LENGTH_MAX or max(lengths, default=0) > WHOLE_CHARS_MAX


def _offered(request: ApprovalRequested) -> tuple[OfferedOption, ...]:
    return tuple(
        OfferedOption(
            scope=option.scope,
            constraints=option.constraints,
            text=option.text,
            trusts=option.trusts,
            decisions=decisions_for(option, request.kind, request.risk),
        )
        for option in request.options
    )


async def read_request(journal: Journal, row: ApprovalRow) -> ApprovalRequested:
    events = await journal.read(row.session_id, row.requested_seq - 1, 1)
    data = events[0].data if events else None
    if not isinstance(data, ApprovalRequested):
        raise NotFound("approval_erased", f"what approval {row.id} asked was erased")
    return data


async def _read_resolution(journal: Journal, row: ApprovalRow) -> ApprovalResolved | None:
    if row.resolved_seq is None:
        return None
    events = await journal.read(row.session_id, row.resolved_seq - 1, 1)
    data = events[0].data if events else None
    return data if isinstance(data, ApprovalResolved) else None


async def _read_calls(journal: Journal, row: ApprovalRow, request: ApprovalRequested) -> tuple[AskedCall, ...]:
    if row.call_id is None:
        return ()
    wanted = request.calls or (row.call_id,)
    seen = _Seen()
    for count in LOOK_BACK_EVENTS:
        first = max(0, row.requested_seq - 1 - count)
        seen = _Seen()
        seen.add(await journal.read(row.session_id, first, row.requested_seq - 1 - first))
        if all(call_id in seen.arguments and call_id in seen.judged for call_id in wanted):
            break
    digests = request.digests or (request.digest,)
    return tuple(seen.call(call_id, digest) for call_id, digest in zip(wanted, digests, strict=True))


class _Seen:
    """What the events before a question say about calls."""

    def __init__(self) -> None:
        self.arguments: dict[str, JsonObject | str] = {}
        self.judged: dict[str, ToolJudged] = {}

    def add(self, events: tuple[Event, ...]) -> None:
        for event in events:
            match event.data:
                case ToolProposed(call_id=call_id, arguments=arguments):
                    self.arguments[call_id] = arguments
                case ModelOutput(tool_calls=calls):
                    self.arguments |= {call.call_id: call.arguments for call in calls}
                case ToolJudged() as judged:
                    self.judged[judged.call_id] = judged
                case _:
                    continue

    def call(self, call_id: str, digest: str) -> AskedCall:
        judged = self.judged.get(call_id)
        return AskedCall(
            call_id=call_id,
            digest=digest,
            arguments=self.arguments.get(call_id),
            touches=touches_of((judged,)) if judged is not None else Touches(),
            preview=judged.preview if judged is not None else None,
            full=judged.full if judged is not None else None,
        )
