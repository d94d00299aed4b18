"""The worker of the background queue: leases, retries, limits, and what a lost or hanging job comes to."""

import asyncio
from pathlib import Path

import pytest

from palyra.core.errors import Conflict, Invalid, NotFound, Unavailable
from palyra.core.ids import NodeId, Principal
from palyra.core.jobs.model import PAYLOAD_BYTES_MAX, Job, JobState
from palyra.core.writes import ClaimJob, DropJobs, EndJob, TakeLease
from palyra.engine.api.jobs import JobRequest
from palyra.engine.jobs import worker as worker_module
from palyra.engine.jobs.handler import JobDone, JobFailed, JobPostponed, JobResult, Report
from palyra.ports.jobs import JobFilter
from tests.support.queues import OWNER, SetClock, job_type, open_queue, succeed
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

ALICE = Principal("user:alice")
OTHER_NODE = NodeId("another-node")


async def test_a_job_is_done_soon_after_it_was_queued(tmp_path: Path) -> None:
    async with open_queue(tmp_path, [job_type("test")]) as queue:
        done = await queue.ended(await queue.add("test"), JobState.DONE)
    assert (done.attempts, done.error) == (1, None)


async def test_only_the_end_of_a_regular_job_wakes_those_who_queue_the_next(tmp_path: Path) -> None:
    async with open_queue(tmp_path, [job_type("test"), job_type("nightly")]) as queue:
        queue.worker.regular = frozenset({"nightly"})
        await queue.ended(await queue.add("test"), JobState.DONE)
        await until(lambda: not queue.worker.running)
        assert not queue.worker.ended.is_set()
        await queue.ended(await queue.add("nightly"), JobState.DONE)
        await until(queue.worker.ended.is_set)


async def test_an_effect_that_commits_with_the_job_is_there_exactly_when_the_job_is_done(tmp_path: Path) -> None:
    async def lease(job: Job, report: Report) -> JobResult:
        return JobDone(writes=(TakeLease(f"effect:{job.id}", OTHER_NODE, 0, 1),))

    async with open_queue(tmp_path, [job_type("test", lease)]) as queue:
        job_id = await queue.add("test")
        await queue.ended(job_id, JobState.DONE)
        assert await queue.journal.state.lease(f"effect:{job_id}") is not None


async def test_an_effect_that_is_refused_leaves_the_job_to_be_tried_again(tmp_path: Path) -> None:
    async def stale(job: Job, report: Report) -> JobResult:
        return JobDone(writes=(TakeLease("taken", OTHER_NODE, 7, 1),))

    async with open_queue(tmp_path, [job_type("test", stale, attempts_max=1)]) as queue:
        dead = await queue.ended(await queue.add("test"), JobState.DEAD)
    assert str(dead.error).startswith("lease_lost")


async def test_a_handler_that_raises_is_tried_again_and_then_dead_with_its_error(tmp_path: Path) -> None:
    seen: list[int] = []

    async def fail(job: Job, report: Report) -> JobResult:
        seen.append(job.attempts)
        raise ValueError("the password is hunter2")

    async with open_queue(tmp_path, [job_type("test", fail, attempts_max=3, backoff_s=0.01)]) as queue:
        dead = await queue.ended(await queue.add("test"), JobState.DEAD)
    assert seen == [1, 2, 3]
    assert dead.error == "ValueError: the password is ‹secret›"


async def test_a_final_failure_is_not_tried_again(tmp_path: Path) -> None:
    async def refuse(job: Job, report: Report) -> JobResult:
        return JobFailed(message="nobody there", is_final=True)

    async with open_queue(tmp_path, [job_type("test", refuse)]) as queue:
        dead = await queue.ended(await queue.add("test"), JobState.DEAD)
    assert (dead.attempts, dead.error) == (1, "nobody there")


async def test_a_handler_that_hangs_is_stopped_at_its_time_limit(tmp_path: Path) -> None:
    async def hang(job: Job, report: Report) -> JobResult:
        await asyncio.Event().wait()
        return JobDone()

    async with open_queue(tmp_path, [job_type("test", hang, attempts_max=1, timeout_s=0.05)]) as queue:
        dead = await queue.ended(await queue.add("test"), JobState.DEAD)
    assert dead.error == "it took longer than 0 s"


