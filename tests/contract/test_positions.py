"""What every store promises of how far conversations were read."""

import pytest

from palyra.core.channel_writes import PutPosition
from palyra.core.channels.missed import ReadPosition
from tests.contract.conftest import Opened, Store
from tests.support.journals import START_MS

pytestmark = pytest.mark.anyio


async def read(opened: Opened, conversation_id: str, message_id: str, at_ms: int = START_MS) -> None:
    position = ReadPosition(channel="team", conversation_id=conversation_id, message_id=message_id, at_ms=at_ms)
    await opened.journal.commit((), (PutPosition(position, START_MS - 1_000),))


async def test_a_position_only_goes_forward(store: Store) -> None:
    opened = await store.open()
    for message_id in ("98", "101", "99", "100"):
        await read(opened, "c", message_id)
    opened = await store.reopen()
    found = await opened.positions.position("team", "c")
    assert found is not None
    assert found.message_id == "101"
    assert await opened.positions.position("other", "c") is None


async def test_the_newest_are_listed_first_and_old_ones_are_forgotten(store: Store) -> None:
    opened = await store.open()
    await read(opened, "old", "1", START_MS - 2_000)
    await read(opened, "a", "1", START_MS + 1)
    await read(opened, "b", "1", START_MS + 2)
    await read(opened, "c", "1", START_MS)
    assert [each.conversation_id for each in await opened.positions.positions("team", 2)] == ["b", "a"]
    assert await opened.positions.position("team", "old") is None
