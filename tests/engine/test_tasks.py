"""The task supervisor: what lasts begins again after a bug, and everything ends with the daemon."""

import asyncio

import pytest

from palyra.core.errors import Unavailable
from palyra.engine import tasks as module
from palyra.engine.tasks import TaskSupervisor
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


async def test_lasting_work_that_fails_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_AFTER_S", 0.01)
    supervisor = TaskSupervisor()
    failures: list[Exception] = [ZeroDivisionError(), Unavailable("journal_busy", "the journal is busy")]
    is_working = asyncio.Event()

    async def work() -> None:
        if failures:
            raise failures.pop()
        is_working.set()
        await asyncio.Event().wait()

    supervisor.keep(work, "work")
    await until(is_working.is_set)
    assert supervisor.names == {"work"}
    await supervisor.close()
    assert not supervisor.names


async def test_failures_that_follow_soon_are_further_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_AFTER_S", 0.05)
    supervisor, loop = TaskSupervisor(), asyncio.get_running_loop()
    begins_s: list[float] = []

    async def work() -> None:
        begins_s.append(loop.time())
        raise ZeroDivisionError

    supervisor.keep(work, "work")
    await until(lambda: len(begins_s) == 4)
    await supervisor.close()
    assert begins_s[3] - begins_s[2] >= 0.2


async def test_work_that_ends_by_itself_is_not_begun_again() -> None:
    supervisor = TaskSupervisor()
    count = 0

    async def work() -> None:
        nonlocal count
        count += 1

    await supervisor.keep(work, "work")
    assert count == 1
