"""The watchdog and jobs: long jobs are left alone; hung handlers and dead holders are found in time."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from palyra.core.healing.model import HealingMode
from palyra.core.ids import JobId, NodeId
from palyra.core.jobs.model import Job, JobKind, JobState, NewJob
from palyra.core.writes import ClaimJob, EnqueueJob
from palyra.engine.api.jobs import JobRequest
from palyra.engine.jobs import worker
from palyra.engine.jobs.handler import JobDone, JobHandler, JobResult, JobType, Report
from tests.support.engines import OWNER
from tests.support.healing import WatchedScene, watched, watched_workshop
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

AUTO, OBSERVE, DISABLED = HealingMode.AUTO, HealingMode.OBSERVE_ONLY, HealingMode.DISABLED


class Handler:
    """Waits until it is told to end, and reports progress when it is told to."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.ended = asyncio.Event()

    async def __call__(self, job: Job, report: Report) -> JobResult:
        self.reports.append(report)
        await self.ended.wait()
        return JobDone()


@pytest.fixture(autouse=True)
def still_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker itself finds lost jobs when it polls. Here it does not poll, as if it hung."""
    monkeypatch.setattr(worker, "POLL_EVERY_S", 3_600.0)


def offer(monkeypatch: pytest.MonkeyPatch, handler: JobHandler, **fields: object) -> None:
    kind = JobKind(name="sum", summary="adds", timeout_s=300.0, **fields)  # type: ignore[arg-type]
    types: Mapping[str, JobType] = {"sum": JobType(kind, handler)}
    monkeypatch.setattr("palyra.engine.services.job_types", lambda _handlers: types)


async def queued(scene: WatchedScene) -> JobId:
    job_id = await scene.engine.jobs.enqueue(JobRequest(kind="sum", principal=OWNER))
    assert job_id is not None
    return job_id


async def test_a_long_job_with_heartbeats_and_progress_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = Handler()
    offer(monkeypatch, handler)
    async with watched(watched_workshop(tmp_path, [], AUTO)) as scene:
        await queued(scene)
        await until(lambda: handler.reports, "the attempt")
        for _ in range(10):
            await scene.pass_s(300)
            handler.reports[0]("further")
        assert await scene.story() == []
        handler.ended.set()


@pytest.mark.parametrize(("mode", "attempts_count"), [(AUTO, 2), (OBSERVE, 1), (DISABLED, 1)])
async def test_a_handler_that_hangs_is_treated_by_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: HealingMode, attempts_count: int
) -> None:
    handler = Handler()
    offer(monkeypatch, handler, backoff_s=0.0)
    async with watched(watched_workshop(tmp_path, [], mode)) as scene:
        job_id = await queued(scene)
        await until(lambda: handler.reports, "the attempt")
        await scene.pass_s(360)
        assert await scene.subjects() == []
        await scene.pass_s(60)
        await until(lambda: len(handler.reports) == attempts_count, "the attempts")
        words = {AUTO: ["opened job", "stop_job_attempt begun"], OBSERVE: ["opened job"], DISABLED: []}
        assert await scene.story() == words[mode]
        await scene.pass_s(60)
        assert await scene.subjects() == ([("job", job_id)] if mode is OBSERVE else [])
        handler.ended.set()


async def test_a_handler_that_raises_until_its_job_is_dead_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(job: Job, report: Report) -> JobResult:
        raise RuntimeError("the sum of what a person said")

    offer(monkeypatch, fail, attempts_max=1)
    async with watched(watched_workshop(tmp_path, [], AUTO)) as scene:
        job_id = await queued(scene)

        async def is_dead() -> bool:
            return (await scene.engine.jobs.get(None, job_id)).state is JobState.DEAD

        await until(is_dead, "its end")
        await scene.pass_s(30)
        (record,) = await scene.engine.incidents.list(None, "", 10)
        assert (record.subject, record.severity.value, record.remedy) == (job_id, "warning", "")
        assert record.evidence.endswith("failed 1 times and is not tried again")


@pytest.mark.parametrize("mode", [AUTO, OBSERVE, DISABLED])
async def test_a_job_whose_holder_died_is_found_and_in_auto_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: HealingMode
) -> None:
    handler = Handler()
    handler.ended.set()
    offer(monkeypatch, handler)
    async with watched(watched_workshop(tmp_path, [], mode)) as scene:
        await until(lambda: "job leases" in scene.engine._parts.tasks.names, "the worker")
        now_ms, job_id = scene.clock.at_ms, scene.engine._parts.ids.job_id()
        job = NewJob(id=job_id, kind="sum", principal=OWNER, not_before_ms=now_ms + 10**9, created_at_ms=now_ms)
        await scene.engine._setup.journal.commit((), (EnqueueJob(job),))
        taken = ClaimJob(
            job_id=job_id,
            owner=NodeId("dead-node"),
            expected_token=1,
            leased_until_ms=now_ms + 60_000,
            at_ms=now_ms,
        )
        await scene.engine._setup.journal.commit((), (taken,))
        await scene.pass_s(180)
        assert await scene.subjects() == []
        await scene.pass_s(30)
        assert await scene.subjects() == ([] if mode is DISABLED else [("job", job_id)])

        async def is_done() -> bool:
            return (await scene.engine.jobs.get(None, job_id)).state is JobState.DONE

        if mode is AUTO:
            await until(is_done, "the job")
            await scene.pass_s(60)
            assert await scene.story() == ["opened job", "requeue_job begun", "resolved gone"]
        else:
            assert not await is_done()
