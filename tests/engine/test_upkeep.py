"""What the daemon does on its own: retention, sweeping, giving space back, and checking the journal."""

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.core.errors import NotFound
from palyra.core.events import ErasedData
from palyra.core.ids import JobId, SessionId
from palyra.core.jobs.model import Job, JobState
from palyra.engine.api.jobs import JobRequest
from palyra.engine.api.requests import SessionRequest
from palyra.engine.engine import Engine
from palyra.engine.jobs.maintenance import ENDED_JOBS_KEPT_MS, BackgroundVerify
from palyra.engine.jobs.session_cleanup import SessionCleanup
from palyra.engine.jobs.upkeep import ACTOR, REGULAR_JOBS
from palyra.engine.setup import EngineSettings
from palyra.ports.jobs import JobFilter
from tests.support.asking import ask, finished, says
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.queues import SetClock
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000
SCRIPTS = [Script(turns=(says("It is done."),))]


def workshop_with(folder: Path, clock: SetClock, retention_ms: int | None = 30 * DAY_MS) -> Workshop:
    workshop = Workshop(folder, SCRIPTS, EngineSettings(retention_ms=retention_ms))
    workshop.clock = clock
    return workshop


async def perform(engine: Engine, kind: str) -> Job:
    """Runs a job of the kind now. Returns it when it is over."""
    payload = {"routine_id": "0" * 26, "due_at_ms": 1} if kind == "routine" else {}
    job_id = await engine.jobs.enqueue(JobRequest(kind=kind, principal=OWNER, payload=payload))
    assert job_id is not None
    return await ended(engine, job_id)


async def ended(engine: Engine, job_id: JobId) -> Job:
    async def is_over() -> bool:
        return (await engine.jobs.get(None, job_id)).state in (JobState.DONE, JobState.DEAD)

    await until(is_over, "the job's end")
    return await engine.jobs.get(None, job_id)


async def is_erased(engine: Engine, session_id: SessionId) -> bool:
    try:
        await engine.sessions.get(OWNER, session_id)
    except NotFound:
        return True
    return False


