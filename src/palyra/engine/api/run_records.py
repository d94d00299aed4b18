"""Runs as people see them: a run's row, and the texts that the row points to.

Does not own: queries (api.runs).
"""

from msgspec.structs import replace

from palyra.core.events.run import MessageAssistant, MessageUser, RunCancelled, RunFailed
from palyra.core.projections.rows import RunRow
from palyra.core.projections.usage import NANO
from palyra.core.run.states import RunState
from palyra.engine.api.requests import RunError, RunRecord, RunUsage
from palyra.ports.journal import Journal

TASK_LENGTH_MAX = 200


async def make_listed(journal: Journal, row: RunRow) -> RunRecord:
    """Returns the record with its task, for lists and look-ups. The start of a run does not wait for that read."""
    return replace(await make_record(journal, row), task=await task_of(journal, row))


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
    events = await journal.read(row.session_id, row.accepted_seq, 1)
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


def usage_of(row: RunRow) -> RunUsage:
    """Includes a cost only if the price of every call is known."""
    cost_usd = row.cost_nano_usd / NANO if row.unpriced_count == 0 else None
    return RunUsage(input_tokens=row.input_tokens, output_tokens=row.output_tokens, cost_usd=cost_usd)
