"""Results that spilled, read back through the engine: by their owner alone, with the trust and source they had (L8, L11)."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.artifacts.files import FileArtifacts
from palyra.adapters.providers.scripted import Script
from palyra.adapters.store.sqlite.journal import SqliteJournal
from palyra.adapters.tools.artifact_read import ArtifactRead
from palyra.adapters.tools.session_search import SessionSearch
from palyra.core.events import Event
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, ToolFinished, ToolJudged, Verdict
from palyra.core.ids import ArtifactId, Principal, SessionId
from palyra.core.tools import CallNature, Capability, Made, ToolResult, ToolSpec
from palyra.core.trust import Trust
from palyra.engine.api.requests import GivenAttachment, RunRecord
from palyra.engine.engine import Engine
from palyra.ports.tools import Tool, ToolCallContext
from tests.engine.test_taint import AllowAll
from tests.support.asking import ask, calls, finished, says
from tests.support.engines import ALICE, OWNER, Workshop

pytestmark = pytest.mark.anyio

PAGE = "".join(f"line {number} of a page from outside\n" for number in range(900))
EVIL = "http:evil.example"
DONE = says("Done.")


class LongGet:
    """A long page from outside, and a picture beside it."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            name="web.get",
            description="gets a long page",
            input_schema={"type": "object"},
            capabilities=frozenset({Capability.NETWORK}),
            effect_class=EffectClass.READ_ONLY,
            parallel_class=ParallelClass.IDEMPOTENT_NETWORK,
        )

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(
            effect_class=EffectClass.READ_ONLY, parallel_class=ParallelClass.IDEMPOTENT_NETWORK, host="evil.example"
        )

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        made = Made(name="shot.txt", media_type="text/plain", body=b"words of a picture")
        return ToolResult(outcome=Outcome.OK, output=PAGE, made=(made,))


class LocalLong(LongGet):
    @property
    def spec(self) -> ToolSpec:
        return replace(super().spec, name="log.read", output_trust=Trust.LOCAL, capabilities=frozenset())

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        return ToolResult(outcome=Outcome.OK, output=PAGE.replace("outside", "here"))


class LocalPrint(LocalLong):
    """Prints what a model wrote into its arguments, as a command does."""

    def __init__(self, capability: Capability) -> None:
        self._capability = capability

    @property
    def spec(self) -> ToolSpec:
        return replace(super().spec, name="log.print", capabilities=frozenset({self._capability}))


def readers(journal: SqliteJournal, artifacts: FileArtifacts) -> Sequence[Tool]:
    return (ArtifactRead(artifacts, journal.state), SessionSearch(journal.search))


def workshop_at(root: Path, *scripts: Script) -> Workshop:
    made = Workshop(root, list(scripts))
    made.tools = [*made.tools, LongGet(), LocalLong()]
    made.journal_tools = readers
    return made


async def run(engine: Engine, text: str, session: str, owner: Principal = OWNER) -> tuple[RunRecord, list[Event]]:
    record = await engine.runs.start(owner, ask(text, session_key=session))
    return record, await finished(engine, record, owner)


def outcomes(events: Sequence[Event]) -> list[ToolFinished]:
    return [event.data for event in events if isinstance(event.data, ToolFinished)]


async def sources(engine: Engine, session_id: SessionId, owner: Principal = OWNER) -> list[str]:
    return [each.source for each in await engine.taint.show(owner, session_id)]


async def spill(root: Path, tool: str) -> ToolFinished:
    """What a long result left behind, in the session `first`."""
    async with workshop_at(root, Script(turns=(calls(tool), DONE))).open() as engine:
        _, events = await run(engine, "get it", "first")
        return outcomes(events)[0]


def reading(artifact_id: str | None, **arguments: object) -> Script:
    return Script(turns=(calls("artifact.read", id=artifact_id, **arguments), DONE))


async def test_a_spilled_result_says_how_to_read_on_and_reading_is_free(tmp_path: Path) -> None:
    spilled = await spill(tmp_path, "log.read")
    assert spilled.artifact_id is not None
    assert spilled.output is not None
    assert spilled.output.startswith("line 0 of a page from here\n")
    offset = int(spilled.output.partition(f"id {spilled.artifact_id} and offset ")[2].split()[0])
    async with workshop_at(tmp_path, reading(spilled.artifact_id, offset=offset)).open() as engine:
        record, events = await run(engine, "read on", "second")
        (judged,) = [event.data for event in events if isinstance(event.data, ToolJudged)]
        assert (judged.verdict, judged.rule) == (Verdict.ALLOW, "internal_read")
        (read,) = outcomes(events)
        assert read.artifact_id is None
        assert str(read.output).split("\n")[0] in PAGE.replace("outside", "here").split("\n")
        assert await sources(engine, record.session_id) == []


