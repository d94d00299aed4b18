"""The settled usage projection: sums of spend by run, model and quarter of an hour."""

from palyra.core.events import Event
from palyra.core.events.model import UsageRecorded
from palyra.core.ids import RunId, SessionId
from palyra.core.projections.rows import UsageRow

QUARTER_MS = 15 * 60 * 1000
NANO = 1_000_000_000


def nano_usd(cost_usd: float | None) -> int:
    """Converts money to whole billionths of a dollar: a sum of floats would depend on its order."""
    return 0 if cost_usd is None else round(cost_usd * NANO)


def usage_id(run_id: RunId, data: UsageRecorded, at_ms: int) -> str:
    return f"{run_id}/{at_ms // QUARTER_MS}/{data.model}"


def project_spend(event: Event, run_id: RunId, data: UsageRecorded, row: UsageRow | None) -> UsageRow:
    return UsageRow(
        id=usage_id(run_id, data, event.at_ms),
        session_id=SessionId(event.stream),
        run_id=run_id,
        model=data.model,
        quarter=event.at_ms // QUARTER_MS,
        calls_count=(row.calls_count if row else 0) + 1,
        input_tokens=(row.input_tokens if row else 0) + data.input_tokens,
        output_tokens=(row.output_tokens if row else 0) + data.output_tokens,
        cached_tokens=(row.cached_tokens if row else 0) + data.cached_tokens,
        reasoning_tokens=(row.reasoning_tokens if row else 0) + data.reasoning_tokens,
        cost_nano_usd=(row.cost_nano_usd if row else 0) + nano_usd(data.cost_usd),
        unpriced_count=(row.unpriced_count if row else 0) + (data.cost_usd is None),
        seq=event.seq,
    )
