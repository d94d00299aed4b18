"""The example of the documentation: built from its source, right about any text, and judged, asked about and run by an engine."""

import asyncio
import importlib.util
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.adapters.providers.scripted import Script
from palyra.adapters.runtimes.wasm.source import PluginTools
from palyra.app import Home
from palyra.app.plugins import install, look_at, plugin_tools
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import (
    ApprovalStatus,
    Decision,
    EffectClass,
    Outcome,
    Scope,
    ToolFinished,
    ToolJudged,
    Verdict,
)
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery
from palyra.ports.tools import Tool
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.engines import OWNER, Workshop
from tests.support.policies import with_policies
from tests.support.tool_calls import code_of, execute

FOLDER = Path(__file__).parents[2] / "examples" / "plugins" / "textstats"
SPACES = frozenset(" \t\n\r\f")  # White space as JSON escapes it; others are letters to this plugin.
FREE = '@id("stats") permit (principal, action == Action::"call", resource == Tool::"wasm.textstats.count");'


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginTools]:
    home = Home(tmp_path_factory.mktemp("home"))
    install(home, look_at(FOLDER), is_replacing=False)
    source = plugin_tools(home)
    yield source
    source.close()


def counted(text: str) -> dict[str, int]:
    words = "".join(" " if letter in SPACES else "x" for letter in text).split()
    lines = text.count("\n") + (1 if text and not text.endswith("\n") else 0)
    return {"words": len(words), "lines": lines, "characters": len(text)}


def build() -> bytes:
    spec = importlib.util.spec_from_file_location("build", FOLDER / "build.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    body: bytes = made.build()
    return body


def test_committed_module_is_what_its_source_gives() -> None:
    assert build() == (FOLDER / "textstats.wasm").read_bytes()


def test_rust_and_text_forms_have_one_version() -> None:
    manifest = tomllib.loads((FOLDER / "plugin.toml").read_text())
    assert tomllib.loads((FOLDER / "rust" / "Cargo.toml").read_text())["package"]["version"] == manifest["version"]


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(' \n\t\r\f\\"/ä'), max_size=200))
def test_example_counts_any_text(plugins: PluginTools, text: str) -> None:
    (tool,) = plugins.tools()
    result = asyncio.run(execute(tool, {"text": text}))
    assert (result.outcome, json.loads(result.output)) == (Outcome.OK, counted(text))


@pytest.mark.anyio
@pytest.mark.parametrize("arguments", [{}, {"words": ""}, {"text": 1}, {"text": "", "more": 1}])
async def test_example_refuses_other_arguments_in_its_own_words(plugins: PluginTools, arguments: JsonObject) -> None:
    (tool,) = plugins.tools()
    result = await execute(tool, arguments)
    assert (code_of(result), result.output) == ("plugin_refused", 'give the arguments as {"text": "…"}')


@pytest.mark.anyio
async def test_run_asks_before_a_plugin_and_tells_its_answer_as_from_outside(
    plugins: PluginTools, tmp_path: Path
) -> None:
    workshop = workshop_with(plugins, tmp_path)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "run.waiting")
        (card,) = await engine.approvals.list(OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING))
        assert (card.tool, card.rule) == ("wasm.textstats.count", "foreign_tool")
        await engine.approvals.answer(OWNER, card.id, ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.ONCE))
        events = await finished(engine, record)
    (done,) = [event.data for event in events if isinstance(event.data, ToolFinished)]
    assert (done.outcome, done.output) == (Outcome.OK, '{"words":2,"lines":1,"characters":11}')
    assert done.source == "wasm:textstats"
    assert done.attestation is not None
    assert (done.attestation.runtime, done.attestation.sandbox) == ("wasm", "wasmtime")
    assert events[-1].type == "run.done"


@pytest.mark.anyio
async def test_policy_of_the_operator_lets_it_run_freely(plugins: PluginTools, tmp_path: Path) -> None:
    workshop = workshop_with(plugins, tmp_path)
    workshop.policy = with_policies(FREE)
    async with workshop.open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask()))
    (judged,) = [event.data for event in events if isinstance(event.data, ToolJudged)]
    assert (judged.verdict, judged.effect_class) == (Verdict.ALLOW, EffectClass.READ_ONLY)
    assert [event.data.outcome for event in events if isinstance(event.data, ToolFinished)] == [Outcome.OK]


def workshop_with(plugins: PluginTools, root: Path) -> Workshop:
    workshop = Workshop(root, [Script(turns=(calls("wasm.textstats.count", text="hello world"), says("Two.")))])
    tools: tuple[Tool, ...] = plugins.tools()
    workshop.tools = [*workshop.tools, *tools]
    return workshop
