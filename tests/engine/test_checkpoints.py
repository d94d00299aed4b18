"""Checkpoints, restored sessions and branches: what a model is sent there is what it was sent in the original."""

from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.core.errors import Conflict, Invalid, NotFound
from palyra.core.events.session import SessionRestored
from palyra.core.events.tool import EffectClass
from palyra.core.ids import SessionId
from palyra.engine.engine import Engine
from tests.gateway.prepared import OutsideTool
from tests.support.asking import calls, says
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.marks import READS, add_labels, context_in, head_seq, live, loaded, say

pytestmark = pytest.mark.anyio


async def test_a_checkpoint_is_listed_with_its_label_in_order(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READS).open() as engine:
        session_id, events = await say(engine, "one")
        first = await engine.marks.checkpoint(OWNER, session_id, None, "before")
        second = await engine.marks.checkpoint(OWNER, session_id, 3, None)
        assert (first.seq, first.label, first.reason) == (events[-1].seq, "before", "manual")
        assert (second.seq, second.label) == (3, None)
        listed = await engine.marks.checkpoints(OWNER, session_id, 0, 10)
        assert [checkpoint for _, checkpoint in listed] == [first, second]
        assert [each for _, each in await engine.marks.checkpoints(OWNER, session_id, listed[0][0], 10)] == [second]


@pytest.mark.parametrize("at_seq", [0, 999])
async def test_a_checkpoint_is_of_an_event_that_exists(tmp_path: Path, at_seq: int) -> None:
    async with Workshop(tmp_path, READS).open() as engine:
        session_id, _ = await say(engine, "one")
        with pytest.raises(Invalid, match="seq_unknown"):
            await engine.marks.checkpoint(OWNER, session_id, at_seq, None)
        with pytest.raises(Invalid, match="label_length"):
            await engine.marks.checkpoint(OWNER, session_id, None, "x" * 257)


async def test_there_is_a_largest_number_of_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palyra.engine.api.marks.CHECKPOINTS_MAX", 2)
    async with Workshop(tmp_path, READS).open() as engine:
        session_id, _ = await say(engine, "one")
        for _ in range(2):
            await engine.marks.checkpoint(OWNER, session_id, None, None)
        with pytest.raises(Conflict, match="checkpoints_full"):
            await engine.marks.checkpoint(OWNER, session_id, None, None)
        assert len(await engine.marks.checkpoints(OWNER, session_id, 0, 10)) == 2


async def test_restoring_begins_a_session_whose_parent_is_the_old_one(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READS).open() as engine:
        session_id, events = await say(engine, "one")
        checkpoint = await engine.marks.checkpoint(OWNER, session_id, None, None)
        await say(engine, "two", session_id)
        before = await engine.sessions.tape(OWNER, session_id, 0, 100)
        row = await engine.marks.restore(OWNER, session_id, checkpoint.id, "again")
        assert (row.parent_id, row.parent_seq, row.label) == (session_id, events[-1].seq, "again")
        (opening,) = await engine.sessions.tape(OWNER, row.id, 0, 10)
        assert isinstance(opening.data, SessionRestored)
        assert opening.data.checkpoint_id == checkpoint.id
        assert await engine.sessions.tape(OWNER, session_id, 0, 100) == before
        with pytest.raises(NotFound, match="checkpoint_unknown"):
            await engine.marks.restore(OWNER, row.id, checkpoint.id, None)


async def test_restored_and_branched_windows_are_the_originals_byte_for_byte(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, READS)
    async with workshop.open() as engine:
        session_id, _ = await say(engine, "one")
        await engine.marks.pin(OWNER, session_id, "Keep it short.", None)
        await say(engine, "two", session_id)
        original = live(engine, session_id)
        checkpoint = await engine.marks.checkpoint(OWNER, session_id, None, None)
        _, events = await say(engine, "three", session_id)
        restored = await engine.marks.restore(OWNER, session_id, checkpoint.id, None)
        branched = await engine.sessions.branch(OWNER, session_id, checkpoint.seq, None)
        copies = (restored.id, branched.id)
        assert [live(engine, each) for each in copies] == [original, original]
        assert [await loaded(engine, each) for each in copies] == [original, original]
    async with workshop.open() as engine:
        assert [await loaded(engine, each) for each in copies] == [original, original]
        after = [context_in((await say(engine, "three", each))[1]) for each in copies]
        assert after == [context_in(events)] * 2


