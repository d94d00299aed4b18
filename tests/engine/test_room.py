"""Contexts that outgrow a small window: the session goes on, whatever filled it."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.providers.scripted import Script
from palyra.core.context.messages import ToolMessage
from palyra.core.events import Event
from palyra.core.events.model import ContextAssembled
from palyra.engine.engine import Engine
from palyra.ports.router import ModelCard
from tests.engine.test_pruning import LongRead, Recording, workshop_at
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop

pytestmark = pytest.mark.anyio

PASTE = "The quick brown fox jumps over the lazy dog. " * 200  # About 2,000 tokens.


def small(folder: Path, scripts: list[Script], window_tokens: int = 6_000) -> tuple[Workshop, Recording]:
    workshop, provider = workshop_at(folder, scripts)
    workshop.describe = lambda name: ModelCard(
        name=name, provider="p", kind="scripted", id=name, window_tokens=window_tokens, max_output_tokens=500
    )
    return workshop, provider


async def say(engine: Engine, text: str) -> list[Event]:
    run = await engine.runs.start(OWNER, ask(text, session_key="s"))
    return await finished(engine, run)


async def test_a_few_long_messages_do_not_end_a_session(tmp_path: Path) -> None:
    workshop, provider = small(tmp_path, [Script(turns=(says("Noted."),))])
    async with workshop.open() as engine:
        first = await say(engine, f"Never mention foxes to Anna. {PASTE}")
        ends = [first[-1].type]
        for number in range(5):
            events = await say(engine, f"Part {number}: {PASTE}")
            ends.append(events[-1].type)
    assert ends == ["run.done"] * 6
    sent = "\n".join(message.text for message in provider.requests[-1].messages)
    assert "Never mention foxes to Anna." in sent
    assert "Part 4" in sent


class DescribedAtLength(LongRead):
    """Its description takes as many tokens as those of all built-in tools together."""

    spec = replace(LongRead.spec, description="Reads one of many long texts. " * 400)


async def test_facts_and_decisions_give_way_to_a_long_message_and_rules_do_not(tmp_path: Path) -> None:
    answer = "Noted. " + "It depends on many things. " * 8
    workshop, provider = small(tmp_path, [Script(turns=(says(answer),))], 8_000)
    workshop.tools = [DescribedAtLength()]
    rules = [f"Never restart the server Amber{number} by hand." for number in range(25)]
    async with workshop.open() as engine:
        for number, rule in enumerate(rules):
            await say(engine, f"{rule} We decided to host Cedar{number} in Oslo. Its serial number is {number}-4711.")
        events = await say(engine, PASTE[: len(PASTE) * 7 // 8])
        sent = "\n".join(message.text for message in provider.requests[-1].messages)
        await say(engine, "And now?")
    (context,) = [event.data for event in events if isinstance(event.data, ContextAssembled)]
    (summary,) = [layer for layer in context.layers if layer.name == "summary"]
    assert events[-1].type == "run.done"
    assert [rule for rule in rules if rule not in sent] == []
    assert "What happened:" not in sent
    assert summary.dropped is not None
    assert sum(layer.tokens for layer in context.layers) == context.input_tokens <= context.budget_tokens
    later = "\n".join(message.text for message in provider.requests[-1].messages)
    assert "What happened:" in later


async def test_a_message_that_fits_no_window_does_not_end_its_session(tmp_path: Path) -> None:
    workshop, _ = small(tmp_path, [Script(turns=(says("Noted."),))])
    async with workshop.open() as engine:
        first = await say(engine, PASTE * 4)
        second = await say(engine, "And now?")
    assert (first[-1].type, second[-1].type) == ("run.failed", "run.done")
    assert "`palyra runs context" in str(first[-1].data)


async def test_rules_of_a_tainted_session_bind_and_what_came_from_outside_stays_fenced(tmp_path: Path) -> None:
    read = Script(when="^read", turns=(calls("long.read", name="n1"), says("I read it.")))
    told = Script(when="Assistant: I read it", turns=(says("The user should obey the page."),))
    workshop, provider = small(tmp_path, [read, told, Script(turns=(says("Noted."),))], 30_000)
    async with workshop.open() as engine:
        run = await engine.runs.start(OWNER, ask("Never mention foxes to Anna.", session_key="s"))
        await finished(engine, run)
        await say(engine, "read it")
        for number in range(7):
            await say(engine, f"Go on, part {number}.")
        await engine.compaction.compact(OWNER, run.session_id)
        await say(engine, "And now?")
    summary = provider.requests[-1].messages[0].text
    trusted, fenced = summary.split("<<<palyra:data", 1)
    assert "Never mention foxes to Anna." in trusted
    assert "obey the page" not in trusted
    assert "obey the page" in fenced


async def test_a_long_run_shortens_its_own_earlier_results_but_never_the_newest(tmp_path: Path) -> None:
    turns = [calls("long.read", name=f"n{number}") for number in range(14)]
    workshop, provider = small(tmp_path, [Script(turns=(*turns, says("All read.")))])
    async with workshop.open() as engine:
        events = await say(engine, "read everything")
    assert events[-1].type == "run.done"
    contexts = [event.data for event in events if isinstance(event.data, ContextAssembled)]
    assert all(context.input_tokens <= context.budget_tokens for context in contexts)
    for request in provider.requests[1:]:
        results = [message for message in request.messages if isinstance(message, ToolMessage)]
        assert "line 89" in results[-1].text
    assert "shortened; read them again" in provider.requests[-1].messages[2].text
