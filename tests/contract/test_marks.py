"""What every store promises of checkpoints and pins."""

import pytest

from palyra.core.errors import Conflict, Invalid
from palyra.core.events import Data
from palyra.core.events.session import PinAdded, PinRemoved, SessionCheckpointed
from palyra.core.ids import SessionId
from palyra.core.projections.marks import mark_name
from palyra.core.projections.rows import MarkKind
from palyra.ports.journal import Append, Erasure
from tests.contract.conftest import Opened, Store
from tests.support.journals import ALICE, START_MS, Ids, draft, session_created

pytestmark = pytest.mark.anyio


async def begin(opened: Opened, *data: Data) -> SessionId:
    session = Ids().session()
    await opened.journal.commit([Append(session, 0, (session_created(), *(draft(each) for each in data)))])
    return session


def added(name: str, source_seq: int | None = None) -> PinAdded:
    return PinAdded(pin_id=name, text=f"words of {name}", source_seq=source_seq)


async def test_rows_follow_the_events_and_hold_no_text(store: Store) -> None:
    opened = await store.open()
    made = SessionCheckpointed(checkpoint_id="c", at_seq=1, label="my label")
    session = await begin(opened, made, added("p", 1), PinRemoved(pin_id="p"))
    opened = await store.reopen()
    checkpoint, pin = await opened.marks.mark(session, "c"), await opened.marks.mark(session, "p")
    assert checkpoint is not None
    assert pin is not None
    assert (checkpoint.kind, checkpoint.made_seq, checkpoint.at_seq) == (MarkKind.CHECKPOINT, 2, 1)
    assert (pin.kind, pin.made_seq, pin.at_seq, pin.removed_seq, pin.seq) == (MarkKind.PIN, 3, 1, 4, 4)
    assert "label" not in repr(checkpoint)
    assert "words" not in repr(pin)
    assert await opened.marks.mark(session, "other") is None


async def test_pins_are_found_as_they_were_at_any_event(opened: Opened) -> None:
    session = await begin(opened, added("a"), added("b"), PinRemoved(pin_id="a"), added("c"), PinRemoved(pin_id="z"))
    found = [[mark_name(row) for row in await opened.marks.pins_at(session, seq)] for seq in range(1, 7)]
    assert found == [[], ["a"], ["a", "b"], ["b"], ["b", "c"], ["z", "b", "c"]]
    (strange, *_) = await opened.marks.pins_at(session, 6)
    assert (strange.made_seq, strange.removed_seq) == (0, 6)


async def test_marks_are_listed_by_kind_page_by_page(opened: Opened) -> None:
    many = [SessionCheckpointed(checkpoint_id=f"c{number}", at_seq=1) for number in range(5)]
    session = await begin(opened, added("p"), *many)
    first = await opened.marks.made(session, MarkKind.CHECKPOINT, 0, 3)
    rest = await opened.marks.made(session, MarkKind.CHECKPOINT, first[-1].made_seq, 3)
    assert [mark_name(row) for row in (*first, *rest)] == [f"c{number}" for number in range(5)]
    assert [mark_name(row) for row in await opened.marks.made(session, MarkKind.PIN, 0, 9)] == ["p"]


@pytest.mark.parametrize(
    "data",
    [
        (added("p"), added("p")),
        (added("p"), PinRemoved(pin_id="p"), PinRemoved(pin_id="p")),
        (SessionCheckpointed(checkpoint_id="p", at_seq=1), PinRemoved(pin_id="p")),
    ],
)
async def test_a_mark_is_made_once_and_removed_once(opened: Opened, data: tuple[Data, ...]) -> None:
    with pytest.raises((Conflict, Invalid), match=r"mark_exists|pin_removed"):
        await begin(opened, *data)


async def test_an_erased_pin_is_gone(opened: Opened) -> None:
    session = await begin(opened, added("a"), added("b"))
    erasure = Erasure(stream=session, seqs=(2,), reason="asked", actor=ALICE, at_ms=START_MS)
    await opened.journal.erase([erasure])
    assert [mark_name(row) for row in await opened.marks.pins_at(session, 3)] == ["b"]
