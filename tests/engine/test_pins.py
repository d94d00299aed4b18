"""Pins: word for word in every prompt, until they are removed or the session is reset."""

import asyncio
from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.app import Home, rebuild_projections
from palyra.core.context.messages import UserMessage
from palyra.core.context.pins import PIN_CHARS_MAX, PINS_MAX
from palyra.core.context.prompt import render
from palyra.core.errors import Conflict, Invalid, NotFound
from palyra.core.events.tool import EffectClass
from palyra.core.ids import SessionId
from palyra.core.trust import Trust
from palyra.engine.engine import Engine
from tests.gateway.prepared import OutsideTool
from tests.support.asking import calls, says
from tests.support.engines import OWNER, Workshop
from tests.support.marks import READS, add_labels, context_in, head_seq, live, loaded, say
from tests.support.sqlite import change_from_outside
from tests.support.verification import verify_summary

pytestmark = pytest.mark.anyio

RULE = "The database is PostgreSQL 16.\nNever use another."


async def texts(engine: Engine, session_id: SessionId) -> list[str]:
    return [pin.text for pin in await engine.marks.pins(OWNER, session_id)]


async def first_shown(engine: Engine, session_id: SessionId) -> str:
    window = (await engine._parts.loader.load(session_id)).window
    message = render(window)[0]
    assert isinstance(message, UserMessage)
    return message.text


async def test_a_pin_is_shown_word_for_word_before_the_conversation(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READS).open() as engine:
        session_id, _ = await say(engine, "one")
        pin = await engine.marks.pin(OWNER, session_id, RULE, None)
        assert (pin.text, pin.trust, pin.session_id) == (RULE, "operator", session_id)
        _, events = await say(engine, "two", session_id)
        assert await first_shown(engine, session_id) == f"[palyra] Pinned by the user:\n\n{RULE}"
        layers = {layer.name: layer for layer in context_in(events).layers}
        assert (layers["pinned"].source, layers["pinned"].trust, layers["pinned"].dropped) == (
            "pins",
            Trust.OPERATOR,
            None,
        )
        assert [layer.name for layer in context_in(events).layers].index("pinned") < len(layers) - 1
        await engine.marks.unpin(OWNER, session_id, pin.id)
        assert await texts(engine, session_id) == []
        assert live(engine, session_id) == await loaded(engine, session_id)
        _, events = await say(engine, "three", session_id)
        assert "pinned" not in [layer.name for layer in context_in(events).layers]
        with pytest.raises(NotFound, match="pin_unknown"):
            await engine.marks.unpin(OWNER, session_id, pin.id)


async def test_pins_survive_5000_further_events_and_a_restart(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, READS)
    async with workshop.open() as engine:
        session_id, _ = await say(engine, "one")
        gone = await engine.marks.pin(OWNER, session_id, "gone", None)
        await engine.marks.pin(OWNER, session_id, RULE, None)
        await engine.marks.unpin(OWNER, session_id, gone.id)
        await add_labels(engine, session_id, 5_000)
    async with workshop.open() as engine:
        assert await texts(engine, session_id) == [RULE]
        assert await first_shown(engine, session_id) == f"[palyra] Pinned by the user:\n\n{RULE}"
        await engine.marks.pin(OWNER, session_id, "and this", None)
        await say(engine, "two", session_id)
        assert live(engine, session_id) == await loaded(engine, session_id)
        branch = await engine.sessions.branch(OWNER, session_id, await head_seq(engine, session_id), None)
        assert await texts(engine, branch.id) == [RULE, "and this"]


async def test_a_branch_has_the_pins_of_where_it_left_and_may_remove_them(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, READS)
    async with workshop.open() as engine:
        session_id, _ = await say(engine, "one")
        removed = await engine.marks.pin(OWNER, session_id, "removed before", None)
        kept = await engine.marks.pin(OWNER, session_id, "kept", None)
        early_seq = await head_seq(engine, session_id)
        await engine.marks.unpin(OWNER, session_id, removed.id)
        branch = await engine.sessions.branch(OWNER, session_id, await head_seq(engine, session_id), None)
        early = await engine.sessions.branch(OWNER, session_id, early_seq, None)
        await engine.marks.pin(OWNER, session_id, "later", None)
        assert await texts(engine, early.id) == ["removed before", "kept"]
        assert await texts(engine, branch.id) == ["kept"]
        before_seq = await head_seq(engine, branch.id)
        await engine.marks.unpin(OWNER, branch.id, kept.id)
        await engine.marks.pin(OWNER, branch.id, "own", None)
        inner = await engine.sessions.branch(OWNER, branch.id, await head_seq(engine, branch.id), None)
        older = await engine.sessions.branch(OWNER, branch.id, before_seq, None)
    async with workshop.open() as engine:
        expected = {
            session_id: ["kept", "later"],
            branch.id: ["own"],
            early.id: ["removed before", "kept"],
            inner.id: ["own"],
            older.id: ["kept"],
        }
        assert {each: await texts(engine, each) for each in expected} == expected
        for each, words in expected.items():
            assert (await first_shown(engine, each)).split("\n\n")[1:] == words
            await add_labels(engine, each, 1_300)
    async with workshop.open() as engine:
        for each, words in expected.items():
            assert (await first_shown(engine, each)).split("\n\n")[1:] == words


