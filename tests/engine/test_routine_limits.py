"""Routines in odd circumstances: long runs, clocks that jump, another principal, and secrets in odd places."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.core.errors import Invalid, Unavailable
from palyra.core.ids import configured_routine_id
from palyra.core.routines.model import HISTORY_MAX, Overlap, run_key
from palyra.core.routines.wish import ConfiguredRoutine
from palyra.core.writes import RecordFire
from palyra.engine.api.jobs import JobRequest
from palyra.engine.routines.fire_handler import ROUTINE_KIND
from tests.engine.test_routines import active_run, configured, jobs_are_done, runs_of, settled, workshop_at
from tests.support.engines import ALICE, OWNER
from tests.support.routines import START_MS, SetClock, fired_times, skipped_times, times_of, wish

pytestmark = pytest.mark.anyio

YEARS_MS = 10 * 365 * 86_400_000
SECRET = "sk-ant-api03-" + "a1B2c3D4" * 11 + "AA"


async def test_overlap_is_forbidden_however_many_times_were_skipped(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        routine = await engine.routines.create(OWNER, wish(prompt="slow", every_s=5))
        clock.forward(5)
        await engine.scheduler.look()
        run = await active_run(engine, clock.at_ms, routine.id)
        (first,) = await times_of(engine, routine.id)
        skips = [
            replace(first.fire, due_at_ms=number, reason="overlap", at_ms=clock.at_ms + 1) for number in range(200)
        ]
        await engine._setup.journal.commit((), [RecordFire(skip, HISTORY_MAX) for skip in skips])
        assert await engine._setup.views.routines.fire(routine.id, clock.at_ms) is None
        clock.forward(5)
        await engine.scheduler.look()
        await jobs_are_done(engine)
        assert [one.id for one in await runs_of(engine)] == [run.id]
        assert (await skipped_times(engine))[-1] == (clock.at_ms, "overlap", 1)
        await engine.runs.cancel(OWNER, run.id)


async def test_times_of_one_who_has_too_many_jobs_waiting_are_skipped_and_others_fire(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        mine = await engine.routines.create(OWNER, wish(every_s=5))
        theirs = await engine.routines.create(ALICE, wish(every_s=5))
        full = [
            JobRequest(kind="routine", principal=OWNER, delay_ms=10**9) for _ in range(ROUTINE_KIND.queued_each_max)
        ]
        await engine._setup.journal.commit((), [engine.jobs.prepare(request) for request in full])
        with pytest.raises(Unavailable, match="job_queue_full"):
            await engine.routines.run(OWNER, mine.id)
        clock.forward(5)
        await engine.scheduler.look()
        assert await skipped_times(engine) == [(clock.at_ms, "queue_full", 1)]
        assert [time.fire.reason for time in await times_of(engine, theirs.id, ALICE)] == [None]
        assert (await engine.routines.get(OWNER, mine.id)).next_at_ms == clock.at_ms + 5_000


async def test_cron_goes_on_at_once_after_a_clock_was_years_ahead(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        routine = await engine.routines.create(OWNER, wish(cron="*/5 * * * *"))
        await engine.scheduler.look()
        clock.at_ms += YEARS_MS
        await settled(engine)
        for _ in range(31):
            clock.forward(10)
            await engine.scheduler.look()
        await settled(engine)
        ahead = await fired_times(engine)
        assert ahead == [START_MS + YEARS_MS, START_MS + YEARS_MS + 300_000]
        clock.at_ms = START_MS + 1
        await settled(engine)
        assert (await engine.routines.get(OWNER, routine.id)).next_at_ms == START_MS + 300_000
        for _ in range(31):
            clock.forward(10)
            await engine.scheduler.look()
        await settled(engine)
        assert await fired_times(engine) == [*ahead, START_MS + 300_000]
        assert len(await runs_of(engine)) == 3
        assert (await engine.routines.get(OWNER, routine.id)).last_due_ms == START_MS + 300_000


async def test_history_goes_on_after_a_clock_that_was_ahead_filled_it(tmp_path: Path) -> None:
    clock = SetClock(START_MS + YEARS_MS)
    async with workshop_at(tmp_path, clock).open() as engine:
        routine = await engine.routines.create(OWNER, wish(every_s=1))
        await engine.scheduler.look()
        for _ in range(HISTORY_MAX // 5 + 1):
            clock.forward(5)
            await engine.scheduler.look()
        await settled(engine)
        assert len(await times_of(engine, routine.id)) == HISTORY_MAX
        clock.at_ms = START_MS
        await settled(engine)
        clock.forward(1.5)
        await settled(engine)
        clock.forward(0.3)
        by_hand = await engine.routines.run(OWNER, routine.id)
        await settled(engine)
        times = await times_of(engine, routine.id)
        assert (len(times), by_hand.fire.due_at_ms) == (HISTORY_MAX, clock.at_ms)
        assert [time.fire.due_at_ms // 1000 for time in times[:2]] == [START_MS // 1000 + 1] * 2


async def test_a_routine_of_the_file_that_changes_hands_shows_and_replaces_nothing_of_the_first(tmp_path: Path) -> None:
    clock = SetClock()
    nightly = configured(prompt="slow", every_s=5, overlap=Overlap.REPLACE)
    routine_id = configured_routine_id("nightly")
    async with workshop_at(tmp_path, clock).open() as engine:
        await engine.routines.sync([nightly])
        engine.routines.changed()
        clock.forward(5)
        await engine.scheduler.look()
        run = await active_run(engine, clock.at_ms, routine_id)
        await engine.routines.sync([ConfiguredRoutine(principal=ALICE, definition=nightly.definition)])
        assert await engine.routines.history(ALICE, routine_id, None, 9) == ()
        clock.forward(5)
        engine.routines.changed()
        await engine.scheduler.look()
        await jobs_are_done(engine)
        (mine,) = await engine.routines.history(ALICE, routine_id, None, 9)
        row = await engine.runs.views.run_by_idempotency_key(run_key(routine_id, clock.at_ms), ALICE)
        assert row is not None
        assert mine.run_id == row.id
        assert (await engine.runs.get(OWNER, run.id)).state == "in_progress"
        await engine.runs.cancel(OWNER, run.id)
        await engine.runs.cancel(ALICE, row.id)


async def test_a_secret_in_any_text_of_a_routine_is_not_stored(tmp_path: Path) -> None:
    async with workshop_at(tmp_path, SetClock()).open() as engine:
        routine = await engine.routines.create(OWNER, wish(prompt=SECRET, session_key=SECRET))
        assert SECRET not in str(routine)
        for place in ("timezone", "agent", "cron", "at"):
            with pytest.raises(Invalid) as refusal:
                await engine.routines.create(OWNER, wish("other", **{place: SECRET}))
            assert SECRET not in refusal.value.message
        file = configured(prompt=SECRET, session_key=SECRET)
        await engine.routines.sync([file])
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
