"""Nobody holds the event loop: whatever a stranger makes long is scanned in pieces, in a thread, or not at all."""

import asyncio
import random
from pathlib import Path
from string import ascii_letters, digits

import pytest

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script
from palyra.adapters.schema import JsonSchemaCheck
from palyra.core.errors import Invalid
from palyra.core.events.run import GivenRole
from palyra.core.redaction import Redactor
from palyra.core.routines.model import PROMPT_LENGTH_MAX
from palyra.core.routines.wish import RoutineWish
from palyra.engine.api.requests import TEXT_LENGTH_MAX, GivenMessage
from palyra.engine.session.long_texts import LIVE_CHARS_MAX, LiveFeed, redact_text
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import OWNER, Workshop
from tests.support.long_strangers import COSTLY, MESSAGE_CHARS, OUTPUT_CHARS, Printer, of_length, prints
from tests.support.loop_beats import loop_beats

pytestmark = pytest.mark.anyio

# The aim is 50 ms; the rest is room for a slow machine. Before the texts were cut, each of these took seconds.
HELD_MAX_S = 0.15


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def held_s(root: Path, turn: Turn, text: str = "go", printed: str = "") -> float:
    workshop = Workshop(root, [Script(turns=(turn, says("Done.")))])
    workshop.tools.append(Printer(printed))
    async with workshop.open() as engine, loop_beats() as beats:
        events = await finished(engine, await engine.runs.start(OWNER, ask(text)))
        assert events[-1].type in ("run.done", "run.failed")
    return beats.held_s


@pytest.mark.parametrize("kind", ["names", "private keys"])
async def test_a_long_output_of_a_tool_does_not_hold_the_loop(tmp_path: Path, kind: str) -> None:
    printed = of_length(COSTLY[kind], OUTPUT_CHARS // 6)
    assert await held_s(tmp_path, prints(), printed=printed) < HELD_MAX_S


async def test_a_long_message_does_not_hold_the_loop(tmp_path: Path) -> None:
    text = of_length(COSTLY["names and blanks"], MESSAGE_CHARS // 2)
    assert await held_s(tmp_path, says("Yes."), text) < HELD_MAX_S


async def test_long_arguments_do_not_hold_the_loop(tmp_path: Path) -> None:
    content = of_length(COSTLY["names in JSON"], MESSAGE_CHARS // 2)
    assert await held_s(tmp_path, calls("fs.write", path="a.txt", content=content)) < HELD_MAX_S


async def test_a_long_answer_in_one_piece_does_not_hold_the_loop(tmp_path: Path) -> None:
    assert await held_s(tmp_path, says(of_length(COSTLY["open quotes"], MESSAGE_CHARS // 2))) < HELD_MAX_S


@pytest.mark.parametrize("kind", COSTLY)
async def test_a_text_redacted_in_pieces_is_the_text_redacted_whole(kind: str) -> None:
    text = of_length(COSTLY[kind] + "x9Zq3vB7Lm2Kp5Tw ", 20_000)
    redactor = Redactor(b"key")
    assert await redact_text(redactor, text) == redactor.text(text)


async def test_live_text_that_comes_too_fast_ends_and_keeps_no_memory() -> None:
    sent: list[str] = []
    feed = LiveFeed(Redactor(b"key").stream(), sent.append)
    feed.feed("x " * LIVE_CHARS_MAX)
    feed.feed("more")
    feed.finish()
    assert sent == []


def test_a_schema_that_doubles_at_each_level_is_refused() -> None:
    parts: dict[str, object] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(24)}
    schema: dict[str, object] = {"$ref": "#/$defs/d0", "$defs": {**parts, "d24": {"type": "integer"}}}
    assert JsonSchemaCheck().schema_errors(schema) == ("the schema has too many alternatives to be checked",)


def test_a_value_with_too_many_parts_for_its_schema_is_refused() -> None:
    schema: dict[str, object] = {"items": {"enum": [[n] for n in range(5_000)]}}
    (error,) = JsonSchemaCheck().errors(schema, [[-1]] * 20_000)
    assert "too many parts" in error


def test_a_schema_that_refers_to_itself_is_taken() -> None:
    node = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}
    schema: dict[str, object] = {"$ref": "#/$defs/node", "$defs": {"node": node}}
    assert JsonSchemaCheck().errors(schema, {"children": [{"children": []}] * 500}) == ()


def random_words(chars: int) -> str:
    """Each word looks like a key, so each is looked at closely: the costliest text that is known."""
    drawn = random.Random(7)
    return " ".join("".join(drawn.choices(ascii_letters + digits, k=40)) for _ in range(chars // 41))


async def test_a_conversation_that_a_caller_brings_along_does_not_hold_the_loop(tmp_path: Path) -> None:
    given = tuple(GivenMessage(role=GivenRole.USER, text=random_words(20_000)) for _ in range(4))
    async with Workshop(tmp_path, [Script(turns=(says("Yes."),))]).open() as engine, loop_beats() as beats:
        await finished(engine, await engine.runs.start(OWNER, ask(given=given)))
    assert beats.held_s < HELD_MAX_S


async def test_the_prompt_of_a_routine_does_not_hold_the_loop(tmp_path: Path) -> None:
    wish = RoutineWish(name="r", prompt=random_words(PROMPT_LENGTH_MAX), every_s=86_400)
    async with Workshop(tmp_path, [Script(turns=(says("Yes."),))]).open() as engine, loop_beats() as beats:
        await asyncio.sleep(0)  # The first beat.
        engine.routines.describe(wish)
        await engine.routines.create(OWNER, wish)
    assert beats.held_s < HELD_MAX_S


async def test_a_conversation_that_a_caller_brings_along_has_a_limit(tmp_path: Path) -> None:
    async with Workshop(tmp_path, [Script(turns=(says("Yes."),))]).open() as engine:
        too_long = tuple(GivenMessage(role=GivenRole.USER, text="x" * TEXT_LENGTH_MAX) for _ in range(11))
        with pytest.raises(Invalid, match="messages_too_long"):
            await engine.runs.start(OWNER, ask(given=too_long))
