"""Routines in a whole engine: a due time starts one run, whatever the clock and the daemon do."""

from collections import Counter
from pathlib import Path

import pytest

from palyra.adapters.providers.prepared_turns import Chunk, Turn
from palyra.adapters.providers.scripted import Script
from palyra.core.errors import Conflict, Invalid, NotFound, PalyraError, Unauthorized
from palyra.core.ids import RoutineId, configured_routine_id
from palyra.core.jobs.model import JobState
from palyra.core.routines.model import HISTORY_MAX, Misfire, Overlap, RoutineDefinition, run_key
from palyra.core.routines.schedule import first_time
from palyra.core.routines.wish import ConfiguredRoutine, RoutineWish, make_definition
from palyra.core.run.states import RunState
from palyra.engine.api.requests import RunRecord, RunsQuery
from palyra.engine.api.routine_records import RoutineChange, fire_record, routine_record
from palyra.engine.engine import Engine
from palyra.engine.setup import EngineSettings
from palyra.ports.jobs import JobFilter
from tests.support.asking import calls, says
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.routines import (
    START_MS,
    SetClock,
    fired_times,
    live_jobs_count,
    local_ms,
    routine_events,
    skipped_times,
    times_of,
    wish,
)
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

SAYS = [
    Script(when="slow", turns=(Turn(chunks=tuple(Chunk(f"{n} ", 50) for n in range(400))),)),
    Script(turns=(says("Done."),)),
]
MINUTE = 60_000


def workshop_at(root: Path, clock: SetClock, settings: EngineSettings | None = None) -> Workshop:
    workshop = Workshop(root, SAYS, settings)
    workshop.clock = clock
    return workshop


async def runs_of(engine: Engine, owner: object = OWNER) -> list[RunRecord]:
    return list(await engine.runs.list(owner, RunsQuery(limit=400)))[::-1]  # type: ignore[arg-type]


async def settled(engine: Engine) -> None:
    """Looks at the clock, then waits until no job is left and no run goes on."""
    await engine.scheduler.look()
    await until(lambda: _is_quiet(engine))


async def _is_quiet(engine: Engine) -> bool:
    is_over = all(run.state in ("done", "failed", "cancelled") for run in await runs_of(engine))
    return is_over and not await live_jobs_count(engine)


async def jobs_are_done(engine: Engine) -> None:
    async def are_done() -> bool:
        return not await live_jobs_count(engine)

    await until(are_done)


