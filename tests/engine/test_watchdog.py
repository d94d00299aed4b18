"""The watchdog and runs: what is healthy raises nothing, what is stuck is found in time and treated by mode."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.providers.scripted import Script
from palyra.core.events.model import Finish
from palyra.core.events.run import RunCancelled
from palyra.core.events.system import IncidentOpened, IncidentResolved
from palyra.core.events.tool import ApprovalStatus, Decision, ToolFinished
from palyra.core.healing.model import HealingDomain, HealingMode, IncidentStatus, Severity
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery, RunRecord
from palyra.engine.healing.remedies import Remedies
from palyra.engine.session import effect_runner
from palyra.engine.session.objective_check import review_ids
from palyra.engine.setup import EngineSettings
from palyra.ports.provider import Completed, Delta, ModelRequest, TextDelta
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.engines import OWNER, MarkTool
from tests.support.healing import (
    AnsweringProvider,
    HangingProvider,
    WatchedScene,
    watched,
    watched_workshop,
)
from tests.support.reviewing import Author
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

AUTO, OBSERVE, DISABLED = HealingMode.AUTO, HealingMode.OBSERVE_ONLY, HealingMode.DISABLED
FOUND_S = 120 + 30 + 15  # The limit, one cycle, and the heartbeat that noticed the last progress.


class Speaking:
    """Says a word whenever it is told to."""

    def __init__(self) -> None:
        self.words: asyncio.Queue[str | None] = asyncio.Queue()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        while (word := await self.words.get()) is not None:
            yield TextDelta(word)
        yield Completed(Finish.STOP)


async def started(scene: WatchedScene, type_name: str = "model.requested") -> RunRecord:
    record = await scene.engine.runs.start(OWNER, ask())
    await wait_for(scene.engine, record.id, type_name)
    return record


def has_words(scene: WatchedScene, record: RunRecord, count: int) -> bool:
    return scene.engine._parts.hub.live_count(record.session_id) >= count


async def test_a_healthy_run_of_ten_minutes_raises_nothing(tmp_path: Path) -> None:
    provider = Speaking()
    async with watched(watched_workshop(tmp_path, provider, AUTO)) as scene:
        record = await started(scene)
        for n in range(10):
            await scene.pass_s(60)
            provider.words.put_nowait(f"word{n} ")
            await until(partial(has_words, scene, record, n + 1), "a live word")
        provider.words.put_nowait(None)
        events = await finished(scene.engine, record)
        assert events[-1].type == "run.done"
        assert await scene.story() == []


async def test_a_run_that_waits_a_day_for_a_person_is_not_stuck(tmp_path: Path) -> None:
    script = [Script(turns=(calls("mark.send", text="mail"), says("Sent.")))]
    workshop = watched_workshop(tmp_path, script, AUTO)
    workshop.settings = EngineSettings(approval_timeout_ms=2 * 86_400_000)
    async with watched(workshop) as scene:
        record = await started(scene, "run.waiting")
        await scene.pass_s(86_400, step_s=600)
        # Upkeep runs in real time, so a busy machine may let a step of ten minutes pass during one of its jobs.
        (row,) = [row for row in await scene.incidents(None) if row.domain is not HealingDomain.JOB]
        assert (row.domain.value, row.severity, row.acted_count) == ("approval", Severity.NOTICE, 0)
        await scene.engine.runs.cancel(OWNER, record.id)
        await finished(scene.engine, record)
        await scene.pass_s(60)
        told = [event.data for event in await scene.tape() if event.data.incident_id == row.id]  # type: ignore[union-attr]
        assert [type(data) for data in told] == [IncidentOpened, IncidentResolved]


async def test_a_review_that_hangs_is_stuck_and_the_run_that_waits_for_it_is_not(tmp_path: Path) -> None:
    author = Author("By the almanac.", reviews=([True],))
    author.go_on.clear()
    async with watched(watched_workshop(tmp_path, author, OBSERVE)) as scene:
        record = await scene.engine.runs.start(OWNER, ask(objectives=("It names its source.",)))
        await until(lambda: author.reviewed, "the review")
        await scene.pass_s(FOUND_S + 60)
        runs = [subject for domain, subject in await scene.subjects() if domain == "run"]
        assert runs == [review_ids(record.id, 1)[1]]
        author.go_on.set()


async def test_a_quiet_tool_within_its_own_time_is_not_stuck(tmp_path: Path) -> None:
    script = [Script(turns=(calls("slow.read", text="a"), says("Done.")))]
    workshop = watched_workshop(tmp_path, script, AUTO)
    tool, released = MarkTool("slow.read", workshop.tools[-3].spec.effect_class, workshop.marks), asyncio.Event()
    execute = tool.execute

    async def wait(*arguments: object) -> object:
        await released.wait()
        return await execute(*arguments)  # type: ignore[arg-type]

    tool.execute = wait  # type: ignore[method-assign, assignment]
    tool._spec = replace(tool._spec, timeout_s=600.0)
    workshop.tools = [tool]
    async with watched(workshop) as scene:
        record = await started(scene, "tool.started")
        await scene.pass_s(600)
        assert await scene.story() == []
        await scene.pass_s(120)
        assert await scene.subjects() == [("run", record.id)]
        events = await finished(scene.engine, record)
        (outcome,) = [event.data for event in events if isinstance(event.data, ToolFinished)]
        assert outcome.error is not None
        assert outcome.error.code == "stuck"
        assert events[-1].type == "run.done"
        released.set()


@pytest.mark.parametrize("mode", [OBSERVE, DISABLED])
async def test_a_hanging_provider_is_only_reported_or_not_even_looked_at(tmp_path: Path, mode: HealingMode) -> None:
    provider = HangingProvider()
    async with watched(watched_workshop(tmp_path, provider, mode)) as scene:
        record = await started(scene)
        await scene.pass_s(120)
        assert await scene.subjects() == []
        await scene.pass_s(FOUND_S - 120)
        expected = [("provider", "scripted:call"), ("run", record.id)] if mode is OBSERVE else []
        assert await scene.subjects() == expected
        await scene.pass_s(600)
        assert provider.calls_count == 1
        assert await scene.story() == ["opened provider", "opened run"][: len(expected)]


async def test_in_auto_a_hanging_model_is_left_alone_and_the_run_goes_on_with_another(tmp_path: Path) -> None:
    hanging = HangingProvider()
    workshop = watched_workshop(tmp_path, hanging, AUTO)
    workshop.providers = {"slow": hanging, "quick": AnsweringProvider()}
    workshop.route = ("slow", "quick")
    async with watched(workshop) as scene:
        record = await started(scene)
        await scene.pass_s(FOUND_S)
        events = await finished(scene.engine, record)
        assert events[-1].type == "run.done"
        assert hanging.calls_count == 1
        await scene.pass_s(60)
        story = await scene.story()
        assert story[:4] == ["opened provider", "open_breaker begun", "opened run", "redrive_run begun"]
        assert "resolved gone" in story
        assert ("run", record.id) not in await scene.subjects()


async def test_what_hangs_again_is_cancelled_with_a_reason_and_never_in_a_loop(tmp_path: Path) -> None:
    provider = HangingProvider()
    async with watched(watched_workshop(tmp_path, provider, AUTO, provider=OBSERVE)) as scene:
        record = await started(scene)
        await scene.pass_s(FOUND_S)
        assert "redrive_run begun" in await scene.story()
        await until(lambda: provider.calls_count == 2, "a second call")
        await scene.pass_s(FOUND_S + 30)
        events = await finished(scene.engine, record)
        assert isinstance(events[-1].data, RunCancelled)
        assert "watchdog" in events[-1].data.message
        await scene.pass_s(600)
        acts = [word for word in await scene.story() if word.endswith("begun")]
        assert acts == ["redrive_run begun", "cancel_run begun"]
        assert await scene.subjects() == []


async def test_a_call_that_does_not_even_end_when_cancelled_holds_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effect_runner, "STOP_WAIT_S", 0.01)
    stubborn = HangingProvider(is_stubborn=True)
    workshop = watched_workshop(tmp_path, stubborn, AUTO)
    workshop.providers = {"slow": stubborn, "quick": AnsweringProvider()}
    workshop.route = ("slow", "quick")
    async with watched(workshop) as scene:
        record = await started(scene)
        await scene.pass_s(FOUND_S)
        assert (await finished(scene.engine, record))[-1].type == "run.done"
        stubborn.released.set()


async def test_a_once_call_that_is_given_up_is_uncertain_and_not_repeated(tmp_path: Path) -> None:
    """It may have taken effect (L2)."""
    script = [Script(turns=(calls("mark.send", text="mail"), says("Sent.")))]
    workshop = watched_workshop(tmp_path, script, AUTO)
    tool = next(tool for tool in workshop.tools if tool.spec.name == "mark.send")
    begun, released, sends_count = asyncio.Event(), asyncio.Event(), 0

    async def hang(*_: object) -> object:
        nonlocal sends_count
        sends_count += 1
        begun.set()
        await released.wait()
        raise AssertionError

    tool.execute = hang  # type: ignore[method-assign, assignment]
    async with watched(workshop) as scene:
        record = await started(scene, "run.waiting")
        (card,) = await scene.engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        await scene.engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        await begun.wait()
        await scene.pass_s(tool.spec.timeout_s + FOUND_S)
        events = await finished(scene.engine, record)
        assert "tool.uncertain" in [event.type for event in events]
        assert sends_count == 1


async def test_a_run_whose_process_is_gone_is_resumed(tmp_path: Path) -> None:
    """Its heartbeat is there, and nobody renews it."""
    provider = HangingProvider()
    async with watched(watched_workshop(tmp_path, provider, AUTO, provider=OBSERVE)) as scene:
        record = await started(scene)
        scene.engine._parts.loops.drop(record.session_id)
        await scene.pass_s(FOUND_S)
        assert "redrive_run begun" in await scene.story()
        await until(lambda: provider.calls_count == 2, "the call of the resumed run")


async def test_a_jump_of_the_clock_takes_no_run_for_stuck(tmp_path: Path) -> None:
    provider = Speaking()
    async with watched(watched_workshop(tmp_path, provider, AUTO)) as scene:
        await started(scene)
        await scene.pass_s(60)
        scene.clock.jump(7_200)
        await scene.pass_s(60)
        assert await scene.subjects() == [("clock", "clock")]
        await scene.pass_s(60)
        assert await scene.story() == ["opened clock", "resolved gone"]


async def test_incidents_survive_a_restart_with_their_count(tmp_path: Path) -> None:
    provider = HangingProvider()
    workshop = watched_workshop(tmp_path, provider, AUTO, provider=OBSERVE)
    async with watched(workshop) as scene:
        record = await started(scene)
        await scene.pass_s(FOUND_S)
        before = [row for row in await scene.incidents(None) if row.subject == record.id]
    async with watched(workshop) as scene:
        assert [row for row in await scene.incidents(None) if row.subject == record.id] == before
        await wait_for(scene.engine, record.id, "run.resumed")
        await scene.pass_s(2 * FOUND_S)
        assert [word for word in await scene.story() if word.endswith("begun")] == [
            "redrive_run begun",
            "cancel_run begun",
        ]
        assert (await finished(scene.engine, record))[-1].type == "run.cancelled"


async def test_an_end_between_a_record_and_its_action_is_told_and_not_repeated_at_once(tmp_path: Path) -> None:
    provider = HangingProvider()
    workshop = watched_workshop(tmp_path, provider, AUTO, provider=OBSERVE)
    async with watched(workshop) as scene:
        record = await started(scene)
        begun = asyncio.Event()

        async def never(*_: object) -> str:
            begun.set()
            await asyncio.Event().wait()
            return ""

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Remedies, "apply", never)
            passing = asyncio.create_task(scene.pass_s(FOUND_S))
            await begun.wait()
            passing.cancel()
        assert (await scene.story())[-1] == "redrive_run begun"
    async with watched(workshop) as scene:
        (row,) = [row for row in await scene.incidents(None) if row.subject == record.id]
        assert (row.acted_count, row.status) == (1, IncidentStatus.OPEN)
        await wait_for(scene.engine, record.id, "run.resumed")
        await scene.pass_s(60)
        assert (await scene.story())[-1] == "resolved gone"
