"""The record of a compaction: what it holds, that it goes with its session, and what waits while a session is compacted."""

from pathlib import Path

import msgspec
import pytest

from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.core.compaction.model import CompactionSettings
from palyra.core.compaction.record import CompactionRecord
from palyra.core.errors import NotFound
from palyra.core.ids import ArtifactId
from palyra.engine.engine import Engine
from palyra.engine.setup import EngineSettings
from tests.engine.test_compaction import FACT, Chatty, compacted, say, workshop_at
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.engines import ALICE, OWNER, Workshop

pytestmark = pytest.mark.anyio

OLD, NEW, CHATTER = "From now on use tabs.", "Use spaces from now on.", "Tell me something about the weather, part {}."
SECRET = "ghp_Zk3Vq8LmT2xW7cR9yB4nD6sF1hJ0gP5uEa8Q"


async def record_of(engine: Engine, session_id: str) -> tuple[ArtifactId, CompactionRecord]:
    (event,) = await compacted(engine, session_id)
    assert event.artifact_id is not None
    artifact_id = ArtifactId(event.artifact_id)
    stored, body = await engine.artifacts.get(OWNER, artifact_id)
    assert stored.media_type == "application/json"
    return artifact_id, msgspec.json.decode(body, type=CompactionRecord)


async def talk(engine: Engine, *texts: str) -> str:
    session_id = ""
    for text in (*texts, *(CHATTER.format(number) for number in range(9))):
        session_id = await say(engine, text)
    return session_id


async def test_the_record_tells_what_was_kept_dropped_and_retired_and_each_probe(tmp_path: Path) -> None:
    async with workshop_at(tmp_path, Chatty(summary="Nothing much was said."), 100_000).open() as engine:
        session_id = await talk(engine, OLD, FACT, NEW)
        await engine.compaction.compact(OWNER, session_id)  # type: ignore[arg-type]
        _, record = await record_of(engine, session_id)
    assert (record.by, record.cause, record.proposed) == ("rules", "by_hand", "Nothing much was said.")
    assert [item.text for item in record.kept] == [NEW, FACT]
    assert [(rule.text, rule.by) for rule in record.retired] == [(OLD, NEW)]
    assert [message.text for message in record.dropped] == [OLD, *(CHATTER.format(number) for number in range(3))]
    assert all(message.place for message in record.dropped)
    assert record.refusals
    assert {(probe.kind, probe.about): probe.is_passed for probe in record.probes} == {
        ("rule", NEW): True,
        ("fact", "4711-0815"): False,
        ("fact", "Amber"): False,
    }


async def test_the_record_is_erased_with_its_session_and_nobody_else_reads_it(tmp_path: Path) -> None:
    async with workshop_at(tmp_path, Chatty(), 100_000).open() as engine:
        session_id = await talk(engine, FACT)
        await engine.compaction.compact(OWNER, session_id)  # type: ignore[arg-type]
        artifact_id, _ = await record_of(engine, session_id)
        with pytest.raises(NotFound):
            await engine.artifacts.get(ALICE, artifact_id)
        await engine.sessions.delete(OWNER, session_id)  # type: ignore[arg-type]
        with pytest.raises(NotFound):
            await engine.artifacts.get(OWNER, artifact_id)


async def test_the_record_holds_no_secret(tmp_path: Path) -> None:
    async with workshop_at(tmp_path, Chatty(), 100_000).open() as engine:
        session_id = await talk(engine, FACT)
        summary = f"{FACT} The key is {SECRET}."
        done = await engine.compaction.compactor.compact_proposed(session_id, summary)  # type: ignore[arg-type]
        artifact_id, record = await record_of(engine, session_id)
        _, body = await engine.artifacts.get(OWNER, artifact_id)
    assert done.is_committed
    assert FACT in record.proposed
    assert SECRET.encode() not in body


async def test_a_summary_that_denies_a_pending_approval_is_refused(tmp_path: Path) -> None:
    scripts = [
        Script(when="User: ", turns=(says("They talked about the weather. Nothing is pending."),)),
        Script(when="^send", turns=(calls("mark.send", text="mail"), says("It is sent."))),
        Script(turns=(says("Certainly."),)),
    ]
    settings = EngineSettings(compaction=CompactionSettings(is_automatic=False))
    async with Workshop(tmp_path, ScriptedProvider(scripts), settings).open() as engine:
        session_id = await talk(engine)
        run = await engine.runs.start(OWNER, ask("send it", session_id=session_id))
        await wait_for(engine, run.id, "approval.requested")
        await engine.compaction.compact(OWNER, session_id)  # type: ignore[arg-type]
        (event,) = await compacted(engine, session_id)
        await engine.runs.cancel(OWNER, run.id)
        await finished(engine, run)
    assert event.refusals == ("it says that nothing is open, but a call waits: mark.send",)
    assert event.by == "rules"
