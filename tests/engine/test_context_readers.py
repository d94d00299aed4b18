"""Who reads which source of context: the table of docs/trust.md, a test a cell, and how older homes come to hold it."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.adapters.skills.learned import HomeLearnedSkills
from palyra.adapters.skills.skill_index import FolderSkills
from palyra.adapters.tools.skill_open import SkillOpen
from palyra.core.errors import Conflict
from palyra.core.events.model import Finish
from palyra.core.ids import Principal, SessionId
from palyra.core.learning.documents import DOCUMENT, PATH
from palyra.core.learning.model import Candidate, CandidateKind, CandidateOrigin, CandidateStatus
from palyra.core.learning.states import CandidateAction
from palyra.core.managed_blocks import BlockApplied, apply_block
from palyra.core.memory.model import MemoryKind, MemoryScope
from palyra.core.service_runs import REFLECTION
from palyra.core.trust import Trust
from palyra.core.writes import PutCandidate
from palyra.engine.api.candidates import CandidateDecision
from palyra.engine.engine import Engine
from palyra.engine.setup import EngineSettings
from palyra.ports.provider import Completed, Delta, ModelRequest, TextDelta
from tests.references.workshops import reference_workshop
from tests.support.asking import ask, finished, says
from tests.support.delegating import delegates
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.learning import candidate_of
from tests.support.lessons import AT_ONCE, everything, notes_of, rested, say
from tests.support.memory import give_one

pytestmark = pytest.mark.anyio

STRANGER = Principal("channel:webhook:mallory")
GROUP = Principal("channel:hook")
ASKED = "In which harbour is the boat?"
REFERRED = "Read @session:{} again."
DELEGATE = "Let somebody find out about it."
OWN, OTHER, ALICES, GROUPS, STRANGERS, SERVICE, CHILD = READERS = (
    "own session",
    "own other session",
    "another principal",
    "a channel's conversation",
    "a stranger",
    "a service run",
    "a delegated child",
)
OF_OWNER = {OWN, OTHER, CHILD}
WITH_AGENT = {*OF_OWNER, ALICES, GROUPS, STRANGERS}
TABLE = {
    "notes": OF_OWNER,
    "shared block": WITH_AGENT,
    "block of unknown": set(),
    "project file": WITH_AGENT,
    "memory of principal": OF_OWNER,
    "memory of session": {OWN},
    "memory of agent": OF_OWNER,
    "memory of channel": set(),
    "preference": OF_OWNER,
    "pin": {OWN},
    "conversation": {OWN, OTHER, GROUPS, SERVICE},  # Elsewhere by a reference that its owner wrote there.
    "waiting candidate": set(),
    "learned skill": WITH_AGENT,
}


def mark_of(source: str) -> str:
    return f"mark {source.replace(' ', '')}"


class Watched:
    """A scripted model that keeps what it is shown."""

    def __init__(self) -> None:
        turns = (delegates("In which harbour is the boat?"), says("It is done."))
        self._inner = ScriptedProvider([Script(turns=turns, when=DELEGATE), Script(turns=(says("In Trogir."),) * 40)])
        self.shown: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.shown.append(request)
        if request.instructions.startswith(REFLECTION.instructions[:40]):
            yield TextDelta('{"items": [], "summary": ""}')
            yield Completed(Finish.STOP)
            return
        async for delta in self._inner.stream(request):
            yield delta

    def text(self) -> str:
        shown, self.shown = self.shown, []
        return "\n".join(str(each) for each in shown)


def shop_at(folder: Path) -> tuple[Workshop, Watched]:
    model = Watched()
    shop = reference_workshop(folder)
    shop.provider, shop.settings = model, EngineSettings(learning=AT_ONCE)
    shop.has_delegation = True
    shop.skills = FolderSkills(folder, folder / "none")
    shop.learned_skills = HomeLearnedSkills(folder)
    shop.tools.append(SkillOpen(shop.skills))
    return shop, model


def note_of(shop: Workshop, session_id: SessionId, content: str, **fields: object) -> Candidate:
    given = {"kind": CandidateKind.DECISION, "details": {DOCUMENT: str(shop.workspace)}, **fields}
    return candidate_of(content, OWNER, session_id=session_id, origin=CandidateOrigin.COMPACTION, **given)


async def accept(engine: Engine, candidate: Candidate) -> None:
    await engine._setup.journal.commit([], [PutCandidate(candidate)])
    await engine.candidates.decide(OWNER, candidate.id, CandidateDecision(action=CandidateAction.ACCEPT), OWNER)


async def share(engine: Engine, candidate: Candidate) -> None:
    readers = (await engine.candidates.show(OWNER, candidate.id)).readers
    wish = CandidateDecision(action=CandidateAction.SHARE, readers=readers)
    await engine.candidates.decide(OWNER, candidate.id, wish, OWNER)


async def plant(engine: Engine, shop: Workshop) -> SessionId:
    """Puts every source in its place, with the owner as its principal."""
    session_id, _ = await say(engine, f"We talk about the {mark_of('conversation')} now.")
    await accept(engine, note_of(shop, session_id, f"We decided on the {mark_of('notes')}."))
    shared = note_of(shop, session_id, f"We decided on the {mark_of('shared block')}.", kind=CandidateKind.FACT)
    await accept(engine, shared)
    await share(engine, shared)
    await rested(engine)
    file = shop.workspace / PATH
    old = apply_block(file.read_text(), "decisions", (f"- {mark_of('block of unknown')}",))
    assert isinstance(old, BlockApplied)
    file.write_text(old.text)
    (shop.workspace / "AGENTS.md").write_text(mark_of("project file"))
    places = {
        "memory of principal": (MemoryScope.PRINCIPAL, None),
        "memory of session": (MemoryScope.SESSION, session_id),
        "memory of agent": (MemoryScope.AGENT, "main"),
        "memory of channel": (MemoryScope.CHANNEL, "hook"),
    }
    for source, (scope, scope_id) in places.items():
        await give_one(engine, f"The boat lies in the harbour {mark_of(source)}.", scope=scope, scope_id=scope_id)
    await give_one(engine, f"I prefer {mark_of('preference')}.", kind=MemoryKind.PREFERENCE)
    await engine.marks.pin(OWNER, session_id, mark_of("pin"), None)
    waiting = note_of(shop, session_id, f"The boat is in the harbour {mark_of('waiting candidate')}.")
    await engine._setup.journal.commit([], [PutCandidate(waiting)])
    procedure = candidate_of(
        f"1. Call `shell.run` with a command of `x`.\n2. Call `{mark_of('learned skill')}`.",
        OWNER,
        kind=CandidateKind.PROCEDURE,
        session_id=session_id,
        details={"allowed_tools": ""},
    )
    await accept(engine, procedure)
    return session_id


async def read_by(engine: Engine, reader: str, session_id: SessionId, model: Watched) -> str:
    """Starts runs of this reader, and returns everything that its model was shown."""
    model.text()
    for asked in (ASKED, REFERRED.format(session_id)):
        await start(engine, reader, session_id, asked)
    await rested(engine)
    requests, model.shown = model.shown, []
    wanted = [each for each in requests if is_reflection(each) is (reader == SERVICE)]
    return "\n".join(str(each) for each in wanted if reader != CHILD or DELEGATE not in str(each))


def is_reflection(request: ModelRequest) -> bool:
    return request.instructions.startswith(REFLECTION.instructions[:40])


async def start(engine: Engine, reader: str, session_id: SessionId, asked: str) -> None:
    match reader:
        case "own session":
            await say(engine, asked, session_id=session_id, session_key=None)
        case "own other session":
            await say(engine, asked, session_key="two")
        case "another principal":
            await say(engine, asked, ALICE, session_key="a")
        case "a channel's conversation":
            run = await engine.runs.start(OWNER, ask(asked, owner=GROUP, session_key="group"))
            await finished(engine, run, GROUP)
        case "a stranger":
            await say(engine, asked, STRANGER, trust=Trust.EXTERNAL, session_key="channel:hook:1")
        case "a service run":
            await say(engine, f"My name is {mark_of('conversation')} and I live in a harbour.", session_key="three")
        case "a delegated child":
            await say(engine, DELEGATE, session_key="four")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    shop, model = shop_at(tmp_path_factory.mktemp("readers"))
    async with shop.open() as engine:
        session_id = await plant(engine, shop)
        await rested(engine)
        return {reader: await read_by(engine, reader, session_id, model) for reader in READERS}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("source", TABLE)
async def test_a_source_reaches_a_reader_only_as_the_table_says(
    source: str, reader: str, shown: dict[str, str]
) -> None:
    assert shown[reader], "the reader ran"
    assert (mark_of(source) in shown[reader]) is (reader in TABLE[source])


async def test_lines_of_an_older_home_are_carried_over_once_and_recorded(tmp_path: Path) -> None:
    shop, model = shop_at(tmp_path)
    file = shop.workspace / PATH
    async with shop.open() as engine:
        session_id, _ = await say(engine, "Hello there.")
        await rested(engine)
        line = "We decided on the harbour."
        old = note_of(
            shop, session_id, line, status=CandidateStatus.ACCEPTED, applied_to="document:MEMORY.md#decisions"
        )
        await engine._setup.journal.commit([], [PutCandidate(old)])
    before = apply_block("# Mine\n", "decisions", (f"- {line}", "- Somebody said this."))
    assert isinstance(before, BlockApplied)
    file.write_text(before.text)
    for _ in range(2):
        async with shop.open() as engine:
            await rested(engine)
            (carried,) = [each for each in await everything(engine) if each.status is CandidateStatus.ACCEPTED]
            assert carried.applied_to.startswith("notes:user-owner-")
            assert notes_of(shop).read_text().count(line) == 1
            assert line not in file.read_text()
            assert "- Somebody said this." in file.read_text()
            await say(engine, "Hello.", session_key="x")
            assert line in model.text()
            await say(engine, "Hello.", ALICE, session_key="y")
            assert "decided on the harbour" not in (text := model.text())
            assert "Somebody said this" not in text


async def test_notes_that_a_restored_home_lacks_are_written_anew_from_the_journal(tmp_path: Path) -> None:
    shop, _ = shop_at(tmp_path)
    async with shop.open() as engine:
        session_id, _ = await say(engine, "Hello there.")
        one = note_of(shop, session_id, "We decided on the harbour.")
        await accept(engine, one)
        await rested(engine)
    before = notes_of(shop).read_text()
    notes_of(shop).unlink()
    async with shop.open() as engine:
        await rested(engine)
        assert (await engine.candidates.get(OWNER, one.id)).applied_to.startswith("notes:")
    assert notes_of(shop).read_text() == before


async def test_sharing_asks_with_the_names_of_those_who_will_read_and_can_be_undone(tmp_path: Path) -> None:
    shop, model = shop_at(tmp_path)
    async with shop.open() as engine:
        session_id, _ = await say(engine, "Hello there.")
        one = note_of(shop, session_id, "We decided on the harbour.")
        await accept(engine, one)
        for readers in ((), ("nobody",)):
            wish = CandidateDecision(action=CandidateAction.SHARE, readers=readers)
            with pytest.raises(Conflict, match="everybody who talks to the agent main") as refused:
                await engine.candidates.decide(OWNER, one.id, wish, OWNER)
            assert refused.value.code == "readers_unconfirmed"
        assert not (shop.workspace / PATH).exists()
        await share(engine, one)
        await rested(engine)
        assert one.content in (shop.workspace / PATH).read_text()
        assert one.content not in notes_of(shop).read_text()
        await say(engine, "Hello.", ALICE, session_key="y")
        assert one.content in model.text()
        await engine.candidates.decide(OWNER, one.id, CandidateDecision(action=CandidateAction.UNDO), OWNER)
        await rested(engine)
        assert one.content not in (shop.workspace / PATH).read_text()
        assert one.content not in notes_of(shop).read_text()