async def test_a_handler_that_ignores_being_stopped_holds_up_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "STOP_WAIT_S", 0.05)
    release = asyncio.Event()

    async def ignore(job: Job, report: Report) -> JobResult:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return JobDone(writes=(TakeLease("too-late", OTHER_NODE, 0, 1),))

    types = [job_type("bad", ignore, attempts_max=1, timeout_s=0.05, at_once_max=1), job_type("good")]
    async with open_queue(tmp_path, types) as queue:
        await queue.ended(await queue.add("bad"), JobState.DEAD)
        await queue.ended(await queue.add("good"), JobState.DONE)
        release.set()
        await until(lambda: len(queue.tasks.names) <= 2)
        assert await queue.journal.state.lease("too-late") is None


async def test_a_postponed_job_comes_back_without_a_counted_attempt(tmp_path: Path) -> None:
    async def later(job: Job, report: Report) -> JobResult:
        return JobPostponed(until_ms=0) if job.token < 6 else JobDone()

    async with open_queue(tmp_path, [job_type("test", later, attempts_max=1)]) as queue:
        done = await queue.ended(await queue.add("test"), JobState.DONE)
    assert done.attempts == 1


async def test_no_job_begins_while_the_daemon_drains(tmp_path: Path) -> None:
    async with open_queue(tmp_path, [job_type("test")]) as queue:
        queue.worker.is_draining = True
        job_id = await queue.add("test")
        await queue.worker._step()
        waiting = await queue.journal.jobs.job(job_id)
        assert waiting is not None
        assert (waiting.state, waiting.attempts) == (JobState.QUEUED, 0)


