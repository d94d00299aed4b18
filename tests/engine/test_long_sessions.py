"""A long session with planted facts, rules and decisions: none is forgotten, in small windows and over restarts."""

import random
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from palyra.adapters.store.sqlite.journal import SqliteJournal
from palyra.adapters.tools.session_search import SessionSearch
from palyra.core.compaction.model import CompactionSettings
from palyra.core.events.model import Finish
from palyra.core.ids import SessionId
from palyra.engine.engine import Engine
from palyra.engine.setup import EngineSettings
from palyra.ports.provider import Completed, Delta, ModelRequest, TextDelta
from palyra.ports.router import ModelCard
from tests.support.asking import ask, finished
from tests.support.engines import OWNER, Workshop
from tests.support.examples import examples
from tests.support.tool_calls import context

pytestmark = pytest.mark.anyio

EXCHANGES_COUNT = min(examples(160), 2_000)  # The campaign takes 2,000 with 100 planted items.
PLANTED_SHARE = 20  # One exchange in so many plants something.
PINS = ("The customer is called Brightwater.", "Sign every letter with «R. Novák».")
NAMES = "Amber Basalt Cedar Delta Ember Fjord Garnet Harbor Indigo Juniper Kestrel Lagoon Meadow Nectar Onyx".split()
CHATTER = "weather music lunch trains gardens movies rivers books chess bread".split()


class Planted(msgspec.Struct, frozen=True):
    said: str
    question: str
    answer: str
    is_rule: bool = False


Story = list[tuple[str, Planted | None]]


class Talker:
    """Answers with a paragraph, and keeps what it was sent. `summary` is what it makes of every conversation."""

    def __init__(self, summary: str) -> None:
        self.summary = summary
        self.sent = ""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        is_summary = "summarise a conversation" in request.instructions
        if not is_summary:
            self.sent = "\n".join(message.text for message in request.messages)
        yield TextDelta(self.summary if is_summary else "I see. " + "It depends on many things. " * 8)
        yield Completed(Finish.STOP)


def plant(number: int, chance: random.Random) -> Planted:
    name, code = f"{chance.choice(NAMES)}{number}", f"{chance.randrange(10_000):04}-{number:03}"
    match number % 4:
        case 0:
            said = f"The serial number of the device {name} is {code}."
            return Planted(said, f"What is the serial number of the device {name}?", code)
        case 1:
            said = f"Never restart the server {name} by hand."
            return Planted(said, f"May I restart the server {name}?", said, is_rule=True)
        case 2:
            said = f"Rule {number}: mails about {name} go to Petra alone."
            return Planted(said, f"Who gets the mails about {name}?", said, is_rule=True)
        case _:
            city = chance.choice(("Frankfurt", "Oslo", "Turin"))
            return Planted(f"We decided to host {name} in {city}.", f"Where do we host {name}?", city)


def story(seed: int) -> Story:
    chance = random.Random(seed)
    told: Story = []
    for number in range(EXCHANGES_COUNT):
        if number % PLANTED_SHARE == 3:
            planted = plant(number // PLANTED_SHARE, chance)
            told.append((f"By the way. {planted.said} What about {chance.choice(CHATTER)}?", planted))
        else:
            told.append((f"What do you think about {chance.choice(CHATTER)} and {chance.choice(CHATTER)}?", None))
    return told


def workshop_at(folder: Path, provider: Talker, window_tokens: int) -> Workshop:
    compaction = CompactionSettings(is_automatic=True, trigger=0.7)
    workshop = Workshop(folder, provider, EngineSettings(compaction=compaction))
    workshop.describe = lambda name: ModelCard(
        name=name, provider="p", kind="scripted", id=name, window_tokens=window_tokens, max_output_tokens=500
    )
    return workshop


async def is_found(engine: Engine, planted: Planted) -> bool:
    """Asks session.search the question, word for word."""
    journal = engine._setup.journal
    assert isinstance(journal, SqliteJournal)
    asking = msgspec.structs.replace(context(), principal=OWNER)
    result = await SessionSearch(journal.search).execute({"query": planted.question}, asking)
    return planted.answer in result.output


async def talk(engine: Engine, provider: Talker, session_id: SessionId, told: Story, rules: list[str]) -> None:
    """Says everything. Whatever is sent holds every pin and every rule so far, word for word."""
    for text, item in told:
        run = await engine.runs.start(OWNER, ask(text, session_id=session_id))
        await finished(engine, run)
        assert (await engine.runs.get(OWNER, run.id)).state == "done"
        if item is not None and item.is_rule:
            rules.append(item.said)
        lost = [said for said in (*PINS, *rules) if said not in provider.sent]
        assert lost == []


BAD_SUMMARY, GOOD_SUMMARY = "Nothing.", "They talked about many things, and about things that depend on others."


@pytest.mark.parametrize("window_tokens", [8_000, 32_000])
@pytest.mark.parametrize("has_restart", [False, True])
async def test_nothing_planted_in_a_long_session_is_forgotten(
    tmp_path: Path, window_tokens: int, has_restart: bool
) -> None:
    rules: list[str] = []
    provider = Talker(GOOD_SUMMARY if has_restart else BAD_SUMMARY)
    workshop = workshop_at(tmp_path, provider, window_tokens)
    told = story(seed=window_tokens)
    half = len(told) // 2 if has_restart else len(told)
    async with workshop.open() as engine:
        run = await engine.runs.start(OWNER, ask("Let us begin."))
        await finished(engine, run)
        for pin in PINS:
            await engine.marks.pin(OWNER, run.session_id, pin, None)
        await talk(engine, provider, run.session_id, told[:half], rules)
    async with workshop.open() as engine:
        await talk(engine, provider, run.session_id, told[half:], rules)
        planted = [item for _, item in told if item is not None]
        known = [item.answer in provider.sent or await is_found(engine, item) for item in planted]
        searched = [await is_found(engine, item) for item in planted]
        compactions = await engine.marks.checkpoints(OWNER, run.session_id, 0, 1_000)
    print(f"window {window_tokens}, restart {has_restart}: {sum(known)} of {len(known)} known,")
    print(f"  {sum(searched)} by search alone, after {len(compactions)} compactions")
    assert compactions
    assert sum(known) >= 0.95 * len(known)
    assert len(known) >= EXCHANGES_COUNT // PLANTED_SHARE
