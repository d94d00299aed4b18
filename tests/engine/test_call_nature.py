"""A tool that fails when it is asked what a call would do: the call is refused, and the run goes on."""

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.providers.scripted import Script
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ToolFinished, ToolJudged, Verdict
from palyra.core.tools import CallNature, Capability, ToolResult, ToolSpec
from palyra.engine.api.policy_explainer import ExplainRequest
from palyra.ports.tools import ToolCallContext
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, MarkTool, Workshop

pytestmark = pytest.mark.anyio


class Unsaying(MarkTool):
    """Raises when it is asked for the nature of a call, from the asking of that number on."""

    def __init__(self, marks: Path, error: Exception, from_asking: int = 0) -> None:
        super().__init__("mark.read", EffectClass.READ_ONLY, marks)
        self._error = error
        self._left = from_asking

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        self._left -= 1
        if self._left < 0:
            raise self._error
        return super().nature(arguments, workspace)


class Hanging(Unsaying):
    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        raise TimeoutError


class Looking(MarkTool):
    """Looks at files when it is asked, and notes whether the event loop waits for that."""

    def __init__(self, marks: Path) -> None:
        super().__init__("mark.read", EffectClass.READ_ONLY, marks)
        self.held_the_loop: list[bool] = []

    @property
    def spec(self) -> ToolSpec:
        return replace(super().spec, capabilities=frozenset({Capability.FS_WRITE}))

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        self.held_the_loop.append(threading.current_thread() is threading.main_thread())
        return super().nature(arguments, workspace)


def workshop_with(root: Path, tool: MarkTool) -> Workshop:
    made = Workshop(root, [Script(turns=(calls("mark.read", text="x"), says("I went on.")))])
    made.tools = [tool]
    return made


@pytest.mark.parametrize("error", [OverflowError("date"), RecursionError(), KeyError("a"), PalyraError("a", "b")])
async def test_call_whose_nature_cannot_be_told_is_denied_and_the_run_goes_on(tmp_path: Path, error: Exception) -> None:
    made = workshop_with(tmp_path, Unsaying(tmp_path / "marks", error))
    async with made.open() as engine:
        run = await engine.runs.start(OWNER, ask())
        events = await finished(engine, run)
        (judged,) = [event.data for event in events if isinstance(event.data, ToolJudged)]
        assert (judged.verdict, judged.rule) == (Verdict.DENY, "tool_error")
        assert (await engine.runs.get(OWNER, run.id)).answer == "I went on."
        told = await engine.explaining.explain(OWNER, ExplainRequest(tool="mark.read", arguments={"text": "x"}))
        assert (told.verdict, told.rule) == (Verdict.DENY, "tool_error")
    assert made.executed() == []


async def test_nature_that_fails_only_after_the_call_began_loses_no_outcome(tmp_path: Path) -> None:
    made = workshop_with(tmp_path, Hanging(tmp_path / "marks", OSError("gone"), from_asking=1))
    async with made.open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask()))
        (done,) = [event.data for event in events if isinstance(event.data, ToolFinished)]
        assert done.outcome is Outcome.TIMEOUT


async def test_tool_that_looks_at_files_is_asked_beside_the_loop(tmp_path: Path) -> None:
    looking = Looking(tmp_path / "marks")
    async with workshop_with(tmp_path, looking).open() as engine:
        await finished(engine, await engine.runs.start(OWNER, ask()))
        await engine.explaining.explain(OWNER, ExplainRequest(tool="mark.read", arguments={"text": "x"}))
    assert looking.held_the_loop
    assert not any(looking.held_the_loop)
