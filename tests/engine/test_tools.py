"""What the engine does around tools: missing ones, those that come and go, bodies they make, processes, the network."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.providers.prepared_turns import PreparedCall, Turn
from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.adapters.tools.fs_patch import FsPatch
from palyra.core.context.messages import ToolMessage
from palyra.core.events import Event
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Decision, EffectClass, Outcome, ParallelClass, ToolFinished, ToolJudged, Verdict
from palyra.core.ids import RunId, SessionId
from palyra.core.tools import CallNature, Capability, Made, MissingTool, Runtime, ToolResult, ToolSpec
from palyra.core.trust import Trust
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery
from palyra.engine.engine import Engine
from palyra.ports.policy import PolicyAnswer, PolicyQuestion
from palyra.ports.processes import NoProcesses
from palyra.ports.provider import Delta, ModelRequest
from palyra.ports.tools import Tool, ToolCallContext
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.engines import OWNER, Workshop
from tests.support.policies import with_policies
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
OPEN = '@id("net") permit (principal, action == Action::"reach_network", resource == Tool::"shell.try");'
PERMIT_ALL = '@id("all") permit (principal, action, resource);'


class Trying:
    """Notes the context it is run in, and gives what it is told to give."""

    def __init__(self, name: str, runtime: Runtime = Runtime.INTERNAL, result: ToolResult | None = None) -> None:
        self.contexts: list[ToolCallContext] = []
        self.effect = EffectClass.READ_ONLY
        self._result = result or ToolResult(outcome=Outcome.OK, output="tried")
        self._spec = ToolSpec(
            name=name,
            description="A try.",
            input_schema={"type": "object"},
            capabilities=frozenset({Capability.PROCESS_EXEC} if runtime is Runtime.SHELL else set()),
            effect_class=EffectClass.READ_ONLY,
            parallel_class=ParallelClass.READ_ONLY_SAFE,
            output_trust=Trust.LOCAL,
            runtime=runtime,
        )

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        is_shell = self._spec.runtime is Runtime.SHELL
        return CallNature(
            effect_class=EffectClass.DRAFTED if is_shell else self.effect,
            parallel_class=ParallelClass.READ_ONLY_SAFE,
            wants_network=is_shell,
        )

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        self.contexts.append(context)
        return self._result


class Passing:
    """A source whose tools the test changes."""

    def __init__(self) -> None:
        self.now: tuple[Tool, ...] = ()
        self.gone: tuple[MissingTool, ...] = ()

    def tools(self) -> tuple[Tool, ...]:
        return self.now

    def missing(self) -> tuple[MissingTool, ...]:
        return self.gone


class Noting(NoProcesses):
    def __init__(self) -> None:
        self.ended: list[RunId] = []

    async def end_run(self, run_id: RunId) -> None:
        self.ended.append(run_id)


async def verdict(engine: Engine) -> ToolJudged:
    events = await finished(engine, await engine.runs.start(OWNER, ask()))
    return next(event.data for event in events if isinstance(event.data, ToolJudged))


async def test_missing_tool_is_refused_with_the_reason(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(calls("shell.run", command="ls"), says("No shell.")))])
    workshop.missing = [MissingTool("shell.run", "there is no bwrap; install bubblewrap.")]
    async with workshop.open() as engine:
        judged = await verdict(engine)
    assert (judged.verdict, judged.rule) == (Verdict.DENY, "tool_unavailable")
    assert "install bubblewrap" in judged.reason


async def test_tools_of_a_source_come_and_go(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(calls("mcp.a.b"), says("Tried.")))])
    source = Passing()
    workshop.sources = [source]
    async with workshop.open() as engine:
        assert (await verdict(engine)).rule == "unknown_tool"
        source.now = (Trying("mcp.a.b"),)
        assert (await verdict(engine)).verdict is Verdict.ALLOW
        source.now, source.gone = (), (MissingTool("mcp.a.b", "the server a is down."),)
        assert (await verdict(engine)).rule == "tool_unavailable"


async def test_source_cannot_take_a_name_that_is_there(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [])
    theirs = Trying("time.now")
    source = Passing()
    source.now = (theirs, Trying("time__now"))
    workshop.sources = [source]
    async with workshop.open() as engine:
        names = [spec.name for spec in engine.status.tools()]
    assert names.count("time.now") == 1
    assert "time__now" not in names


async def test_bodies_a_call_makes_are_artifacts_of_the_session(tmp_path: Path) -> None:
    picture = Made(name="page.png", media_type="image/png", body=b"\x89PNG" + b"x" * 20_000)
    workshop = Workshop(tmp_path, [Script(turns=(calls("look.at"), says("Seen.")))])
    result = ToolResult(outcome=Outcome.OK, output="Here it is.", made=(picture,))
    workshop.tools = [*workshop.tools, Trying("look.at", result=result)]
    async with workshop.open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask()))
        (done,) = [event.data for event in events if isinstance(event.data, ToolFinished)]
        (made,) = done.made
        record, body = await engine.artifacts.get(OWNER, made.artifact_id)  # type: ignore[arg-type]
    assert (made.name, made.media_type, made.bytes) == ("page.png", "image/png", len(picture.body))
    assert (record.media_type, body) == ("image/png", picture.body)
    assert done.output is not None
    assert made.artifact_id in done.output


@pytest.mark.parametrize(("policies", "has_network"), [("", False), (PERMIT_ALL, False), (OPEN, True)])
async def test_only_a_policy_that_names_it_opens_the_network_of_a_sandbox(
    tmp_path: Path, policies: str, has_network: bool
) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(calls("shell.try"), says("Tried.")))])
    tool = Trying("shell.try", Runtime.SHELL)
    workshop.tools = [*workshop.tools, tool]
    workshop.policy = with_policies(policies)
    async with workshop.open() as engine:
        judged = await verdict(engine)
    assert judged.has_network is has_network
    assert [context.has_network for context in tool.contexts] == [has_network]


async def test_forbidding_it_keeps_the_network_closed(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(calls("shell.try"), says("Tried.")))])
    workshop.tools = [*workshop.tools, Trying("shell.try", Runtime.SHELL)]
    workshop.policy = with_policies(
        OPEN + '@id("never") forbid (principal, action == Action::"reach_network", resource);'
    )
    async with workshop.open() as engine:
        assert not (await verdict(engine)).has_network


async def test_processes_end_with_their_run_however_it_ends(tmp_path: Path) -> None:
    workshop = Workshop(
        tmp_path,
        [Script(when="wait", turns=(calls("mark.send", text="m"), says("Sent."))), Script(turns=(says("Hi."),))],
    )
    noting = workshop.processes = Noting()
    async with workshop.open() as engine:
        done = await engine.runs.start(OWNER, ask())
        await finished(engine, done)
        waiting = await engine.runs.start(OWNER, ask("wait"))
        await wait_for(engine, waiting.id, "run.waiting")
        assert noting.ended == [done.id]
        await engine.runs.cancel(OWNER, waiting.id)
        await finished(engine, waiting)
        await until(lambda: len(noting.ended) >= 2)
    assert noting.ended == [done.id, waiting.id]


class Reading:
    """Reads that can only end when as many as are expected run side by side."""

    def __init__(self, together: int) -> None:
        self._together = together
        self.running = self.most = 0
        self._all_here = asyncio.Event()
        self._spec = Trying("read.slowly").spec

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=EffectClass.READ_ONLY, parallel_class=ParallelClass.READ_ONLY_SAFE)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        self.running += 1
        self.most = max(self.most, self.running)
        if self.running == self._together:
            self._all_here.set()
        await self._all_here.wait()
        await asyncio.sleep(0.01 * (4 - int(str(arguments["n"])) % 4))  # The last of a group is the first to be done.
        self.running -= 1
        return ToolResult(outcome=Outcome.OK, output=str(arguments["n"]))


class Listening(ScriptedProvider):
    """Keeps what the model is sent."""

    def __init__(self, scripts: list[Script]) -> None:
        super().__init__(scripts)
        self.requests: list[ModelRequest] = []

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        return super().stream(request)


async def test_four_reads_run_side_by_side_and_come_home_in_order(tmp_path: Path) -> None:
    many = Turn(calls=tuple(PreparedCall("read.slowly", {"n": number}) for number in range(10)))
    listening = Listening([Script(turns=(many, says("Read.")))])
    workshop = Workshop(tmp_path, listening)
    reading = Reading(together=4)
    workshop.tools = [*workshop.tools, reading]
    async with workshop.open() as engine:
        events: list[Event] = await finished(engine, await engine.runs.start(OWNER, ask()))
    assert reading.most == 4
    done = [event.data.output for event in events if isinstance(event.data, ToolFinished)]
    wanted = [str(number) for number in range(10)]
    assert done != wanted, "nothing overtook anything, so this shows nothing"
    told = [message.text for message in listening.requests[-1].messages if isinstance(message, ToolMessage)]
    assert told == wanted


async def test_once_call_whose_outcome_its_tool_cannot_tell_is_uncertain(tmp_path: Path) -> None:
    """Not failed, for it may have happened; a person is asked, and the same call again asks too."""
    unknown = ToolResult(outcome=Outcome.FAILED, output="gone", is_unknown=True)
    workshop = Workshop(tmp_path, [Script(turns=(calls("wire.money"), says("Nobody knows.")))])
    sending = Trying("wire.money", result=unknown)
    sending.effect = EffectClass.ONCE
    workshop.tools = [*workshop.tools, sending]
    workshop.policy = with_policies(PERMIT_ALL)
    async with workshop.open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask()))
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery())
    types = [event.type for event in events if event.type.startswith("tool.")]
    assert types == ["tool.proposed", "tool.judged", "tool.started", "tool.uncertain"]
    assert (card.kind, card.status) == ("uncertain", "pending")
    assert len(sending.contexts) == 1


async def test_once_call_that_is_cancelled_midway_is_uncertain(tmp_path: Path) -> None:
    """What was asked of somebody else may take effect all the same. So the same call again asks, whatever permits it."""

    class Holding(Trying):
        async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
            self.contexts.append(context)
            await asyncio.Event().wait()
            raise AssertionError

    workshop = Workshop(tmp_path, [Script(turns=(calls("wire.money"), says("Wired.")))])
    sending = Holding("wire.money", Runtime.MCP)
    sending.effect = EffectClass.ONCE
    workshop.tools = [*workshop.tools, sending]
    workshop.policy = with_policies(PERMIT_ALL)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "tool.started")
        await engine.runs.cancel(OWNER, record.id)
        events = await finished(engine, record)
        again = await engine.runs.start(OWNER, ask(session_id=record.session_id))
        await wait_for(engine, again.id, "run.waiting")
    types = [event.type for event in events if event.type.startswith(("tool.", "run.c"))]
    assert types == ["tool.proposed", "tool.judged", "tool.started", "tool.uncertain", "run.cancelled"]
    assert len(sending.contexts) == 1


async def test_patch_of_a_tainted_file_leaves_a_tainted_file(tmp_path: Path) -> None:
    turns = (calls("taint.it"), calls("fs.write", path="a.txt", content="one\ntwo\n"), says("Kept."))
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-one\n+1\n two\n"
    mend = (calls("fs.patch", patch=patch), says("Mended."))
    look = (calls("fs.read", path="a.txt"), says("Read."))
    scripts = [Script(when="mend", turns=mend), Script(when="look", turns=look), Script(turns=turns)]
    workshop = Workshop(tmp_path, scripts)
    outside = ToolResult(outcome=Outcome.OK, output="from elsewhere", trust=Trust.EXTERNAL, source="http:a.example")
    workshop.tools = [*workshop.tools, Trying("taint.it", result=outside), FsPatch()]
    async with workshop.open() as engine:
        await finished(engine, await engine.runs.start(OWNER, ask()))
        await finished(engine, await engine.runs.start(OWNER, ask("mend")))
        events = await finished(engine, await engine.runs.start(OWNER, ask("look")))
    (read,) = [event for event in events if isinstance(event.data, ToolFinished)]
    assert read.trust is Trust.EXTERNAL


class LeavingServer(CedarPolicy):
    """The server restarts right after its call was judged for the answer."""

    def __init__(self, source: Passing) -> None:
        super().__init__()
        self._source = source
        self.is_leaving = False

    def judge(self, question: PolicyQuestion) -> PolicyAnswer:
        if self.is_leaving:
            self._source.now, self._source.gone = (), (MissingTool("mcp.a.*", "the server a is starting."),)
        return super().judge(question)


async def test_call_waits_for_a_server_that_starts_again(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(calls("mcp.a.b"), says("Tried.")))])
    source = Passing()
    source.now = (Trying("mcp.a.b", Runtime.MCP),)
    workshop.sources = [source]
    workshop.policy = policy = LeavingServer(source)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "run.waiting")
        policy.is_leaving = True
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery())
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        await wait_for(engine, record.id, "tool.started")
        source.now, source.gone = (Trying("mcp.a.b", Runtime.MCP),), ()
        events = await finished(engine, record)
    assert [event.data.outcome for event in events if isinstance(event.data, ToolFinished)] == [Outcome.OK]


async def test_waiting_for_a_server_can_be_cancelled(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(calls("mcp.a.b"), says("Tried.")))])
    source = Passing()
    source.now = (Trying("mcp.a.b", Runtime.MCP),)
    workshop.sources = [source]
    workshop.policy = policy = LeavingServer(source)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "run.waiting")
        policy.is_leaving = True
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery())
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW))
        await wait_for(engine, record.id, "tool.started")
        await engine.runs.cancel(OWNER, record.id)
        events = await finished(engine, record)
    assert [event.data.outcome for event in events if isinstance(event.data, ToolFinished)] == [Outcome.CANCELLED]


async def test_what_tools_keep_of_a_session_goes_with_it(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [Script(turns=(says("Hi."),))])
    forgotten: list[str] = []

    async def forget(session_id: SessionId) -> None:
        forgotten.append(session_id)

    workshop.forget = forget
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await finished(engine, record)
        await engine.sessions.delete(OWNER, record.session_id)
    assert forgotten == [record.session_id]