async def test_a_reset_ends_pins_and_an_earlier_branch_point_keeps_them(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READS).open() as engine:
        session_id, events = await say(engine, "one")
        await engine.marks.pin(OWNER, session_id, RULE, None)
        seq = await head_seq(engine, session_id)
        row = await engine.sessions.reset(OWNER, session_id)
        assert row.reset_seq == await head_seq(engine, session_id)
        assert await texts(engine, session_id) == []
        await engine.sessions.reset(OWNER, session_id)
        branch = await engine.sessions.branch(OWNER, session_id, seq, None)
        assert await texts(engine, branch.id) == [RULE]
        await engine.sessions.reset(OWNER, branch.id)
        assert await texts(engine, branch.id) == []
        with pytest.raises(Conflict, match="pin_before_reset"):
            await engine.marks.pin(OWNER, session_id, None, events[1].seq)


async def test_pins_have_limits_that_say_what_to_do(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READS).open() as engine:
        session_id, _ = await say(engine, "one")
        with pytest.raises(Invalid, match=f"at most {PIN_CHARS_MAX} characters"):
            await engine.marks.pin(OWNER, session_id, "x" * (PIN_CHARS_MAX + 1), None)
        for words in ("", "  \n"):
            with pytest.raises(Invalid, match="pin_empty"):
                await engine.marks.pin(OWNER, session_id, words, None)
        await engine.marks.pin(OWNER, session_id, "x" * PIN_CHARS_MAX, None)
        wanted = [engine.marks.pin(OWNER, session_id, f"pin {number}", None) for number in range(PINS_MAX + 5)]
        outcomes = await asyncio.gather(*wanted, return_exceptions=True)
        refused = [each for each in outcomes if isinstance(each, Conflict)]
        assert {each.code for each in refused} == {"too_many_pins"}
        assert (len(refused), len(await texts(engine, session_id))) == (6, PINS_MAX)
        branch = await engine.sessions.branch(OWNER, session_id, await head_seq(engine, session_id), None)
        with pytest.raises(Conflict, match="too_many_pins"):
            await engine.marks.pin(OWNER, branch.id, "one more", None)


async def test_a_pin_is_no_more_trusted_than_the_event_it_is_from(tmp_path: Path) -> None:
    """L8, and the words stand in a fence."""
    workshop = Workshop(tmp_path, [Script(turns=(calls("mark.fetch", text="a"), says("I read it.")))])
    workshop.tools = [*workshop.tools, OutsideTool("mark.fetch", EffectClass.READ_ONLY, workshop.marks)]
    async with workshop.open() as engine:
        session_id, events = await say(engine, "fetch")
        seqs = {event.type: event.seq for event in events}
        result = await engine.marks.pin(OWNER, session_id, None, seqs["tool.finished"])
        answer = await engine.marks.pin(OWNER, session_id, "read it", seqs["message.assistant"])
        question = await engine.marks.pin(OWNER, session_id, None, seqs["message.user"])
        assert (result.text, result.trust, answer.text, answer.trust) == ("marked a", "external", "read it", "external")
        assert (question.text, question.trust) == ("fetch", "operator")
        shown = await first_shown(engine, session_id)
        assert shown.count("<<<palyra:data") == 2
        assert shown.endswith("\n\nfetch")
        for seq in (seqs["run.done"], 999):
            with pytest.raises(Invalid, match="pin_source"):
                await engine.marks.pin(OWNER, session_id, None, seq)


async def test_a_secret_in_a_pin_is_not_on_the_tape(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    async with Workshop(tmp_path, READS).open() as engine:
        session_id, _ = await say(engine, "one")
        pin = await engine.marks.pin(OWNER, session_id, f"use {token}", None)
        assert token not in pin.text
    assert not [path for path in tmp_path.glob("journal.db*") if token.encode() in path.read_bytes()]


async def test_marks_are_verified_and_rebuilt(tmp_path: Path) -> None:
    async with Workshop(tmp_path, READS).open() as engine:
        session_id, _ = await say(engine, "one")
        await engine.marks.checkpoint(OWNER, session_id, None, "before")
        pin = await engine.marks.pin(OWNER, session_id, RULE, None)
        branch = await engine.sessions.branch(OWNER, session_id, await head_seq(engine, session_id), None)
        await engine.marks.unpin(OWNER, branch.id, pin.id)
        await engine.marks.pin(OWNER, branch.id, "own", None)
    home = Home(tmp_path)
    assert verify_summary(home)["ok"] is True
    assert rebuild_projections(home) == 0
    change_from_outside(home.journal, "UPDATE marks SET at_seq = 99 WHERE kind = 'checkpoint'")
    change_from_outside(home.journal, "DELETE FROM marks WHERE made_seq = 0")
    assert verify_summary(home)["ok"] is False
    assert rebuild_projections(home) == 2
    assert verify_summary(home)["ok"] is True
    async with Workshop(tmp_path, READS).open() as engine:
        assert (await texts(engine, session_id), await texts(engine, branch.id)) == ([RULE], ["own"])