async def test_idle_sessions_are_erased_and_others_stay(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_with(tmp_path, clock).open() as engine:
        old = await engine.runs.start(OWNER, ask("old words"))
        await finished(engine, old)
        clock.at_ms += 29 * DAY_MS
        young = await engine.runs.start(OWNER, ask("young words"))
        await finished(engine, young)
        clock.at_ms += 2 * DAY_MS
        job = await perform(engine, "session_cleanup")
        assert job.state is JobState.DONE
        assert await is_erased(engine, old.session_id)
        assert not await is_erased(engine, young.session_id)
        events = await engine._setup.journal.read(old.session_id, 0, 100)
        assert all(isinstance(event.data, ErasedData) for event in events)


async def test_a_session_that_is_used_after_the_look_is_not_erased(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_with(tmp_path, clock).open() as engine:
        old = await engine.runs.start(OWNER, ask("old words"))
        await finished(engine, old)
        clock.at_ms += 31 * DAY_MS
        views = engine.sessions.views
        look = views.inactive_families

        async def look_and_be_late(before_ms: int, limit: int) -> tuple[tuple[SessionId, ...], ...]:
            families = await look(before_ms, limit)
            await finished(engine, await engine.runs.start(OWNER, ask("new words", session_id=old.session_id)))
            return families

        late = SimpleNamespace(inactive_families=look_and_be_late, session=views.session)
        cleanup = SessionCleanup(
            sessions=engine.sessions,
            artifacts=engine.artifacts,
            views=late,
            clock=clock,
            retention_ms=30 * DAY_MS,
            kept=engine._setup.ports.kept,
            forget=engine._setup.ports.forget,
            sweep_drafts=engine.draft_sweep.sweep,
        )
        told: list[str] = []
        assert await cleanup._erase_idle(told.append) == 0
        assert not await is_erased(engine, old.session_id)
        assert told == ["erased 0 sessions"]


async def test_a_session_lives_as_long_as_one_of_its_branches_is_used(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_with(tmp_path, clock).open() as engine:
        run = await engine.runs.start(OWNER, ask())
        await finished(engine, run)
        branch = await engine.sessions.branch(OWNER, run.session_id, 2, None)
        clock.at_ms += 29 * DAY_MS
        await finished(engine, await engine.runs.start(OWNER, ask(session_id=branch.id)))
        clock.at_ms += 2 * DAY_MS
        await perform(engine, "session_cleanup")
        assert not await is_erased(engine, run.session_id)
        clock.at_ms += 31 * DAY_MS
        await perform(engine, "session_cleanup")
        assert await is_erased(engine, run.session_id)
        assert await is_erased(engine, branch.id)


async def test_without_the_setting_nothing_is_erased(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_with(tmp_path, clock, None).open() as engine:
        run = await engine.runs.start(OWNER, ask())
        await finished(engine, run)
        clock.at_ms += 10_000 * DAY_MS
        await perform(engine, "session_cleanup")
        assert not await is_erased(engine, run.session_id)


async def test_what_tools_kept_of_erased_sessions_is_removed(tmp_path: Path) -> None:
    """A crash can come between erasing a session and removing its browser's profile."""
    forgotten: list[SessionId] = []
    workshop = workshop_with(tmp_path, SetClock())
    async with workshop.open() as engine:
        live = (await engine.sessions.resolve(OWNER, SessionRequest())).id
        gone = (await engine.sessions.resolve(OWNER, SessionRequest())).id
        await engine.sessions.delete(OWNER, gone)

    async def kept() -> tuple[SessionId, ...]:
        return (live, gone)

    async def forget(session_id: SessionId) -> None:
        forgotten.append(session_id)

    workshop.kept, workshop.forget = kept, forget
    async with workshop.open() as engine:
        await perform(engine, "session_cleanup")
    assert forgotten == [gone]


async def test_a_cleanup_that_is_stopped_anywhere_leaves_each_session_whole_or_erased(tmp_path: Path) -> None:
    """Stopped before each erasure in turn, the sessions before it are erased and those after it are as they were."""
    for stop_at in range(4):
        clock = SetClock()
        workshop = workshop_with(tmp_path / str(stop_at), clock)
        async with workshop.open() as engine:
            runs = [await engine.runs.start(OWNER, ask(f"words {n}")) for n in range(3)]
            for run in runs:
                await finished(engine, run)
        clock.at_ms += 31 * DAY_MS
        left = [stop_at]

        async def forget(session_id: SessionId, left: list[int] = left) -> None:
            if left[0] == 0:
                raise asyncio.CancelledError
            left[0] -= 1

        workshop.forget = forget
        async with workshop.open() as engine:
            await engine.jobs.enqueue(JobRequest(kind="session_cleanup", principal=OWNER))
            await until(partial(_is_used_up, left), "the cleanup")
        workshop.forget = type(workshop)(tmp_path / "other", SCRIPTS).forget
        async with workshop.open() as engine:
            for run in runs:
                events = await engine._setup.journal.read(run.session_id, 0, 100)
                assert len({isinstance(event.data, ErasedData) for event in events}) == 1
            await perform(engine, "session_cleanup")
            assert [await is_erased(engine, run.session_id) for run in runs] == [True, True, True]


def _is_used_up(left: list[int]) -> bool:
    return left[0] == 0


async def test_maintenance_empties_the_log_and_gives_space_back(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_with(tmp_path, clock).open() as engine:
        for _ in range(20):
            await finished(engine, await engine.runs.start(OWNER, ask("x" * 50_000)))
        before = await engine._setup.ports.upkeep.size()
        clock.at_ms += 31 * DAY_MS
        cleaned = await perform(engine, "session_cleanup")
        job = await perform(engine, "maintenance")
        after = await engine._setup.ports.upkeep.size()
    assert (cleaned.progress[:18], job.state) == ("erased 20 sessions", JobState.DONE)
    assert after.free_bytes == 0
    assert after.file_bytes < before.file_bytes - 500_000
    assert after.log_bytes < 200_000


async def test_maintenance_forgets_jobs_that_ended_long_ago(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_with(tmp_path, clock).open() as engine:
        first = await perform(engine, "session_cleanup")
        clock.at_ms += ENDED_JOBS_KEPT_MS + 1
        await perform(engine, "maintenance")
        with pytest.raises(NotFound):
            await engine.jobs.get(None, first.id)


async def test_maintenance_forgets_every_old_job_and_those_of_routines_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palyra.adapters.store.sqlite.job_writes.DROPPED_AT_ONCE_MAX", 2)
    clock = SetClock()
    async with workshop_with(tmp_path, clock).open() as engine:
        kept = await perform(engine, "session_cleanup")
        for _ in range(7):
            await perform(engine, "routine")
        clock.at_ms += DAY_MS + 1
        await perform(engine, "maintenance")
        assert await engine.jobs.list(None, JobFilter(kind="routine")) == ()
        assert (await engine.jobs.get(None, kept.id)).state is JobState.DONE


async def test_a_damaged_journal_makes_the_verify_dead_and_says_where() -> None:
    async def damaged() -> dict[str, object]:
        return {"ok": False, "first_bad": {"session_id": "01X", "seq": 7, "what": "hash"}}

    said: list[str] = []
    result = await BackgroundVerify(damaged).perform(None, said.append)  # type: ignore[arg-type]
    assert "'seq': 7" in str(result)
    assert "is_final=True" in str(result)


async def test_regular_jobs_are_queued_once_however_often_the_daemon_starts(tmp_path: Path) -> None:
    workshop = workshop_with(tmp_path, SetClock())
    jobs: tuple[Job, ...] = ()
    for _ in range(3):
        async with workshop.open() as engine:
            await engine.upkeep.queue_missing()
            jobs = await engine.jobs.list(ACTOR, JobFilter())
    assert sorted(job.kind for job in jobs) == sorted(regular.kind for regular in REGULAR_JOBS)
    assert {(job.state, job.attempts) for job in jobs} == {(JobState.QUEUED, 0)}


async def test_a_regular_job_comes_back_after_it_was_done(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_with(tmp_path, clock).open() as engine:
        await engine.upkeep.queue_missing()
        clock.at_ms += DAY_MS + 1
        engine._parts.jobs_queued.set()

        async def all_done() -> bool:
            done = await engine.jobs.list(ACTOR, JobFilter(state=JobState.DONE))
            return len(done) == len(REGULAR_JOBS)

        await until(all_done, "the regular jobs")
        await engine.upkeep.queue_missing()
        waiting = await engine.jobs.list(ACTOR, JobFilter(state=JobState.QUEUED))
    assert len(waiting) == len(REGULAR_JOBS)


async def test_the_next_regular_job_is_queued_after_one_that_was_begun_by_hand(tmp_path: Path) -> None:
    async with workshop_with(tmp_path, SetClock()).open() as engine:
        await engine.upkeep.queue_missing()
        (first,) = await engine.jobs.list(ACTOR, JobFilter(kind="maintenance"))
        await engine.jobs.retry(None, first.id)

        async def is_queued_again() -> bool:
            waiting = await engine.jobs.list(ACTOR, JobFilter(kind="maintenance", state=JobState.QUEUED))
            return [job.id for job in waiting] not in ([], [first.id])

        await until(is_queued_again, "the next maintenance")


async def test_a_regular_job_that_was_cancelled_is_queued_again_at_the_next_look(tmp_path: Path) -> None:
    async with workshop_with(tmp_path, SetClock()).open() as engine:
        await engine.upkeep.queue_missing()
        (first,) = await engine.jobs.list(ACTOR, JobFilter(kind="verify"))
        await engine.jobs.cancel(None, first.id)
        await engine.upkeep.queue_missing()
        waiting = await engine.jobs.list(ACTOR, JobFilter(kind="verify", state=JobState.QUEUED))
    assert len(waiting) == 1


async def test_cleanup_erases_everyones_idle_sessions(tmp_path: Path) -> None:
    clock = SetClock()
    async with workshop_with(tmp_path, clock).open() as engine:
        session = await engine.sessions.resolve(ALICE, SessionRequest())
        clock.at_ms += 31 * DAY_MS
        await perform(engine, "session_cleanup")
        with pytest.raises(NotFound):
            await engine.sessions.get(ALICE, session.id)