async def test_a_due_time_starts_a_run_as_its_principal_in_a_session_of_its_own(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        routine = await engine.routines.create(ALICE, wish(prompt="Tidy up.", agent="main"))
        assert routine.next_at_ms == START_MS + MINUTE
        clock.forward(59.999)
        await settled(engine)
        assert await runs_of(engine, ALICE) == []
        clock.forward(0.001)
        await settled(engine)
        (run,) = await runs_of(engine, ALICE)
        assert (run.state, run.origin, run.principal, run.agent) == ("done", "routine", ALICE, "main")
        session = await engine.sessions.get(ALICE, run.session_id)
        assert session.key == f"routine:{routine.id}"
        (time,) = await times_of(engine, routine.id, ALICE)
        assert (time.fire.due_at_ms, time.fire.reason, time.run_id, time.run_state) == (
            START_MS + MINUTE, None, run.id, "done",
        )  # fmt: skip
        stored = await engine.routines.get(ALICE, routine.id)
        assert (stored.next_at_ms, stored.fired_count, stored.skipped_count) == (START_MS + 2 * MINUTE, 1, 0)
        assert [event.type for event in await routine_events(engine)] == ["routine.created", "routine.fired"]


async def test_events_hold_neither_prompt_nor_name(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        routine = await engine.routines.create(OWNER, wish(name="zebra", prompt="giraffe"))
        await engine.routines.change(OWNER, routine.id, RoutineChange(prompt="okapi", name="tapir"), OWNER)
        clock.forward(60)
        await settled(engine)
        await engine.routines.remove(OWNER, routine.id, OWNER)
        told = str(await routine_events(engine))
        assert not any(word in told for word in ("zebra", "giraffe", "okapi", "tapir"))
        assert "fields=('name', 'prompt')" in told
        stored = await engine._setup.views.routines.routine(routine.id)
        assert stored is not None
        assert (stored.is_removed, stored.definition.prompt) == (True, "")


async def test_runs_of_one_routine_share_the_session_that_was_named(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        await engine.routines.create(OWNER, wish(session_key="daily"))
        for _ in range(3):
            clock.forward(60)
            await settled(engine)
        sessions = {run.session_id for run in await runs_of(engine)}
        assert len(await runs_of(engine)) == 3
        (session_id,) = sessions
        assert (await engine.sessions.get(OWNER, session_id)).key == "daily"


@pytest.mark.parametrize(
    ("misfire", "fires", "skipped"), [(Misfire.SKIP, 0, 60), (Misfire.ONCE, 1, 59), (Misfire.ALL, 3, 57)]
)
async def test_after_an_hour_of_sleep_missed_times_follow_the_rule(
    tmp_path: Path, misfire: Misfire, fires: int, skipped: int
) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        asked = wish(misfire=misfire, misfire_max=3, overlap=Overlap.QUEUE)
        routine = await engine.routines.create(OWNER, asked)
        await settled(engine)
        clock.forward(3_600.5)
        await settled(engine)
        last_ms = START_MS + 60 * MINUTE
        assert await fired_times(engine) == [last_ms - index * MINUTE for index in range(fires)][::-1]
        (time,) = await skipped_times(engine)
        assert time == (last_ms - fires * MINUTE, "misfire", skipped)
        assert len(await runs_of(engine)) == fires
        stored = await engine.routines.get(OWNER, routine.id)
        assert (stored.fired_count, stored.skipped_count) == (fires, skipped)
        # And then it goes on as before.
        clock.forward(60)
        await engine.scheduler.look()
        clock.forward(0)
        assert stored.next_at_ms == last_ms + MINUTE


async def test_missed_times_that_are_all_made_up_for_run_one_after_another_oldest_first(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        asked = wish(misfire=Misfire.ALL, misfire_max=12, overlap=Overlap.FORBID)
        routine = await engine.routines.create(OWNER, asked)
        await settled(engine)
        clock.forward(720.5)
        await settled(engine)
        times = await times_of(engine, routine.id)
        assert [time.fire.reason for time in times] == [None] * 12
        events = await engine._setup.journal.read_all(0, 10_000)
        order = [event.run_id for event in events if event.type == "run.accepted"]
        assert order == [time.run_id for time in times]


@pytest.mark.parametrize(("misfire", "count"), [(Misfire.SKIP, 0), (Misfire.ONCE, 1), (Misfire.ALL, 3)])
async def test_times_missed_while_no_daemon_ran_follow_the_rule(tmp_path: Path, misfire: Misfire, count: int) -> None:
    clock = SetClock()
    workshop = workshop_at(tmp_path, clock)
    async with workshop.open() as engine:
        await engine.routines.create(OWNER, wish(cron="0 * * * *", misfire=misfire, overlap=Overlap.QUEUE))
    clock.forward(3 * 3_600 + 5)
    async with workshop.open() as engine:
        await settled(engine)
        assert len(await runs_of(engine)) == count
        clock.forward(5)
        await settled(engine)
        assert len(await runs_of(engine)) == count


async def test_a_busy_second_is_no_sleep(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        await engine.routines.create(OWNER, wish())
        clock.forward(58)
        await engine.scheduler.look()
        clock.forward(9)
        await settled(engine)
        assert await fired_times(engine) == [START_MS + MINUTE]


async def test_a_clock_set_back_fires_nothing_again_and_delays_no_interval(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        every = await engine.routines.create(OWNER, wish("every"))
        cron = await engine.routines.create(OWNER, wish("cron", cron="* * * * *"))
        for _ in range(3):
            clock.forward(60)
            await engine.scheduler.look()
            await settled(engine)
        fired = await fired_times(engine)
        clock.at_ms = START_MS + 1
        await settled(engine)
        assert await fired_times(engine) == fired
        assert (await engine.routines.get(OWNER, every.id)).next_at_ms == START_MS + MINUTE + 1
        assert (await engine.routines.get(OWNER, cron.id)).next_at_ms == START_MS + 4 * MINUTE
        for _ in range(8):
            clock.forward(30)
            await engine.scheduler.look()
            clock.forward(0)
            await settled(engine)
        times = [time.fire.due_at_ms for time in await times_of(engine, cron.id)]
        assert len(times) == len(set(times)) == 4
        again = [time.fire.due_at_ms for time in await times_of(engine, every.id)]
        assert len(again) == len(set(again))


async def test_a_next_time_worked_out_by_a_clock_far_ahead_is_mended_at_the_start(tmp_path: Path) -> None:
    clock = SetClock(START_MS + 10**10)
    workshop = workshop_at(tmp_path, clock)
    async with workshop.open() as engine:
        every = await engine.routines.create(OWNER, wish("every"))
        cron = await engine.routines.create(OWNER, wish("cron", cron="0 * * * *"))
    clock.at_ms = START_MS + 1
    async with workshop.open() as engine:
        await engine.scheduler.look()
        assert (await engine.routines.get(OWNER, every.id)).next_at_ms == START_MS + MINUTE + 1
        assert (await engine.routines.get(OWNER, cron.id)).next_at_ms == START_MS + 60 * MINUTE


async def test_a_clock_set_forward_counts_as_sleep(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        await engine.routines.create(OWNER, wish(misfire=Misfire.ONCE))
        await engine.scheduler.look()
        clock.forward(10**6)
        await settled(engine)
        assert len(await fired_times(engine)) == 1


@pytest.mark.parametrize("zone", ["Europe/Prague", "America/New_York"])
@pytest.mark.parametrize("day", ["2027-03-14", "2027-03-28", "2027-10-31", "2027-11-07"])
async def test_a_night_on_which_clocks_are_changed_has_one_run(tmp_path: Path, zone: str, day: str) -> None:
    clock = SetClock(local_ms(f"{day}T00:00", zone))
    async with workshop_at(tmp_path, clock).open() as engine:
        await engine.routines.create(OWNER, wish(cron="30 1,2 * * *", timezone=zone, overlap=Overlap.QUEUE))
        await engine.scheduler.look()
        for _ in range(5 * 60 * 6 + 1):
            clock.forward(10)
            await engine.scheduler.look()
        await settled(engine)
        assert len(await fired_times(engine)) == len(await runs_of(engine)) == 2


async def active_run(engine: Engine, due_ms: int, routine_id: RoutineId) -> RunRecord:
    async def is_running() -> bool:
        run = await engine.runs.views.run_by_idempotency_key(run_key(routine_id, due_ms), OWNER)
        return run is not None and run.state is RunState.IN_PROGRESS

    await until(is_running)
    row = await engine.runs.views.run_by_idempotency_key(run_key(routine_id, due_ms), OWNER)
    assert row is not None
    return await engine.runs.get(OWNER, row.id)


async def test_overlap_forbid_skips_with_a_record(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        routine = await engine.routines.create(OWNER, wish(prompt="slow"))
        clock.forward(60)
        await engine.scheduler.look()
        run = await active_run(engine, clock.at_ms, routine.id)
        clock.forward(5)
        await engine.scheduler.look()
        for _ in range(11):
            clock.forward(5)
            await engine.scheduler.look()
        await jobs_are_done(engine)
        assert await skipped_times(engine) == [(START_MS + 2 * MINUTE, "overlap", 1)]
        first, second = await times_of(engine, routine.id)
        assert (first.run_id, first.run_state, first.fire.reason) == (run.id, "in_progress", None)
        assert (second.run_id, second.fire.reason) == (None, "overlap")
        stored = await engine.routines.get(OWNER, routine.id)
        assert (stored.fired_count, stored.skipped_count) == (1, 1)
        await engine.runs.cancel(OWNER, run.id)
        await until(lambda: _is_quiet(engine))


async def test_overlap_queue_waits_in_the_session_and_has_a_limit(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        routine = await engine.routines.create(OWNER, wish(prompt="slow", every_s=1, overlap=Overlap.QUEUE))
        clock.forward(1)
        await engine.scheduler.look()
        run = await active_run(engine, clock.at_ms, routine.id)
        for _ in range(20):
            clock.forward(1)
            await engine.scheduler.look()
            await jobs_are_done(engine)
        assert Counter(one.state for one in await runs_of(engine)) == {"in_progress": 1, "accepted": 15}
        assert {reason for _, reason, _ in await skipped_times(engine)} == {"queue_full"}
        assert len(await skipped_times(engine)) == 5
        await engine.routines.change(OWNER, routine.id, RoutineChange(paused=True), OWNER)
        await engine.runs.cancel(OWNER, run.id)
        await active_run(engine, START_MS + 2_000, routine.id)
        for one in await runs_of(engine):
            await engine.runs.cancel(OWNER, one.id)


async def test_overlap_replace_cancels_the_run_that_goes_on(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        routine = await engine.routines.create(OWNER, wish(prompt="slow", every_s=5, overlap=Overlap.REPLACE))
        clock.forward(5)
        await engine.scheduler.look()
        first = await active_run(engine, clock.at_ms, routine.id)
        clock.forward(5)
        await engine.scheduler.look()
        second = await active_run(engine, clock.at_ms, routine.id)
        replaced = await engine.runs.get(OWNER, first.id)
        assert replaced.state == "cancelled"
        assert "replaced" in str(replaced.error)
        assert [time.run_state for time in await times_of(engine, routine.id)] == ["cancelled", "in_progress"]
        await engine.runs.cancel(OWNER, second.id)
        await until(lambda: _is_quiet(engine))


@pytest.mark.parametrize(("waits", "state"), [(False, "done"), (True, "waiting")])
async def test_whether_a_person_is_asked_is_what_headless_says(tmp_path: Path, waits: bool, state: str) -> None:
    clock = SetClock()
    workshop = workshop_at(tmp_path, clock, EngineSettings(waits_headless=waits))
    workshop.provider = Workshop(tmp_path, [Script(turns=(calls("mark.send", text="a"), says("I tried.")))]).provider
    async with workshop.open() as engine:
        await engine.routines.create(OWNER, wish())
        clock.forward(60)
        await engine.scheduler.look()

        async def has_come_to_it() -> bool:
            return [run.state for run in await runs_of(engine)] == [state]

        await until(has_come_to_it)
        assert workshop.executed() == []


async def test_a_pause_makes_nothing_up_for(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        every = await engine.routines.create(OWNER, wish("every", misfire=Misfire.ALL))
        once = await engine.routines.create(OWNER, wish("once", at="2027-01-15T08:10:00Z"))
        for routine in (every, once):
            paused = await engine.routines.change(OWNER, routine.id, RoutineChange(paused=True), OWNER)
            assert routine_record(paused).state == "paused"
        clock.forward(1_830)
        await settled(engine)
        resumed = await engine.routines.change(OWNER, every.id, RoutineChange(paused=False), OWNER)
        assert resumed.next_at_ms == START_MS + 31 * MINUTE
        over = await engine.routines.change(OWNER, once.id, RoutineChange(paused=False), OWNER)
        assert routine_record(over).state == "over"
        await settled(engine)
        assert await fired_times(engine) == []


async def test_a_manual_run_leaves_the_schedule_as_it_is(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        routine = await engine.routines.create(OWNER, wish(overlap=Overlap.QUEUE))
        first = await engine.routines.run(OWNER, routine.id)
        second = await engine.routines.run(OWNER, routine.id)
        assert [first.fire.due_at_ms, second.fire.due_at_ms] == [START_MS, START_MS + 1]
        await settled(engine)
        assert len(await runs_of(engine)) == 2
        assert (await engine.routines.get(OWNER, routine.id)).next_at_ms == START_MS + MINUTE
        assert all(fire_record(time).is_manual for time in await times_of(engine, routine.id))


async def test_a_run_that_cannot_start_is_a_skipped_time_with_its_reason(tmp_path: Path) -> None:
    clock = SetClock()
    workshop = workshop_at(tmp_path, clock)
    workshop.agents["helper"] = workshop.agents["main"]
    async with workshop.open() as engine:
        await engine.routines.create(OWNER, wish(agent="helper"))
    del workshop.agents["helper"]
    async with workshop.open() as engine:
        clock.forward(5)
        await engine.scheduler.look()
        for _ in range(11):
            clock.forward(5)
            await engine.scheduler.look()
        await settled(engine)
        assert await skipped_times(engine) == [(START_MS + MINUTE, "agent_unknown", 1)]


async def test_history_is_bounded_and_outlives_the_routine_for_its_owner_alone(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        routine = await engine.routines.create(OWNER, wish(every_s=1))
        await engine.scheduler.look()
        for _ in range(HISTORY_MAX // 5 + 3):
            clock.forward(5)
            await engine.scheduler.look()
        await jobs_are_done(engine)
        times = await times_of(engine, routine.id)
        assert len(times) == HISTORY_MAX
        assert times[-1].fire.due_at_ms == clock.at_ms
        await engine.routines.remove(OWNER, routine.id, OWNER)
        assert len(await times_of(engine, routine.id)) == HISTORY_MAX
        with pytest.raises(NotFound):
            await engine.routines.history(ALICE, routine.id, None, 1)
        with pytest.raises(NotFound):
            await engine.routines.get(OWNER, routine.id)
        clock.forward(91 * 24 * 3600)
        clock.at_ms -= 10**6
        engine.scheduler._awake_since_ms = None
        await engine.scheduler.look()
        with pytest.raises(NotFound):
            await engine.routines.history(OWNER, routine.id, None, 1)


async def test_erasing_the_session_of_a_routine_does_not_stop_it(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        routine = await engine.routines.create(OWNER, wish())
        clock.forward(60)
        await settled(engine)
        (first,) = await runs_of(engine)
        await engine.sessions.delete(OWNER, first.session_id)
        clock.forward(60)
        await settled(engine)
        times = await times_of(engine, routine.id)
        assert [time.fire.reason for time in times] == [None, None]
        assert times[-1].run_state == "done"
        assert times[-1].run_id != first.id


async def test_nothing_fires_while_the_daemon_drains_and_the_next_start_counts_it_as_missed(tmp_path: Path) -> None:
    clock = SetClock()
    workshop = workshop_at(tmp_path, clock)
    async with workshop.open() as engine:
        routine = await engine.routines.create(OWNER, wish(every_s=1))
        await engine.drain(0)
        for _ in range(36):
            clock.forward(1)
            await engine.scheduler.look()
        assert await engine._setup.views.jobs.list_jobs(None, JobFilter(kind="routine")) == ()
    clock.forward(0.5)
    async with workshop.open() as engine:
        await settled(engine)
        found = await engine.routines.get(OWNER, routine.id)
        assert await runs_of(engine) == []
        assert (found.fired_count, found.skipped_count) == (0, 36)


async def test_a_due_time_that_meets_the_drain_uses_no_attempt_and_runs_at_the_next_start(tmp_path: Path) -> None:
    clock = SetClock()
    workshop = workshop_at(tmp_path, clock)
    async with workshop.open() as engine:
        await engine.routines.create(OWNER, wish())
        clock.forward(60)
        engine.runs.is_draining = True
        await engine.scheduler.look()

        async def was_postponed() -> bool:
            jobs = await engine._setup.views.jobs.list_jobs(None, JobFilter(kind="routine"))
            return any(job.token > 1 and job.state is JobState.QUEUED for job in jobs)

        await until(was_postponed)
        engine.worker.is_draining = True

        async def is_given_back() -> bool:
            (job,) = await engine._setup.views.jobs.list_jobs(None, JobFilter(kind="routine"))
            return (job.state, job.attempts, job.error) == (JobState.QUEUED, 0, None)

        await until(is_given_back, "the job, given back without an attempt")
    async with workshop.open() as engine:
        await settled(engine)
        assert [run.state for run in await runs_of(engine)] == ["done"]


async def test_a_removed_routine_does_not_start_what_was_due(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        engine.worker.is_draining = True
        routine = await engine.routines.create(OWNER, wish())
        clock.forward(60)
        await engine.scheduler.look()
        await engine.routines.remove(OWNER, routine.id, OWNER)
        engine.worker.is_draining = False
        engine.jobs.wake()
        await jobs_are_done(engine)
        assert await runs_of(engine) == []
        assert [reason for _, reason, _ in await skipped_times(engine)] == ["removed"]


REFUSED: list[tuple[RoutineWish, str]] = [
    (wish(cron="61 * * * *"), "cron_invalid"),
    (wish(cron="0 0 30 2 *"), "cron_invalid"),
    (wish(at="2027-01-15T08:00:00Z"), "time_past"),
    (wish(at="2020-01-01T00:00:00Z"), "time_past"),
    (wish(timezone="Mars"), "timezone_unknown"),
    (wish(every_s=5, cron="* * * * *"), "routine_schedule"),
    (wish(agent="nobody"), "agent_unknown"),
    (wish(channel="team"), "routine_channel"),
]


@pytest.mark.parametrize(("asked", "code"), REFUSED)
async def test_a_wish_that_cannot_be_met_creates_and_changes_nothing(
    tmp_path: Path, asked: RoutineWish, code: str
) -> None:
    async with workshop_at(tmp_path, SetClock()).open() as engine:
        with pytest.raises(PalyraError) as refusal:
            await engine.routines.create(OWNER, asked)
        assert refusal.value.code == code
        assert await engine.routines.list(None, "", 10) == ()
        assert await routine_events(engine) == []


async def test_names_are_unique_for_each_principal_and_routines_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palyra.engine.api.routines.ROUTINES_PER_PRINCIPAL_MAX", 3)
    async with workshop_at(tmp_path, SetClock()).open() as engine:
        one = await engine.routines.create(OWNER, wish("one"))
        with pytest.raises(Conflict, match="routine_name_taken"):
            await engine.routines.create(OWNER, wish("one"))
        await engine.routines.create(ALICE, wish("one"))
        two = await engine.routines.create(OWNER, wish("two"))
        with pytest.raises(Conflict, match="routine_name_taken"):
            await engine.routines.change(OWNER, two.id, RoutineChange(name="one"), OWNER)
        await engine.routines.create(OWNER, wish("three"))
        with pytest.raises(Conflict, match="routines_max"):
            await engine.routines.create(OWNER, wish("four"))
        await engine.routines.remove(OWNER, one.id, OWNER)
        await engine.routines.create(OWNER, wish("one"))


async def test_a_change_of_schedule_begins_anew_and_other_changes_do_not(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_at(tmp_path, clock).open() as engine:
        routine = await engine.routines.create(OWNER, wish())
        clock.forward(30)
        same = await engine.routines.change(OWNER, routine.id, RoutineChange(prompt="other"), OWNER)
        assert (same.next_at_ms, same.definition.prompt) == (START_MS + MINUTE, "other")
        moved = await engine.routines.change(OWNER, routine.id, RoutineChange(cron="0 * * * *"), OWNER)
        assert moved.next_at_ms == START_MS + 60 * MINUTE
        zone = RoutineChange(cron="0 12 * * *", timezone="Asia/Kolkata")
        zoned = await engine.routines.change(OWNER, routine.id, zone, OWNER)
        assert zoned.next_at_ms == local_ms("2027-01-16T12:00", "Asia/Kolkata")
        with pytest.raises(Invalid, match="time_past"):
            await engine.routines.change(OWNER, routine.id, RoutineChange(at="2020-01-01"), OWNER)
        assert await engine.routines.get(OWNER, routine.id) == zoned


async def test_another_may_pause_a_routine_but_not_give_it_words(tmp_path: Path) -> None:
    async with workshop_at(tmp_path, SetClock()).open() as engine:
        routine = await engine.routines.create(ALICE, wish())
        with pytest.raises(NotFound):
            await engine.routines.change(OWNER, routine.id, RoutineChange(paused=True), OWNER)
        with pytest.raises(Unauthorized, match="routine_not_own"):
            await engine.routines.change(ALICE, routine.id, RoutineChange(prompt="mine now"), OWNER)
        paused = await engine.routines.change(ALICE, routine.id, RoutineChange(paused=True), OWNER)
        assert paused.is_paused
        with pytest.raises(NotFound):
            await engine.routines.run(OWNER, routine.id)


def configured(name: str = "nightly", **fields: object) -> ConfiguredRoutine:
    definition: RoutineDefinition = make_definition(wish(name, **fields), lambda schedule: None)
    return ConfiguredRoutine(principal=OWNER, definition=definition)


async def test_routines_of_the_file_follow_the_file_and_keep_their_history(tmp_path: Path) -> None:
    clock = SetClock()
    workshop = workshop_at(tmp_path, clock)
    workshop.routines = (configured(), configured("weekly", every_s=100))
    routine_id = configured_routine_id("nightly")
    async with workshop.open() as engine:
        assert {one.id for one in await engine.routines.list(OWNER, "", 9)} == {
            routine_id, configured_routine_id("weekly"),
        }  # fmt: skip
        clock.forward(5)
        await engine.scheduler.look()
        for _ in range(11):
            clock.forward(5)
            await engine.scheduler.look()
        await settled(engine)
        with pytest.raises(Conflict, match="routine_configured"):
            await engine.routines.change(OWNER, routine_id, RoutineChange(prompt="x"), OWNER)
        with pytest.raises(Conflict, match="routine_configured"):
            await engine.routines.remove(OWNER, routine_id, OWNER)
        await engine.routines.change(OWNER, routine_id, RoutineChange(paused=True), OWNER)
    workshop.routines = (configured(prompt="other words"),)
    async with workshop.open() as engine:
        (stored,) = await engine.routines.list(OWNER, "", 9)
        assert (stored.definition.prompt, stored.is_paused, stored.next_at_ms) == (
            "other words", True, START_MS + 2 * MINUTE,
        )  # fmt: skip
        assert len(await times_of(engine, routine_id)) == 1
    workshop.routines = ()
    async with workshop.open() as engine:
        assert await engine.routines.list(None, "", 9) == ()
        assert len(await times_of(engine, routine_id)) == 1
    workshop.routines = (configured(),)
    async with workshop.open() as engine:
        (stored,) = await engine.routines.list(OWNER, "", 9)
        assert (stored.is_paused, stored.fired_count) == (False, 1)
        assert [event.type for event in await routine_events(engine)][-2:] == ["routine.removed", "routine.created"]


async def test_a_moment_of_the_file_that_has_passed_never_fires_again(tmp_path: Path) -> None:
    clock = SetClock()
    workshop = workshop_at(tmp_path, clock)
    workshop.routines = (configured(at="2027-01-15T08:00:30Z"), configured("past", at="2020-01-01T00:00:00Z"))
    for _ in range(3):
        async with workshop.open() as engine:
            await engine.scheduler.look()
            clock.forward(31)
            await settled(engine)
            assert await fired_times(engine) == [START_MS + 30_000]
            assert {one.next_at_ms for one in await engine.routines.list(OWNER, "", 9)} == {None}


async def test_a_name_of_the_file_that_is_taken_leaves_the_routine_out(tmp_path: Path) -> None:
    workshop = workshop_at(tmp_path, SetClock())
    async with workshop.open() as engine:
        await engine.routines.create(OWNER, wish("nightly"))
    workshop.routines = (configured(), configured("other"))
    async with workshop.open() as engine:
        assert [one.is_configured for one in await engine.routines.list(OWNER, "", 9)].count(True) == 1


async def test_a_secret_in_a_prompt_is_not_stored(tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + "a1B2c3D4" * 11 + "AA"
    async with workshop_at(tmp_path, SetClock()).open() as engine:
        await engine.routines.create(OWNER, wish(prompt=f"use {secret} now"))
    assert not any(secret.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


async def test_twenty_restarts_lose_and_repeat_nothing(tmp_path: Path) -> None:
    clock = SetClock()
    workshop = workshop_at(tmp_path, clock)
    async with workshop.open() as engine:
        asked = wish(every_s=10, misfire=Misfire.ALL, misfire_max=100, overlap=Overlap.QUEUE)
        routine = await engine.routines.create(OWNER, asked)
    assert first_time(routine.definition.schedule, START_MS, lambda *_: None) == START_MS + 10_000
    for number in range(20):
        clock.forward(7)
        async with workshop.open() as engine:
            await engine.scheduler.look()
            clock.forward(3)
            if number % 3:
                await engine.scheduler.look()
    async with workshop.open() as engine:
        await engine.scheduler.look()
        await engine.routines.change(OWNER, routine.id, RoutineChange(paused=True), OWNER)
        clock.forward(600)  # A job whose worker was lost waits a little.
        await settled(engine)
        expected = [START_MS + 10_000 * index for index in range(1, 21)]
        assert await fired_times(engine) == expected
        runs = await runs_of(engine)
        assert len(runs) == len({run.id for run in runs}) == 20
        keys = {time.fire.due_at_ms: time.run_id for time in await times_of(engine, routine.id)}
        assert set(keys.values()) == {run.id for run in runs}
