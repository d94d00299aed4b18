"""Pruning: old results are shortened in what is sent, stay readable, and the tape keeps them whole."""

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.adapters.tools.artifact_read import ArtifactRead
from palyra.adapters.tools.past_results import JournalResults
from palyra.core.compaction.model import CompactionSettings
from palyra.core.context.messages import AssistantMessage, ToolMessage
from palyra.core.events.base import JsonObject
from palyra.core.events.model import ContextAssembled
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, ToolFinished
from palyra.core.tools import CallNature, ToolResult, ToolSpec
from palyra.core.trust import Trust
from palyra.engine.setup import EngineSettings
from palyra.ports.provider import Delta, ModelRequest
from palyra.ports.router import ModelCard
from palyra.ports.tools import ToolCallContext
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop

pytestmark = pytest.mark.anyio

EXCHANGES_COUNT = 12


class Recording:
    def __init__(self, scripts: list[Script]) -> None:
        self.requests: list[ModelRequest] = []
        self._provider = ScriptedProvider(scripts)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        async for delta in self._provider.stream(request):
            yield delta


class LongRead:
    """Returns two thousand characters that begin with its argument."""

    spec = ToolSpec(
        name="long.read",
        description="reads",
        input_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        effect_class=EffectClass.READ_ONLY,
        parallel_class=ParallelClass.READ_ONLY_SAFE,
        output_trust=Trust.EXTERNAL,
    )

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=EffectClass.READ_ONLY, parallel_class=ParallelClass.READ_ONLY_SAFE)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        lines = "\n".join(f"{arguments['name']} line {number} of many" for number in range(90))
        return ToolResult(outcome=Outcome.OK, output=lines)


def workshop_at(folder: Path, scripts: list[Script]) -> tuple[Workshop, Recording]:
    provider = Recording(scripts)
    compaction = CompactionSettings(is_automatic=False)
    workshop = Workshop(folder, provider, EngineSettings(compaction=compaction))
    workshop.tools = [LongRead()]
    workshop.journal_tools = lambda journal, artifacts: [
        ArtifactRead(artifacts, journal.state, JournalResults(journal, journal.sessions, journal.runs))
    ]
    workshop.describe = lambda name: ModelCard(
        name=name, provider="p", kind="scripted", id=name, window_tokens=12_000, max_output_tokens=500
    )
    return workshop, provider


def reads(name: str) -> Script:
    return Script(when=f"^read {name}$", turns=(calls("long.read", name=name), says(f"{name} was read.")))


async def fill(workshop: Workshop) -> str:
    session_id = None
    async with workshop.open() as engine:
        for number in range(EXCHANGES_COUNT):
            request = ask(f"read n{number}") if session_id is None else ask(f"read n{number}", session_id=session_id)
            run = await engine.runs.start(OWNER, request)
            session_id = run.session_id
            events = await finished(engine, run)
            assert events[-1].type == "run.done"
    assert session_id is not None
    return session_id


SCRIPTS = [reads(f"n{number}") for number in range(EXCHANGES_COUNT)]


async def test_old_results_are_shortened_in_steps_and_pairs_stay_valid(tmp_path: Path) -> None:
    workshop, provider = workshop_at(tmp_path, SCRIPTS)
    await fill(workshop)
    last = provider.requests[-1]
    results = [message for message in last.messages if isinstance(message, ToolMessage)]
    asked = [
        call.call_id
        for message in last.messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    ]
    assert [result.call_id for result in results] == asked
    short = [result for result in results if "shortened; read them again" in result.text]
    assert 0 < len(short) < len(results)
    assert short == results[: len(short)]
    assert "line 89" in results[-1].text


async def test_between_two_steps_the_beginning_stays_the_same(tmp_path: Path) -> None:
    workshop, provider = workshop_at(tmp_path, SCRIPTS)
    await fill(workshop)
    changes = 0
    for one, other in zip(provider.requests, provider.requests[1:], strict=False):
        same = other.messages[: len(one.messages)] == one.messages
        changes += not same
    assert 1 <= changes <= 4


async def test_the_tape_keeps_results_whole_and_the_record_says_what_was_left_out(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, SCRIPTS)
    session_id = await fill(workshop)
    async with workshop.open() as engine:
        events = await engine._setup.journal.read(session_id, 0, 1_000)  # type: ignore[arg-type]
    outputs = [event.data.output for event in events if isinstance(event.data, ToolFinished)]
    assert all("line 89" in (output or "") for output in outputs)
    contexts = [event.data for event in events if isinstance(event.data, ContextAssembled)]
    words = [layer.dropped for layer in contexts[-1].layers if layer.dropped]
    assert words
    assert all(context.input_tokens <= context.budget_tokens for context in contexts)


async def test_a_shortened_result_can_be_read_again_with_its_trust(tmp_path: Path) -> None:
    turns: list[Turn] = []
    workshop, provider = workshop_at(tmp_path, SCRIPTS)
    session_id = await fill(workshop)
    short = next(
        message for message in provider.requests[-1].messages
        if isinstance(message, ToolMessage) and "shortened" in message.text
    )  # fmt: skip
    found = re.search(r"artifact\.read, id (\S+?)\]", short.text)
    assert found is not None
    turns = [calls("artifact.read", id=found.group(1)), says("Read again.")]
    again, _ = workshop_at(tmp_path, [Script(turns=tuple(turns))])
    async with again.open() as engine:
        run = await engine.runs.start(OWNER, ask("again", session_id=session_id))
        events = await finished(engine, run)
    (result,) = [event for event in events if isinstance(event.data, ToolFinished)]
    assert isinstance(result.data, ToolFinished)
    assert "n0 line 89 of many" in (result.data.output or "")
    assert result.trust is Trust.EXTERNAL


async def test_a_call_of_another_session_is_not_there(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, SCRIPTS)
    await fill(workshop)
    other, _ = workshop_at(tmp_path, [Script(turns=(calls("artifact.read", id="c1_ABCDEFGH"), says("None.")))])
    async with other.open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask("x")))
    (result,) = [event.data for event in events if isinstance(event.data, ToolFinished)]
    assert result.error is not None
    assert result.error.code == "artifact_unknown"
