"""Runs as people see them: a run's row, and the texts that the row points to. Does not own: queries (api.runs)."""

from collections.abc import Sequence

from msgspec.structs import replace

from palyra.core.events import Event
from palyra.core.events.run import (
    MessageAssistant,
    MessageUser,
    ObjectiveResult,
    ObjectivesChecked,
    RunAccepted,
    RunCancelled,
    RunFailed,
)
from palyra.core.projections.rows import RunRow
from palyra.core.projections.usage import NANO
from palyra.core.run.states import RunState
from palyra.engine.api.requests import ObjectiveRecord, RunError, RunRecord, RunUsage
from palyra.ports.journal import Journal

TASK_LENGTH_MAX = 200
PAGE_EVENTS = 500
OPEN = "open"  # The state of an objective that was not checked yet.


async def make_listed(journal: Journal, row: RunRow) -> RunRecord:
    """Returns the record with its task and its objectives."""
    record = await make_record(journal, row)
    opening = await journal.read(row.session_id, row.accepted_seq - 1, 2)
    return replace(record, task=_task(opening[1:]), objectives=await _objectives(journal, row, opening[:1]))


async def make_record(journal: Journal, row: RunRow) -> RunRecord:
    return RunRecord(
        id=row.id,
        session_id=row.session_id,
        state=row.state.value,
        reason=row.reason.value if row.reason is not None else None,
        answer=await _answer(journal, row),
        error=await _error(journal, row),
        usage=usage_of(row),
        agent=row.agent,
        origin=row.origin,
        principal=row.principal,
        accepted_seq=row.accepted_seq,
        ended_seq=row.ended_seq,
        created_at_ms=row.created_at_ms,
        updated_at_ms=row.updated_at_ms,
        parent_run_id=row.parent_run_id,
    )


async def task_of(journal: Journal, row: RunRow) -> str:
    """Returns the beginning of what the run was asked, which stands right behind its first event."""
    return _task(await journal.read(row.session_id, row.accepted_seq, 1))


def _task(events: Sequence[Event]) -> str:
    data = events[0].data if events else None
    text = " ".join(data.text.split()) if isinstance(data, MessageUser) else ""
    return text if len(text) <= TASK_LENGTH_MAX else f"{text[: TASK_LENGTH_MAX - 1]}…"


async def _answer(journal: Journal, row: RunRow) -> str | None:
    if row.answer_seq is None:
        return None
    events = await journal.read(row.session_id, row.answer_seq - 1, 1)
    data = events[0].data if events else None
    return data.text if isinstance(data, MessageAssistant) else None


async def _error(journal: Journal, row: RunRow) -> RunError | None:
    if row.ended_seq is None or row.state is RunState.DONE:
        return None
    events = await journal.read(row.session_id, row.ended_seq - 1, 1)
    data = events[0].data if events else None
    if not isinstance(data, RunFailed | RunCancelled):
        return None
    return RunError(code=data.reason.value, message=data.message)


async def _objectives(journal: Journal, row: RunRow, events: Sequence[Event]) -> tuple[ObjectiveRecord, ...]:
    data = events[0].data if events else None
    if not isinstance(data, RunAccepted) or not data.objectives:
        return ()
    results = await _last_check(journal, row)
    if not results:
        return tuple(ObjectiveRecord(objective=text, state=OPEN) for text in data.objectives)
    return tuple(
        ObjectiveRecord(objective=text, state=result.state.value, note=result.note)
        for text, result in zip(data.objectives, results, strict=False)
    )


async def _last_check(journal: Journal, row: RunRow) -> tuple[ObjectiveResult, ...]:
    """Returns what the run's last check found. Only runs with objectives are read for it, and a run is bounded."""
    found: tuple[ObjectiveResult, ...] = ()
    cursor = row.accepted_seq
    while page := await journal.read(row.session_id, cursor, PAGE_EVENTS):
        cursor = page[-1].seq
        own = [event for event in page if event.run_id == row.id]
        found = next((each.data.results for each in reversed(own) if isinstance(each.data, ObjectivesChecked)), found)
        if row.ended_seq is not None and cursor >= row.ended_seq:
            break
    return found


def usage_of(row: RunRow) -> RunUsage:
    """Includes a cost only if the price of every call is known."""
    cost_usd = row.cost_nano_usd / NANO if row.unpriced_count == 0 else None
    return RunUsage(input_tokens=row.input_tokens, output_tokens=row.output_tokens, cost_usd=cost_usd)
