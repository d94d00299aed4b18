"""What the one writer remembers stays within its limits, however long the daemon runs."""

import tracemalloc

from palyra.adapters.store.writer_cache import ROWS_MAX, Recent
from palyra.core.ids import Principal, RunId, SessionId, StreamId
from palyra.core.projections.project import RowKey
from palyra.core.projections.rows import RunRow
from palyra.core.run.states import RunState

ROWS_BYTES_MAX = 20_000_000


def test_at_least_the_last_keys_and_at_most_twice_as_many_are_remembered() -> None:
    recent: Recent[int, int] = Recent(10)
    for key in range(1, 1_000):
        recent.update({key: key})
        held = [each for each in range(1, key + 1) if recent.get(each) is not None]
        assert held[-10:] == list(range(max(1, key - 9), key + 1))
        assert len(held) <= 20


def test_rows_of_any_number_of_runs_take_no_more_than_they_are_said_to() -> None:
    rows: Recent[RowKey, RunRow] = Recent(ROWS_MAX)
    tracemalloc.start()
    try:
        for number in range(3 * ROWS_MAX):
            row = run_row(number)
            rows.update({RowKey(RunRow, row.id): row})
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < ROWS_BYTES_MAX


def run_row(number: int) -> RunRow:
    """Returns a row as a channel's run leaves it, with texts of its own."""
    return RunRow(
        id=RunId(f"{number:026}"),
        session_id=SessionId(StreamId(f"{number // 7:026}")),
        principal=Principal(f"user:{number:08}"),
        agent="default",
        origin=f"channel:{number:08}",
        state=RunState.DONE,
        reason=None,
        idempotency_key=f"channel:{number:026}",
        accepted_seq=1_000 + number,
        answer_seq=1_001 + number,
        ended_seq=1_002 + number,
        input_tokens=1_000 + number,
        output_tokens=2_000 + number,
        cost_nano_usd=1_000_000 + number,
        unpriced_count=0,
        created_at_ms=1_763_000_000_000 + number,
        updated_at_ms=1_763_000_001_000 + number,
        seq=1_003 + number,
    )
