"""The scripted and the demo provider, through the port: streams that end, stop when closed, and need no memory."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.providers import demo
from palyra.adapters.providers.demo import LABEL, DemoProvider
from palyra.adapters.providers.prepared_turns import Chunk, PreparedCall, PreparedFailure, Turn
from palyra.adapters.providers.scripted import Script, ScriptedProvider, load_scripts
from palyra.core.context.messages import AssistantMessage, Message, PastCall, ToolMessage, UserMessage
from palyra.core.errors import Invalid, PalyraError, Unavailable
from palyra.core.events.base import JsonObject
from palyra.core.events.model import Finish, ModelError, Usage
from palyra.core.events.tool import Outcome, Verdict
from palyra.core.ids import Principal, SessionId, StreamId
from palyra.core.run.answer import AnswerCase, find_problems
from palyra.core.service_runs import SESSION_SUMMARY
from palyra.core.tools import ToolResult
from palyra.ports.policy import PolicyQuestion
from palyra.ports.provider import CallDelta, Completed, Delta, Failed, ModelRequest, Provider, ReasoningDelta, TextDelta
from tests.support.scripts import play_turns
from tests.support.tool_calls import context, make_catalog

pytestmark = pytest.mark.anyio
CATALOG = make_catalog()
TURN_COUNT_MAX = 10


def request(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(model="m", instructions="", messages=messages, tools=CATALOG.specs(), **more)


async def collect(provider: Provider, asked: ModelRequest) -> list[Delta]:
    """Every stream ends with exactly one Completed or Failed."""
    deltas = [delta async for delta in provider.stream(asked)]
    assert [isinstance(delta, Completed | Failed) for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    return deltas


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def calls_of(deltas: list[Delta]) -> list[tuple[str, JsonObject]]:
    tools: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for delta in deltas:
        if isinstance(delta, CallDelta):
            tools[delta.index] = tools.get(delta.index) or delta.tool
            arguments[delta.index] = arguments.get(delta.index, "") + delta.arguments
    return [(tools[index], msgspec.json.decode(arguments[index])) for index in sorted(tools)]


async def test_turn_is_played_as_small_deltas() -> None:
    turn = Turn(
        reasoning="Let me think.",
        text="A word or two,\n\nthen more.",
        calls=(PreparedCall("fs.read", {"path": "a.txt"}), PreparedCall("time.now")),
        usage=Usage(input_tokens=3, output_tokens=4),
        delay_ms=1,
    )
    deltas = await collect(play_turns(turn), request(UserMessage("go")))
    assert text_of(deltas) == turn.text
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == turn.reasoning
    assert calls_of(deltas) == [("fs.read", {"path": "a.txt"}), ("time.now", {})]
    assert deltas[-1] == Completed(Finish.TOOL_CALLS, Usage(input_tokens=3, output_tokens=4))
    assert max(len(delta.text) for delta in deltas if isinstance(delta, TextDelta)) < 20


async def test_failure_comes_after_the_text_before_it() -> None:
    turn = Turn(text="Half an", failure=PreparedFailure(ModelError.RATE, "slow down", 2.5))
    deltas = await collect(play_turns(turn), request(UserMessage("go")))
    assert text_of(deltas) == "Half an"
    assert deltas[-1] == Failed(ModelError.RATE, "slow down", 2.5)


async def test_arguments_that_do_not_parse_are_played_as_they_are() -> None:
    deltas = await collect(play_turns(Turn(calls=(PreparedCall("fs.read", '{"path": '),))), request(UserMessage("go")))
    assert "".join(delta.arguments for delta in deltas if isinstance(delta, CallDelta)) == '{"path": '


ANSWERED = AssistantMessage("one", (PastCall("c1", "time.now", {}),))


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((UserMessage("go"),), "one"),
        ((UserMessage("go"), ANSWERED, ToolMessage("c1", "noon")), "two"),
        ((UserMessage("go"), ANSWERED, ToolMessage("c1", "noon"), UserMessage("[palyra] Stop.")), "two"),
        ((UserMessage("go"), AssistantMessage("x"), AssistantMessage("y"), UserMessage("again")), "one"),
        ((UserMessage("go"), AssistantMessage("x"), UserMessage("What WEATHER?")), "rain"),
    ],
    ids=["first", "second", "note_of_the_daemon", "next_question", "matching_question"],
)
async def test_turn_is_chosen_by_the_conversation_alone(messages: tuple[Message, ...], expected: str) -> None:
    scripts = [Script(when="weather", turns=(Turn(text="rain"),)), Script(turns=(Turn(text="one"), Turn(text="two")))]
    for _ in range(2):
        assert text_of(await collect(ScriptedProvider(scripts), request(*messages))) == expected


async def test_question_without_a_script_and_script_played_out_are_failures() -> None:
    unmatched = await collect(ScriptedProvider([Script(when="tea", turns=())]), request(UserMessage("coffee")))
    played_out = await collect(play_turns(Turn(text="x")), request(UserMessage("go"), AssistantMessage("x")))
    for deltas in (unmatched, played_out):
        assert isinstance(deltas[-1], Failed)
        assert deltas[-1].code is ModelError.BAD_REQUEST


async def test_closing_the_stream_stops_it() -> None:
    slow = play_turns(Turn(chunks=(Chunk("first "), Chunk("never", delay_ms=60_000)))).stream(
        request(UserMessage("go"))
    )
    assert await anext(slow) == TextDelta("first ")
    async with asyncio.timeout(30):  # Half of the delay.
        await slow.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(slow)


async def test_cancelling_the_reader_stops_it() -> None:
    task = asyncio.create_task(
        collect(play_turns(Turn(chunks=(Chunk("never", delay_ms=60_000),))), request(UserMessage("go")))
    )
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_stream_without_delays_lets_others_work() -> None:
    seen: list[int] = []

    async def other() -> None:
        for number in range(50):
            seen.append(number)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await collect(play_turns(Turn(text="word " * 400)), request(UserMessage("go")))
    assert len(seen) > 10
    await task


TOML = """
[[scripts]]
when = "time"
[[scripts.turns]]
text = "I look."
delay_ms = 1
calls = [{ tool = "time.now", arguments = { timezone = "UTC" } }]
[[scripts.turns]]
chunks = [{ text = "It is " }, { text = "noon.", delay_ms = 1 }]
usage = { input_tokens = 10, output_tokens = 5 }
[[scripts]]
[[scripts.turns]]
failure = { code = "overloaded", message = "busy", retry_after_s = 0.5 }
"""


async def test_script_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "script.toml"
    path.write_text(TOML)
    provider = ScriptedProvider(load_scripts(path))
    assert calls_of(await collect(provider, request(UserMessage("what time?")))) == [("time.now", {"timezone": "UTC"})]
    later = await collect(provider, request(UserMessage("what time?"), ANSWERED, ToolMessage("c1", "noon")))
    assert text_of(later) == "It is noon."
    assert (await collect(provider, request(UserMessage("else"))))[-1] == Failed(ModelError.OVERLOADED, "busy", 0.5)
    as_json = tmp_path / "script.json"
    as_json.write_bytes(msgspec.json.encode({"scripts": msgspec.to_builtins(load_scripts(path))}))
    assert load_scripts(as_json) == load_scripts(path)


def test_example_in_the_documentation_can_be_played(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "providers.md").read_text(encoding="utf-8")
    (tmp_path / "example.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    scripts = load_scripts(tmp_path / "example.toml")
    assert [len(script.turns) for script in scripts] == [2, 1]
    keys = {line.split("`")[1] for line in page.splitlines() if re.match(r"\| `[a-z_]+` ", line)}
    assert keys == set(Turn.__struct_fields__)


@pytest.mark.parametrize(
    "text", ["", "[[scripts]]", "[[scripts]]\nturn = []", "scripts = 1", "[[", "[[scripts]]\nturns = [{delay_ms = -1}]"]
)
def test_broken_file_is_invalid_and_says_where(tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.toml").write_text(text)
    with pytest.raises(Invalid) as caught:
        load_scripts(tmp_path / "broken.toml")
    assert "broken.toml" in caught.value.message


def test_absent_file_and_broken_pattern_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        load_scripts(tmp_path / "absent.toml")
    with pytest.raises(PalyraError):
        ScriptedProvider([Script(when="(", turns=())])


# The demo guide.


class Rehearsal:
    """A run of the demo with the real tools and the real policy; a person answers every question the same way."""

    def __init__(self, root: Path, *, allows: bool) -> None:
        self.root = root
        self.allows = allows
        self.verdicts: list[tuple[str, Verdict]] = []
        self.messages: list[Message] = []
        self.outcomes: dict[str, set[Outcome]] = {}

    async def run(self, text: str) -> str:
        self.messages.append(UserMessage(text))
        for _ in range(TURN_COUNT_MAX):
            # A new provider each time: it may remember nothing.
            deltas = await collect(DemoProvider(0, 0), request(*self.messages))
            assert isinstance(deltas[-1], Completed)
            calls = calls_of(deltas)
            ids = [f"c{len(self.messages)}_{index}" for index in range(len(calls))]
            past = tuple(PastCall(one, tool, arguments) for one, (tool, arguments) in zip(ids, calls, strict=True))
            self.messages.append(AssistantMessage(text_of(deltas), past))
            if not calls:
                return text_of(deltas)
            self.messages += [await self._call(call) for call in past]
        raise AssertionError("the guide never came to an end")

    async def _call(self, call: PastCall) -> ToolMessage:
        tool = CATALOG.find(call.tool)
        assert tool is not None
        assert isinstance(call.arguments, dict)
        question = PolicyQuestion(
            principal=Principal("user:alice"),
            agent="main",
            session_id=SessionId(StreamId("01JZ0000000000000000SESS01")),
            spec=tool.spec,
            arguments=call.arguments,
            nature=tool.nature(call.arguments, (str(self.root),)),
            taint=(),
        )
        verdict = CedarPolicy().judge(question).verdict
        self.verdicts.append((call.tool, verdict))
        if verdict is Verdict.DENY or (verdict is Verdict.ASK and not self.allows):
            self.outcomes.setdefault(call.tool, set()).add(Outcome.DENIED)
            return ToolMessage(call.call_id, "denied: approval_denied: A person said no.", is_error=True)
        return self._told(call, await tool.execute(call.arguments, context(self.root)))

    def _told(self, call: PastCall, result: ToolResult) -> ToolMessage:
        self.outcomes.setdefault(call.tool, set()).add(result.outcome)
        if result.error is not None:
            return ToolMessage(call.call_id, f"failed: {result.error.code}: {result.error.message}", is_error=True)
        return ToolMessage(call.call_id, result.output)


async def test_tour_calls_real_tools_and_asks_once(tmp_path: Path) -> None:
    rehearsal = Rehearsal(tmp_path, allows=True)
    answer = await rehearsal.run("Please give me the tour!")
    assert rehearsal.verdicts == [
        ("time.now", Verdict.ALLOW),
        ("fs.write", Verdict.ALLOW),
        ("fs.read", Verdict.ALLOW),
        ("fs.write", Verdict.ASK),
    ]
    assert "Hello from Palyra" in (tmp_path / demo.NOTE_PATH).read_text()
    assert (tmp_path / demo.HOOK_PATH).exists()
    assert "2025-06-15" in str(rehearsal.messages)
    assert "It was allowed" in answer


@pytest.mark.parametrize("allows", [True, False])
async def test_approval_tells_what_became_of_the_answer(tmp_path: Path, allows: bool) -> None:
    rehearsal = Rehearsal(tmp_path, allows=allows)
    answer = await rehearsal.run("approval")
    assert rehearsal.verdicts == [("fs.write", Verdict.ASK)]
    assert (tmp_path / demo.HOOK_PATH).exists() is allows
    assert ("nothing was written" in answer) is not allows


async def test_failing_tool_is_shown_as_failed(tmp_path: Path) -> None:
    assert "not_found" in await Rehearsal(tmp_path, allows=True).run("fail")


@pytest.mark.parametrize("text", ["tour", "approval", "fail", "help", "slow", "hello there", "", "Write me a poem"])
@pytest.mark.parametrize("allows", [True, False])
async def test_every_answer_is_labelled_names_what_to_try_and_stands_as_an_answer(
    tmp_path: Path, text: str, allows: bool
) -> None:
    rehearsal = Rehearsal(tmp_path, allows=allows)
    answer = await rehearsal.run(text)
    assert answer.startswith(LABEL)
    assert "Try " in answer
    outcomes = {tool: frozenset(found) for tool, found in rehearsal.outcomes.items()}
    assert (
        find_problems(AnswerCase(text=answer, finish=Finish.STOP, schema_errors=(), must_call=(), outcomes=outcomes))
        == ()
    )
    first = next(message for message in rehearsal.messages if isinstance(message, AssistantMessage))
    assert first.text.startswith(LABEL)


async def test_several_scenes_follow_each_other_in_one_session(tmp_path: Path) -> None:
    rehearsal = Rehearsal(tmp_path, allows=True)
    for text in ("hi", "tour", "fail", "tour"):
        assert (await rehearsal.run(text)).startswith(LABEL)


async def test_tool_the_agent_may_not_use_is_not_called() -> None:
    bare = ModelRequest(model="m", instructions="", messages=(UserMessage("tour"),))
    deltas = await collect(DemoProvider(0, 0), bare)
    assert calls_of(deltas) == []
    assert "fs.write" in text_of(deltas)


async def test_demo_cannot_answer_to_a_schema_and_says_so() -> None:
    deltas = await collect(DemoProvider(0, 0), request(UserMessage("tour"), answer_schema={"type": "object"}))
    assert isinstance(deltas[-1], Failed)
    assert "Configure a provider" in deltas[-1].message


async def test_demo_cannot_summarize_for_the_daemon_and_says_so() -> None:
    asked = replace(request(UserMessage("Summarize.")), instructions=SESSION_SUMMARY.instructions)
    deltas = await collect(DemoProvider(0, 0), asked)
    assert isinstance(deltas[-1], Failed)
    assert "Configure a provider" in deltas[-1].message


async def test_slow_answer_is_slow_and_stops_when_closed() -> None:
    stream = DemoProvider(0, 60_000).stream(request(UserMessage("slow please")))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(stream)
    await stream.aclose()