async def test_the_window_is_the_same_on_either_side_of_a_reset(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, READS)
    async with workshop.open() as engine:
        session_id, _ = await say(engine, "one")
        await engine.marks.pin(OWNER, session_id, "The first rule.", None)
        early, early_seq = live(engine, session_id), await head_seq(engine, session_id)
        await engine.sessions.reset(OWNER, session_id)
        await say(engine, "two", session_id)
        await engine.marks.pin(OWNER, session_id, "The second rule.", None)
        middle, middle_seq = live(engine, session_id), await head_seq(engine, session_id)
        await engine.sessions.reset(OWNER, session_id)
        _, events = await say(engine, "three", session_id)
        late = live(engine, session_id)
        places = ((early_seq, early), (middle_seq, middle), (events[-1].seq, late))
        assert (b"first rule" in early, b"second rule" in middle, b"rule" in late) == (True, True, False)
        made = [(await _both(engine, session_id, seq), window) for seq, window in places]
    async with workshop.open() as engine:
        for copies, window in made:
            assert [await loaded(engine, each) for each in copies] == [window, window]


async def _both(engine: Engine, session_id: SessionId, seq: int) -> tuple[SessionId, SessionId]:
    checkpoint = await engine.marks.checkpoint(OWNER, session_id, seq, None)
    restored = await engine.marks.restore(OWNER, session_id, checkpoint.id, None)
    return restored.id, (await engine.sessions.branch(OWNER, session_id, seq, None)).id


async def test_a_branch_without_a_context_of_its_own_reads_as_far_back_as_its_parent(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, READS)
    async with workshop.open() as engine:
        session_id, _ = await say(engine, "long ago")
        await add_labels(engine, session_id, 800)
    async with workshop.open() as engine:
        await say(engine, "lately", session_id)
        await add_labels(engine, session_id, 800)
        original = live(engine, session_id)
        branch = await engine.sessions.branch(OWNER, session_id, await head_seq(engine, session_id), None)
        nested = await engine.sessions.branch(OWNER, branch.id, 1, None)
    async with workshop.open() as engine:
        assert b"long ago" in original
        assert [await loaded(engine, each) for each in (session_id, branch.id, nested.id)] == [original] * 3


async def test_a_restored_session_has_the_taint_of_its_checkpoint(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, [Script(when="fetch", turns=(calls("mark.fetch", text="a"), says("Read."))), *READS])
    workshop.tools = [*workshop.tools, OutsideTool("mark.fetch", EffectClass.READ_ONLY, workshop.marks)]
    async with workshop.open() as engine:
        session_id, events = await say(engine, "one")
        clean = await engine.marks.checkpoint(OWNER, session_id, events[-1].seq, None)
        await say(engine, "fetch", session_id)
        tainted = await engine.marks.checkpoint(OWNER, session_id, None, None)
        await engine.sessions.reset(OWNER, session_id)
        for checkpoint, sources in ((clean, []), (tainted, ["tool:mark.fetch"])):
            row = await engine.marks.restore(OWNER, session_id, checkpoint.id, None)
            assert [each.source for each in await engine.taint.show(OWNER, row.id)] == sources


async def test_checkpoints_of_others_do_not_exist(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READS).open() as engine:
        session_id, _ = await say(engine, "one")
        checkpoint = await engine.marks.checkpoint(OWNER, session_id, None, None)
        for attempt in (
            engine.marks.checkpoint(ALICE, session_id, None, None),
            engine.marks.checkpoints(ALICE, session_id, 0, 10),
            engine.marks.restore(ALICE, session_id, checkpoint.id, None),
            engine.marks.pin(ALICE, session_id, "mine", None),
            engine.marks.pins(ALICE, session_id),
            engine.marks.unpin(ALICE, session_id, checkpoint.id),
        ):
            with pytest.raises(NotFound, match="session_unknown"):
                await attempt
