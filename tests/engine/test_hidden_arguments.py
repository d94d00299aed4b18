"""A call is judged by what it will really do: neither a marker nor a tool that changed meanwhile hides it from the gate."""

import asyncio
from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.adapters.tools.fs_patch import FsPatch
from palyra.core.events import Event
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import (
    ApprovalStatus,
    Decision,
    EffectClass,
    Outcome,
    ParallelClass,
    Scope,
    ToolFinished,
    ToolJudged,
    Verdict,
)
from palyra.core.tools import CallNature, Capability, MissingTool, Runtime, ToolResult, ToolSpec
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery
from palyra.ports.tools import Tool, ToolCallContext
from tests.runtimes.shells import found_sandbox, make_setup
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.engines import OWNER, Workshop
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
BEGIN, END = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"
TOKEN = "sq0idp-" + "a1b2c3d4e5f6a7b8c9d0xy"  # Of a vendor's form, and long enough to be taken for one.
HOOK = "+++ b/.git/hooks/pre-commit"


def judged(events: list[Event]) -> ToolJudged:
    return next(event.data for event in events if isinstance(event.data, ToolJudged))


async def played(workshop: Workshop) -> list[Event]:
    async with workshop.open() as engine:
        return await finished(engine, await engine.runs.start(OWNER, ask(can_ask=False)))


@pytest.mark.parametrize(
    "command",
    [
        f"echo {BEGIN}\nid > pwned; echo hello >> pwned\n{END}",
        f"echo {TOKEN};touch${{IFS}}pwned",
        f"echo {TOKEN}|tee${{IFS}}pwned",
    ],
)
async def test_command_hidden_in_a_secret_does_not_run(tmp_path: Path, command: str) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(calls("shell.run", command=command), says("Done.")))])
    workshop.tools = [*workshop.tools, ShellRun(found_sandbox(), make_setup(drafts=workshop.drafts))]
    assert judged(await played(workshop)).verdict is Verdict.DENY
    assert not (workshop.workspace / "pwned").exists()


async def test_file_hidden_in_a_patch_is_not_written(tmp_path: Path) -> None:
    patch = (
        f"--- /dev/null\n+++ b/notes.txt\n@@ -0,0 +1,1 @@\n+{BEGIN}\n--- /dev/null\n{HOOK}\n@@ -0,0 +1,1 @@\n+#{END}\n"
    )
    workshop = Workshop(tmp_path, [Script(turns=(calls("fs.patch", patch=patch), says("Done.")))])
    workshop.tools = [*workshop.tools, FsPatch()]
    assert judged(await played(workshop)).rule == "secret_hides"
    assert list(workshop.workspace.iterdir()) == []


async def test_path_behind_a_secret_is_judged_where_it_leads(tmp_path: Path) -> None:
    path = f"{TOKEN}/../.git/hooks/pre-commit"
    workshop = Workshop(tmp_path, [Script(turns=(calls("fs.write", path=path, content="x"), says("Done.")))])
    assert judged(await played(workshop)).verdict is Verdict.DENY
    assert list(workshop.workspace.iterdir()) == []


async def test_plain_secret_in_a_command_is_judged_and_used_and_never_shown(tmp_path: Path) -> None:
    """What secrets are for: the command runs with the real one, and the record has its marker everywhere."""
    workshop = Workshop(tmp_path, [Script(turns=(calls("shell.run", command=f"echo {TOKEN} | wc -c"), says("Done.")))])
    workshop.tools = [*workshop.tools, ShellRun(found_sandbox(), make_setup(drafts=workshop.drafts))]
    events = await played(workshop)
    assert (judged(events).verdict, judged(events).rule) == (Verdict.ALLOW, "draft")
    (done,) = [event.data for event in events if isinstance(event.data, ToolFinished)]
    assert (done.output or "").strip() == str(len(TOKEN) + 1)
    assert not any(TOKEN in str(event.data) for event in events)


async def test_key_may_be_written_to_a_file(tmp_path: Path) -> None:
    key = f"{BEGIN}\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n{END}\n"
    workshop = Workshop(tmp_path, [Script(turns=(calls("fs.write", path="key.pem", content=key), says("Done.")))])
    events = await played(workshop)
    assert judged(events).verdict is Verdict.ALLOW
    assert (workshop.workspace / "key.pem").read_text() == key
    assert not any("MIIEvQ" in str(event.data) for event in events)


class Foreign:
    """A tool of a source, with what it says of itself."""

    def __init__(self, words: str, effect: EffectClass, pause_s: float = 0.0) -> None:
        self.runs_count = 0
        self._pause_s = pause_s
        self._spec = ToolSpec(
            name="wasm.p.f",
            description=words,
            input_schema={"type": "object"},
            capabilities=frozenset({Capability.NETWORK}),
            effect_class=effect,
            runtime=Runtime.WASM,
            timeout_s=0.2 if pause_s else 60.0,
        )

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=self._spec.effect_class, parallel_class=ParallelClass.NEVER)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        self.runs_count += 1
        await asyncio.sleep(self._pause_s)
        return ToolResult(outcome=Outcome.OK, output="done")


class Changing:
    def __init__(self, tool: Tool) -> None:
        self.now: tuple[Tool, ...] = (tool,)

    def tools(self) -> tuple[Tool, ...]:
        return self.now

    def missing(self) -> tuple[MissingTool, ...]:
        return ()


async def test_tool_that_changed_after_the_verdict_does_not_run(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(calls("wasm.p.f", x="1"), says("Done.")))])
    source = Changing(Foreign("Counts words.", EffectClass.READ_ONLY))
    workshop.sources = [source]
    other = Foreign("Sends mail.", EffectClass.ONCE)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "run.waiting")
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        source.now = (other,)
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        events = await finished(engine, record)
    (done,) = [event.data for event in events if isinstance(event.data, ToolFinished)]
    assert done.error is not None
    assert (done.outcome, done.error.code, other.runs_count) == (Outcome.FAILED, "tool_changed", 0)


async def test_once_call_that_did_not_answer_in_time_is_not_made_again_unasked(tmp_path: Path) -> None:
    turns = (calls("wasm.p.f", x="1"), calls("wasm.p.f", x="1"), says("Done."))
    workshop = Workshop(tmp_path, [Script(turns=turns)])
    tool = Foreign("Sends mail.", EffectClass.ONCE, pause_s=30)
    workshop.sources = [Changing(tool)]
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "run.waiting")
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.SESSION))

        async def is_asked_again() -> bool:
            return "uncertain_repeat" in {one.rule for one in await engine.approvals.list(OWNER, ApprovalsQuery())}

        await until(is_asked_again)
        await engine.runs.cancel(OWNER, record.id)
        await finished(engine, record)
    assert tool.runs_count == 1