async def test_no_more_jobs_of_a_kind_run_than_it_allows(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def wait(job: Job, report: Report) -> JobResult:
        await release.wait()
        return JobDone()

    types = [job_type("test", wait, at_once_max=3)]
    async with open_queue(tmp_path, types, is_working=False) as queue:
        added = [await queue.add("test") for _ in range(5)]
        for _ in range(3):
            await queue.worker._step()
            assert len(queue.worker.running) == 3
        release.set()
        await until(lambda: not queue.worker.running, "the first three")
        await queue.worker._step()
        for job_id in added:
            await queue.ended(job_id, JobState.DONE)


async def test_a_job_waits_for_its_time(tmp_path: Path) -> None:
    clock = SetClock()
    async with open_queue(tmp_path, [job_type("test")], clock, is_working=False) as queue:
        job_id = await queue.add("test", delay_ms=60_000)
        await queue.worker._step()
        assert (await queue.job(job_id)).state is JobState.QUEUED
        clock.at_ms += 60_000
        await queue.worker._step()
        await queue.ended(job_id, JobState.DONE)


async def test_a_job_that_could_not_begin_in_time_expires(tmp_path: Path) -> None:
    clock = SetClock()
    async with open_queue(tmp_path, [job_type("test")], clock, is_working=False) as queue:
        job_id = await queue.add("test", ttl_ms=1_000)
        clock.at_ms += 1_000
        await queue.worker._step()
        assert (await queue.job(job_id)).state is JobState.EXPIRED


async def test_an_equal_job_is_queued_once_while_the_first_is_live(tmp_path: Path) -> None:
    async with open_queue(tmp_path, [job_type("test")], is_working=False) as queue:
        await queue.add("test", dedupe_key="one")
        assert await queue.jobs.enqueue(JobRequest(kind="test", principal=ALICE, dedupe_key="one")) is None
        await queue.worker._step()
        await until(lambda: not queue.worker.running)
        assert await queue.jobs.enqueue(JobRequest(kind="test", principal=ALICE, dedupe_key="one")) is not None


async def test_a_job_may_queue_its_own_successor(tmp_path: Path) -> None:
    async with open_queue(tmp_path, [job_type("test")], is_working=False) as queue:

        async def again(job: Job, report: Report) -> JobResult:
            request = JobRequest(kind="next", principal=OWNER, dedupe_key="chain", delay_ms=60_000)
            return JobDone(writes=(queue.jobs.prepare(request),))

        queue.worker.types["next"] = job_type("next", again)  # type: ignore[index]
        first = await queue.add("next", dedupe_key="chain")
        await queue.worker._step()
        await queue.ended(first, JobState.DONE)
        waiting = await queue.jobs.list(None, JobFilter(kind="next", state=JobState.QUEUED))
        assert len(waiting) == 1


async def test_what_an_earlier_process_of_the_node_had_begun_starts_again_at_once(tmp_path: Path) -> None:
    async def hang(job: Job, report: Report) -> JobResult:
        await asyncio.Event().wait()
        return JobDone()

    async with open_queue(tmp_path, [job_type("test", hang)]) as queue:
        job_id = await queue.add("test")
        await queue.ended(job_id, JobState.RUNNING)
    async with open_queue(tmp_path, [job_type("test")]) as queue:
        done = await queue.ended(job_id, JobState.DONE)
    assert (done.attempts, done.losses) == (1, 1)


async def test_a_lease_that_ended_gives_the_job_to_the_next_worker(tmp_path: Path) -> None:
    clock = SetClock()
    async with open_queue(tmp_path, [job_type("test")], clock, is_working=False) as queue:
        job_id = await queue.add("test")
        job = await queue.job(job_id)
        until_ms = clock.at_ms + 60_000
        claim = ClaimJob(
            job_id=job_id, owner=OTHER_NODE, expected_token=job.token, leased_until_ms=until_ms, at_ms=clock.at_ms
        )
        await queue.journal.commit((), (claim,))
        await queue.worker._step()
        assert (await queue.job(job_id)).owner == OTHER_NODE
        clock.at_ms += 60_001
        await queue.worker._step()
        await queue.ended(job_id, JobState.DONE)
        late = EndJob(job_id=job_id, token=job.token + 1, state=JobState.DEAD, error="late", at_ms=clock.at_ms)
        with pytest.raises(Conflict, match="lease job:"):
            await queue.journal.commit((), (late,))


async def test_a_running_job_keeps_its_lease_and_shows_its_progress(tmp_path: Path) -> None:
    clock = SetClock()
    release = asyncio.Event()

    async def work(job: Job, report: Report) -> JobResult:
        report("3 of 9 with hunter2")
        await release.wait()
        return JobDone()

    async with open_queue(tmp_path, [job_type("test", work)], clock, is_working=False) as queue:
        job_id = await queue.add("test")
        await queue.worker._step()
        await until(lambda: queue.worker.running[0].progress)
        clock.at_ms += 30_000
        await queue.worker.renew()
        job = await queue.job(job_id)
        assert (job.progress, job.leased_until_ms) == ("3 of 9 with ‹secret›", clock.at_ms + 60_000)
        release.set()
        await queue.ended(job_id, JobState.DONE)


async def test_a_cancelled_job_stops_and_its_handler_can_record_nothing(tmp_path: Path) -> None:
    began = asyncio.Event()

    async def hang(job: Job, report: Report) -> JobResult:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            report("stopped")
        return JobDone()

    async with open_queue(tmp_path, [job_type("test", hang)]) as queue:
        job_id = await queue.add("test")
        await began.wait()
        assert (await queue.jobs.cancel(OWNER, job_id)).state is JobState.CANCELLED
        await until(lambda: not queue.worker.running)
        assert (await queue.job(job_id)).state is JobState.CANCELLED
        with pytest.raises(Conflict, match="already"):
            await queue.jobs.cancel(OWNER, job_id)


async def test_a_dead_job_can_be_tried_again_by_hand(tmp_path: Path) -> None:
    is_fixed = False

    async def fail_at_first(job: Job, report: Report) -> JobResult:
        return JobDone() if is_fixed else JobFailed(message="no", is_final=True)

    async with open_queue(tmp_path, [job_type("test", fail_at_first)]) as queue:
        job_id = await queue.add("test")
        await queue.ended(job_id, JobState.DEAD)
        is_fixed = True
        assert (await queue.jobs.retry(OWNER, job_id)).attempts == 0
        await queue.ended(job_id, JobState.DONE)
        with pytest.raises(Conflict, match="is done"):
            await queue.jobs.retry(OWNER, job_id)


async def test_nobody_sees_or_changes_anothers_jobs(tmp_path: Path) -> None:
    async with open_queue(tmp_path, [job_type("test")], is_working=False) as queue:
        job_id = await queue.add("test", ALICE)
        assert await queue.jobs.list(OWNER, JobFilter()) == ()
        for act in (queue.jobs.get, queue.jobs.cancel, queue.jobs.retry):
            with pytest.raises(NotFound):
                await act(OWNER, job_id)


async def test_bad_jobs_are_refused_with_the_limit(tmp_path: Path) -> None:
    async with open_queue(tmp_path, [job_type("test", succeed, queued_max=20)], is_working=False) as queue:
        with pytest.raises(Invalid, match="no kind"):
            await queue.add("unknown")
        with pytest.raises(Invalid, match=str(PAYLOAD_BYTES_MAX)):
            await queue.add("test", payload={"text": "x" * PAYLOAD_BYTES_MAX})
        for number in range(20):
            await queue.add("test", Principal(f"user:{number // 2}"))
            if number % 2:
                with pytest.raises(Unavailable, match=f"2 test jobs of user:{number // 2} wait|20 test jobs wait"):
                    await queue.add("test", Principal(f"user:{number // 2}"))
        with pytest.raises(Unavailable, match="20 test jobs wait"):
            await queue.add("test")


async def test_a_due_job_is_found_however_many_principals_wait_for_later(tmp_path: Path) -> None:
    clock = SetClock()
    async with open_queue(tmp_path, [job_type("test")], clock, is_working=False) as queue:
        for number in range(70):
            await queue.add("test", Principal(f"user:a{number:03}"), delay_ms=10**8)
        last = await queue.add("test", Principal("user:z"))
        views = queue.journal.jobs
        assert [job.id for job in await views.due_jobs({"test": 4}, clock.at_ms)] == [last]
        await queue.worker._step()
        await queue.ended(last, JobState.DONE)


async def test_of_too_many_principals_those_that_waited_longest_come_first(tmp_path: Path) -> None:
    clock = SetClock()
    async with open_queue(tmp_path, [job_type("test")], clock, is_working=False) as queue:
        for number in reversed(range(70)):
            await queue.add("test", Principal(f"user:{number:03}"), delay_ms=70 - number)
        found = await queue.journal.jobs.due_jobs({"test": 1}, clock.at_ms + 100)
        assert {job.principal for job in found} == {f"user:{number:03}" for number in range(6, 70)}


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        ("SELECT 1 FROM jobs INDEXED BY jobs_queued WHERE state = 'queued' AND kind = ? LIMIT 9", "jobs_queued"),
        ("SELECT * FROM jobs WHERE state = 'dead' AND (? = '' OR id < '') ORDER BY id DESC LIMIT 9", "jobs_dead"),
        (
            "SELECT id FROM jobs WHERE state NOT IN ('queued', 'running') AND updated_at_ms < ? ORDER BY updated_at_ms",
            "jobs_ended",
        ),
        (
            "SELECT * FROM jobs WHERE principal = ? AND (NULL IS NULL OR state = '') ORDER BY id DESC LIMIT 9",
            "jobs_by_principal",
        ),
    ],
)
async def test_what_is_asked_often_reads_no_ended_jobs(tmp_path: Path, sql: str, index: str) -> None:
    async with open_queue(tmp_path, [job_type("test")], is_working=False) as queue:
        plan = await queue.journal._writer.perform(
            lambda recorder: recorder.connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("x",)).fetchall()
        )
        assert index in str(plan)
        assert "TEMP B-TREE" not in str(plan)


async def test_old_ended_jobs_are_forgotten_and_live_ones_stay(tmp_path: Path) -> None:
    clock = SetClock()
    async with open_queue(tmp_path, [job_type("test")], clock, is_working=False) as queue:
        done, kept = await queue.add("test"), await queue.add("test", delay_ms=1)
        await queue.worker._step()
        await queue.ended(done, JobState.DONE)
        assert await queue.jobs.list(None, JobFilter(ended_before_ms=clock.at_ms)) == ()
        assert [job.id for job in await queue.jobs.list(None, JobFilter(ended_before_ms=clock.at_ms + 1))] == [done]
        await queue.journal.commit((), (DropJobs(clock.at_ms + 1, "other"),))
        assert len(await queue.jobs.list(None, JobFilter())) == 2
        await queue.journal.commit((), (DropJobs(clock.at_ms + 1, "test"),))
        assert [job.id for job in await queue.jobs.list(None, JobFilter())] == [kept]
