"""A long session with planted facts, rules and decisions: none is forgotten, in small windows and over restarts."""

import random
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from palyra.adapters.store.sqlite.journal import SqliteJournal
from palyra.core.compaction.model import CompactionSettings
from palyra.core.context.prompt import render
from palyra.core.events.model import Finish
from palyra.core.ids import SessionId
from palyra.core.search import all_words
from palyra.engine.engine import Engine
from palyra.engine.setup import EngineSettings
from palyra.ports.provider import Completed, Delta, ModelRequest, TextDelta
from palyra.ports.router import ModelCard
from palyra.ports.search import SearchQuery
from tests.support.asking import ask, finished
from tests.support.engines import OWNER, Workshop
from tests.support.examples import examples

pytestmark = pytest.mark.anyio

EXCHANGES_COUNT = examples(160)
PLANTED_SHARE = 20  # One exchange in so many plants something.
NAMES = "Amber Basalt Cedar Delta Ember Fjord Garnet Harbor Indigo Juniper Kestrel Lagoon Meadow Nectar Onyx".split()
CHATTER = "weather music lunch trains gardens movies rivers books chess bread".split()


class Planted(msgspec.Struct, frozen=True):
    said: str
    question: str
    is_rule: bool


class Talker:
    """Answers with a paragraph; its summaries hold nothing, so that the rules have to do the work."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        is_summary = "summarise a conversation" in request.instructions
        yield TextDelta("Nothing." if is_summary else "I see. " + "It depends on many things. " * 8)
        yield Completed(Finish.STOP)


def plant(number: int, chance: random.Random) -> Planted:
    name = f"{chance.choice(NAMES)}{number}"
    match number % 3:
        case 0:
            code = f"{chance.randrange(10_000):04}-{number:03}"
            return Planted(f"The serial number of the device {name} is {code}.", f"serial number device {name}", False)
        case 1:
            return Planted(f"Never restart the server {name} by hand.", f"restart server {name}", True)
        case _:
            return Planted(f"We decided to host {name} in Frankfurt.", f"host {name}", False)


def story(seed: int) -> list[tuple[str, Planted | None]]:
    chance = random.Random(seed)
    told: list[tuple[str, Planted | None]] = []
    for number in range(EXCHANGES_COUNT):
        if number % PLANTED_SHARE == 3:
            planted = plant(number // PLANTED_SHARE, chance)
            told.append((planted.said, planted))
        else:
            told.append((f"What do you think about {chance.choice(CHATTER)} and {chance.choice(CHATTER)}?", None))
    return told


def workshop_at(folder: Path, window_tokens: int) -> Workshop:
    compaction = CompactionSettings(is_automatic=True, trigger=0.7)
    workshop = Workshop(folder, Talker(), EngineSettings(compaction=compaction))
    workshop.describe = lambda name: ModelCard(
        name=name, provider="p", kind="scripted", id=name, window_tokens=window_tokens, max_output_tokens=500
    )
    return workshop


async def shown(engine: Engine, session_id: SessionId) -> str:
    state = await engine._parts.loader.load(session_id)
    return "\n".join(message.text for message in render(state.window))


async def is_found(journal: SqliteJournal, planted: Planted) -> bool:
    match = all_words(planted.question)
    assert match is not None
    hits = await journal.search.search(SearchQuery(match=match, principal=OWNER, limit=5))
    return any(planted.said.rstrip(".").split()[-1] in hit.excerpt for hit in hits)


@pytest.mark.parametrize("window_tokens", [8_000, 32_000])
async def test_nothing_planted_in_a_long_session_is_forgotten(tmp_path: Path, window_tokens: int) -> None:
    workshop = workshop_at(tmp_path, window_tokens)
    told = story(seed=window_tokens)
    session_id: SessionId | None = None
    half = len(told) // 2
    planted: list[Planted] = []
    for part in (told[:half], told[half:]):
        async with workshop.open() as engine:
            for text, item in part:
                request = ask(text) if session_id is None else ask(text, session_id=session_id)
                run = await engine.runs.start(OWNER, request)
                session_id = run.session_id
                await finished(engine, run)
                assert (await engine.runs.get(OWNER, run.id)).state == "done"
                planted += [item] if item is not None else []
            assert session_id is not None
            sent = await shown(engine, session_id)
            for item in planted:
                assert not item.is_rule or item.said in sent, f"a rule is lost: {item.said}"
    async with workshop.open() as engine:
        assert session_id is not None
        sent = await shown(engine, session_id)
        journal = engine._setup.journal
        assert isinstance(journal, SqliteJournal)
        known = [item.said in sent or await is_found(journal, item) for item in planted]
    assert sum(known) >= 0.95 * len(known)
    assert len(known) >= EXCHANGES_COUNT // PLANTED_SHARE