async def test_a_spilled_result_from_outside_taints_whichever_session_reads_it(tmp_path: Path) -> None:
    spilled = await spill(tmp_path, "web.get")
    async with workshop_at(tmp_path, reading(spilled.artifact_id)).open() as engine:
        record, events = await run(engine, "read it", "another")
        (read,) = outcomes(events)
        assert (read.outcome, read.source, read.fence_id is not None) == (Outcome.OK, EVIL, True)
        assert await sources(engine, record.session_id) == [EVIL]


@pytest.mark.parametrize("capability", [Capability.PROCESS_EXEC, Capability.FS_WRITE])
async def test_what_a_tainted_model_had_printed_taints_whoever_reads_it(tmp_path: Path, capability: Capability) -> None:
    """The output of a command is local, but a model that read a page chose the command's words."""
    made = workshop_at(tmp_path, Script(turns=(calls("web.get"), calls("log.print"), DONE)))
    made.tools = [*made.tools, LocalPrint(capability)]
    made.policy = AllowAll()
    async with made.open() as engine:
        _, events = await run(engine, "get it", "first")
        printed = outcomes(events)[-1]
        assert printed.source is None
    async with workshop_at(tmp_path, reading(printed.artifact_id)).open() as engine:
        record, _ = await run(engine, "read it", "another")
        assert await sources(engine, record.session_id) == [EVIL]


async def test_a_body_made_beside_the_text_brings_its_source_back_too(tmp_path: Path) -> None:
    made = (await spill(tmp_path, "web.get")).made[0]
    async with workshop_at(tmp_path, reading(made.artifact_id)).open() as engine:
        record, events = await run(engine, "read it", "another")
        assert outcomes(events)[0].output == "words of a picture"
        assert await sources(engine, record.session_id) == [EVIL]


async def test_nobody_reads_anothers_artifact(tmp_path: Path) -> None:
    spilled = await spill(tmp_path, "web.get")
    async with workshop_at(tmp_path, reading(spilled.artifact_id)).open() as engine:
        record, events = await run(engine, "read it", "mine", ALICE)
        (read,) = outcomes(events)
        assert read.error is not None
        assert read.error.code == "artifact_unknown"
        assert await sources(engine, record.session_id, ALICE) == []


async def test_an_upload_is_its_persons_own_word_until_the_same_bytes_come_from_outside(tmp_path: Path) -> None:
    body = b"words of a picture"
    async with workshop_at(tmp_path).open() as engine:
        artifact_id = (await engine.artifacts.put(OWNER, body, "text/plain")).id
    async with workshop_at(tmp_path, reading(artifact_id)).open() as engine:
        record, _ = await run(engine, "read it", "clean")
        assert await sources(engine, record.session_id) == []
    await spill(tmp_path, "web.get")
    async with workshop_at(tmp_path, reading(artifact_id)).open() as engine:
        record, _ = await run(engine, "read it", "doubtful")
        assert await sources(engine, record.session_id) == [EVIL]


async def test_an_attachment_has_the_trust_of_its_message(tmp_path: Path) -> None:
    async with workshop_at(tmp_path, Script(turns=(DONE,))).open() as engine:
        given = GivenAttachment(name="a.txt", media_type="text/plain", body=b"attached")
        record = await engine.runs.start(OWNER, ask("look", session_key="s", attachments=(given,)))
        await finished(engine, record)
        state = engine._setup.views.state
        (artifact_id,) = await state.artifacts_of(record.session_id)
        link = await state.artifact_for(ArtifactId(artifact_id), OWNER)
        assert link is not None
        assert (link.trust, link.source) == (Trust.OPERATOR, None)


async def test_an_answer_given_with_outside_content_in_view_taints_the_session_that_finds_it(tmp_path: Path) -> None:
    turns = (calls("web.get"), says("The capybara is the largest rodent."))
    async with workshop_at(tmp_path, Script(turns=turns)).open() as engine:
        first, _ = await run(engine, "fetch", "first")
    search = Script(turns=(calls("session.search", query="capybara rodent"), DONE))
    async with workshop_at(tmp_path, search).open() as engine:
        record, events = await run(engine, "what did we say", "second")
        (found,) = outcomes(events)
        assert f"session {first.session_id}, seq" in str(found.output)
        assert await sources(engine, record.session_id) == [f"session:{first.session_id}"]
        stranger, events = await run(engine, "what did they say", "third", ALICE)
        assert outcomes(events)[0].output == "[Nothing was found.]"
        assert await sources(engine, stranger.session_id, ALICE) == []
