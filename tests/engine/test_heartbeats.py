"""Heartbeats: a run has one exactly while it is in progress, it is renewed, and it tells when the run last got on."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.core.events.model import Finish
from palyra.core.events.tool import ApprovalStatus, Decision
from palyra.core.writes import Heartbeat
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery
from palyra.engine.engine import Engine
from palyra.ports.provider import Completed, Delta, ModelRequest, TextDelta
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.engines import OWNER, Workshop
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


class Moving:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at_ms = 1_000_000

    def now_ms(self) -> int:
        return self.at_ms


class Speaking:
    """A provider that says a word whenever it is told to."""

    def __init__(self) -> None:
        self.words: asyncio.Queue[str | None] = asyncio.Queue()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        while (word := await self.words.get()) is not None:
            yield TextDelta(word)
        yield Completed(Finish.STOP)


async def beats(engine: Engine) -> tuple[Heartbeat, ...]:
    return await engine._setup.views.state.stalled_heartbeats(1 << 50, 100)


async def test_renewing_tells_life_and_progress_apart(tmp_path: Path) -> None:
    provider = Speaking()
    workshop = Workshop(tmp_path, provider)
    workshop.clock = clock = Moving()
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "route.planned")
        clock.at_ms += 15_000
        await engine._parts.heartbeats.renew()
        clock.at_ms += 15_000
        await engine._parts.heartbeats.renew()
        (beat,) = await beats(engine)
        assert (beat.run_id, beat.at_ms, beat.progress_at_ms) == (record.id, 1_030_000, 1_015_000)
        provider.words.put_nowait("word")
        await until(lambda: engine._parts.hub.live_count(record.session_id), "a live word")
        clock.at_ms += 15_000
        await engine._parts.heartbeats.renew()
        (beat,) = await beats(engine)
        assert (beat.at_ms, beat.progress_at_ms) == (1_045_000, 1_045_000)
        provider.words.put_nowait(None)
        await finished(engine, record)
        assert await beats(engine) == ()


async def test_a_run_that_waits_has_none_and_gets_one_when_it_goes_on(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(calls("mark.send", text="mail"), says("Done.")))])
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "run.waiting")
        assert await beats(engine) == ()
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        seen = asyncio.create_task(wait_for(engine, record.id, "run.resumed"))
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        await seen
        await finished(engine, record)
        assert await beats(engine) == ()


async def test_a_renewal_that_comes_late_revives_no_ended_run(tmp_path: Path) -> None:
    provider = Speaking()
    async with Workshop(tmp_path, provider).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "route.planned")
        states = engine._parts.loops.running_states()
        provider.words.put_nowait("Done.")
        provider.words.put_nowait(None)
        await finished(engine, record)
        engine._parts.loops.running_states = lambda: states  # type: ignore[method-assign]
        await engine._parts.heartbeats.renew()
        assert await beats(engine) == ()


async def test_a_restart_sets_the_heartbeat_again(tmp_path: Path) -> None:
    provider = Speaking()
    workshop = Workshop(tmp_path, provider)
    workshop.clock = clock = Moving()
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "route.planned")
    clock.at_ms += 60_000
    async with workshop.open() as engine:
        await wait_for(engine, record.id, "run.resumed")
        (beat,) = await beats(engine)
        assert (beat.at_ms, beat.progress_at_ms) == (1_060_000, 1_060_000)
