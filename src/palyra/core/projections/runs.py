"""The runs projection: a run's row from its lifecycle, its answer and its usage."""

from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.events import Event
from palyra.core.events.model import UsageRecorded
from palyra.core.events.run import EndReason, RunAccepted, RunCancelled, RunDone, RunFailed
from palyra.core.ids import RunId, SessionId
from palyra.core.projections.rows import RunRow
from palyra.core.projections.usage import nano_usd
from palyra.core.run.states import is_terminal, next_state


def project_lifecycle(event: Event, row: RunRow | None) -> RunRow:
    """Returns the row after a lifecycle event; raises where the transition table has no row for it."""
    state = next_state(row.state if row is not None else None, event.type)
    if row is None:
        return _accepted(event)
    ended_seq = event.seq if is_terminal(state) else None
    reason = _reason(event)
    return replace(row, state=state, reason=reason, ended_seq=ended_seq, updated_at_ms=event.at_ms, seq=event.seq)


def project_answer(event: Event, row: RunRow) -> RunRow:
    return replace(row, answer_seq=event.seq, updated_at_ms=event.at_ms, seq=event.seq)


def project_usage(event: Event, row: RunRow) -> RunRow:
    data = event.data
    if not isinstance(data, UsageRecorded):
        return row
    return replace(
        row,
        input_tokens=row.input_tokens + data.input_tokens,
        output_tokens=row.output_tokens + data.output_tokens,
        cost_nano_usd=row.cost_nano_usd + nano_usd(data.cost_usd),
        unpriced_count=row.unpriced_count + (data.cost_usd is None),
        updated_at_ms=event.at_ms,
        seq=event.seq,
    )


def require_run(event: Event, row: RunRow | None) -> RunRow:
    if row is None:
        raise Invalid("run_unknown", f"{event.type} for run {event.run_id}, which tape {event.stream} never accepted")
    if row.session_id != event.stream:
        raise Invalid("run_elsewhere", f"run {row.id} belongs to session {row.session_id}, not {event.stream}")
    return row


def _reason(event: Event) -> EndReason | None:
    match event.data:
        case RunDone(reason=reason) | RunFailed(reason=reason) | RunCancelled(reason=reason):
            return reason
        case _:
            return None


def _accepted(event: Event) -> RunRow:
    if event.run_id is None:
        raise Invalid("run_missing", f"{event.type} on tape {event.stream} names no run")
    data = event.data if isinstance(event.data, RunAccepted) else None
    return RunRow(
        id=RunId(event.run_id),
        session_id=SessionId(event.stream),
        principal=event.actor,
        agent=data.agent if data else "",
        origin=data.origin if data else "",
        state=next_state(None, event.type),
        reason=None,
        idempotency_key=data.idempotency_key if data else None,
        accepted_seq=event.seq,
        answer_seq=None,
        ended_seq=None,
        input_tokens=0,
        output_tokens=0,
        cost_nano_usd=0,
        unpriced_count=0,
        created_at_ms=event.at_ms,
        updated_at_ms=event.at_ms,
        seq=event.seq,
        parent_run_id=data.lineage[-1].run_id if data and data.lineage else None,
    )
