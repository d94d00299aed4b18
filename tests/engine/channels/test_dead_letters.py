"""Messages that cannot be read or taken: they are kept as dead letters, and the channel goes on with the next."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.channels.model import InboundAttachment, InboundMessage
from palyra.core.channels.outbox import OutboxState
from palyra.core.channels.unread import UnreadMessage, read_or_mark, require_plain
from palyra.core.errors import Conflict, Invalid, Unavailable
from palyra.core.ids import Principal
from palyra.engine.api.requests import RunsQuery
from palyra.engine.channels import dead_letters
from palyra.engine.channels.dead_letters import TRIES_MAX
from palyra.engine.channels.intake import Receipt
from tests.support.channels import CHANNEL, ChannelScene, channel_scene, message
from tests.support.engines import OWNER

HALF = "\ud800"
ODD_FIELDS: dict[str, list[Any]] = {
    "thread_id": [["1595926230.009600"], 5, HALF, "x" * 300, ""],
    "message_id": [{"id": 1}, HALF],
    "conversation_id": [HALF, "", None, 7],
    "sender_id": [b"s1", HALF],
    "text": [HALF, None, "x" * 200_000],
    "sender_display": [HALF, 3],
    "written_at_ms": [2**80, -1, 1.5, "now"],
    "mentions": [("a", 1), (HALF,), 5],
    "attachments": [(InboundAttachment(name=HALF, media_type="text/plain", body=b""),), (3,), None],
}


def inlet(scene: ChannelScene) -> Any:
    return scene.engine.channels.catch_ups[CHANNEL]


async def letters(scene: ChannelScene) -> list[tuple[str, tuple[str, ...]]]:
    found = await scene.engine.outbox.list(CHANNEL, (OutboxState.DEAD,), 0, 10_000)
    return [(each.kind, each.message_ids) for each in found]


async def test_a_message_that_could_not_be_read_is_kept_once_and_the_next_is_answered(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        unread = UnreadMessage(channel=CHANNEL, message_ids=("17", "<a@b>"), reason="it cannot be read: LookupError")
        for _ in range(2):
            assert (await inlet(scene).receive(unread)) == Receipt(is_accepted=False, reason="unread")
        assert (await inlet(scene).receive(message("hello"))).is_accepted
        assert await scene.heard(1) == ["Hi there."]
        assert await letters(scene) == [("unread", ("17", "<a@b>"))]
        (record,) = await scene.engine.channels.list()
        assert record.stuck_count == 1


@pytest.mark.parametrize(
    "odd", [{name: value} for name, values in ODD_FIELDS.items() for value in values], ids=lambda odd: str(odd)[:40]
)
async def test_an_odd_field_makes_a_dead_letter_and_ends_nothing(tmp_path: Path, odd: dict[str, Any]) -> None:
    async with channel_scene(tmp_path) as scene:
        receipt = await inlet(scene).receive(message(**{"text": "hello", "envelope_id": "e-odd", **odd}))
        assert (receipt.is_accepted, receipt.reason) == (False, "unread")
        ((kind, ids),) = await letters(scene)
        assert kind == "unread"
        assert "e-odd" in ids
        assert (await inlet(scene).receive(message("hello"))).is_accepted
        assert await scene.heard(1) == ["Hi there."]


async def test_files_that_cannot_be_read_take_nothing_from_the_words(tmp_path: Path) -> None:
    async def complete() -> InboundMessage:
        raise LookupError("unknown encoding: x-odd")

    async with channel_scene(tmp_path) as scene:
        assert (await inlet(scene).receive(message("hello", has_files=True), complete)).is_accepted
        assert await scene.heard(1) == ["Hi there."]


async def test_unavailable_is_no_dead_letter_and_is_asked_for_again(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        await scene.engine.channels.pause(OWNER, CHANNEL)
        said = message("hello")
        with pytest.raises(Unavailable):
            await inlet(scene).receive(said)
        assert await letters(scene) == []
        await scene.engine.channels.resume(OWNER, CHANNEL)
        assert (await inlet(scene).receive(said)).is_accepted


async def test_a_dead_letter_is_given_up_and_never_sent(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        await inlet(scene).receive(UnreadMessage(channel=CHANNEL, message_ids=("17",), reason="odd"))
        (found,) = await scene.engine.outbox.list(CHANNEL, (OutboxState.DEAD,), 0, 10)
        with pytest.raises(Conflict, match="outbox_came_in"):
            await scene.engine.outbox.replay(OWNER, found.id)
        assert (await scene.engine.outbox.discard(OWNER, found.id)).state == "discarded"
        assert scene.platform.sent == []


async def test_only_the_newest_letters_of_a_channel_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "LETTERS_MAX", 3)
    async with channel_scene(tmp_path) as scene:
        for number in range(5):
            await inlet(scene).receive(UnreadMessage(channel=CHANNEL, message_ids=(f"{number}",), reason="odd"))
        assert [ids for _, ids in await letters(scene)] == [("2",), ("3",), ("4",)]


async def test_what_may_pass_is_tried_some_times_before_it_is_dead(tmp_path: Path) -> None:
    async def busy(_: InboundMessage) -> Receipt:
        raise Conflict("queue_full", "too many runs wait")

    async with channel_scene(tmp_path) as scene:
        kept, said = inlet(scene).letters, message("hello")
        for _ in range(TRIES_MAX - 1):
            with pytest.raises(Unavailable):
                await kept.settled(said, busy)
        assert (await kept.settled(said, busy)).reason == "unread"


async def test_an_odd_message_takes_nothing_from_another_that_comes_with_it(tmp_path: Path) -> None:
    async with channel_scene(tmp_path) as scene:
        kept = await inlet(scene).receive(message("hello", sender_display=HALF, conversation_id="c1"))
        assert not kept.is_accepted
        assert (await inlet(scene).receive(message("hello", conversation_id="c1"))).is_accepted
        runs = await scene.engine.runs.list(Principal("channel:discord:s1"), RunsQuery())
        assert len(runs) == 1


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(HALF),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(sorted(set(ODD_FIELDS) | {"is_direct", "pressed"})), _anything, max_size=3))
def test_a_message_has_plain_fields_or_is_refused(fields: dict[str, Any]) -> None:
    said = message(**{"text": "hello", **fields})
    try:
        require_plain(said)
    except Invalid:
        return
    assert isinstance(said.text, str)
    said.text.encode()
    assert said.thread_id is None or isinstance(said.thread_id, str)


@given(st.sampled_from([LookupError("x"), UnicodeError("x"), RecursionError(), KeyError("x"), Invalid("a", "b")]))
def test_whatever_reading_raises_marks_the_message(error: Exception) -> None:
    def read() -> InboundMessage:
        raise error

    marked = read_or_mark("mail", (HALF, "2"), read)
    assert isinstance(marked, UnreadMessage)
    assert marked.message_ids == ("?", "2")


def test_a_busy_disk_marks_nothing() -> None:
    def read() -> InboundMessage:
        raise Unavailable("disk_full", "no room")

    with pytest.raises(Unavailable):
        read_or_mark("mail", ("1",), read)
