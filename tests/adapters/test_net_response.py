"""What an answer does with its connection, moment by moment: the transport is played, everything else is real."""

import asyncio
from typing import Any, cast

import aiohttp
import pytest
from aiohttp.connector import Connection

from palyra.adapters.net.pool import Pool
from palyra.adapters.net.response import READ_BYTES, HttpResponse

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Transport:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.protocol: object = None
        self.unsent_bytes = 0
        self.is_closed = False

    def set_protocol(self, protocol: object) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        self.asked.append("pause")

    def resume_reading(self) -> None:
        self.asked.append("resume")

    def abort(self) -> None:
        self.asked.append("abort")
        self.is_closed = True


class Sleeper:
    """In the place of aiohttp's protocol."""

    def __init__(self) -> None:
        self.lost: list[object] = []

    def connection_lost(self, cause: object) -> None:
        self.lost.append(cause)


class Kept:
    """A connection as the pool knows it."""

    def __init__(self) -> None:
        self.protocol = Sleeper()
        self.ended: list[str] = []

    def release(self) -> None:
        self.ended.append("released")

    def close(self) -> None:
        self.ended.append("closed")


class Scene:
    def __init__(self) -> None:
        self.transport = Transport()
        self.kept = Kept()
        self.pool = Pool(cast(aiohttp.BaseConnector, None))
        connection = cast(Connection, self.kept)
        self.answer = HttpResponse(self.pool, connection, cast(Any, self.transport), is_bodiless=False)


async def test_a_whole_answer_gives_its_connection_back_to_who_keeps_it() -> None:
    s = Scene()
    assert s.pool.out == {s.answer}
    s.answer.data_received(WHOLE)
    assert s.kept.ended == ["released"]
    assert s.transport.protocol is s.kept.protocol
    assert s.pool.is_used(cast(Connection, s.kept))
    assert s.pool.out == set()
    assert [await s.answer.read(), await s.answer.read()] == [b"ok", b""]


async def test_what_is_not_sent_yet_is_given_up_with_the_connection() -> None:
    s = Scene()
    s.transport.unsent_bytes = 1
    s.answer.data_received(WHOLE)
    assert s.transport.asked == ["abort"]
    assert s.kept.ended == ["closed"]


async def test_what_is_still_being_written_is_given_up_too() -> None:
    s = Scene()
    s.answer.writing = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
    s.answer.data_received(WHOLE)
    assert s.kept.ended == ["closed"]
    with pytest.raises(asyncio.CancelledError):
        await s.answer.writing


async def test_garbage_behind_a_whole_answer_closes_its_connection() -> None:
    s = Scene()
    s.answer.data_received(WHOLE + b"\x00\x01\x02")
    assert s.kept.ended == ["closed"]
    assert await s.answer.read() == b"ok"


async def test_a_connection_goes_back_reading() -> None:
    s = Scene()
    s.answer.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * READ_BYTES))
    s.answer.data_received(b"x" * (READ_BYTES + 1))
    assert s.transport.asked == ["pause"]
    s.answer.data_received(b"x" * (READ_BYTES - 1))  # What was on its way when it was asked to pause.
    assert s.transport.asked == ["pause", "resume"]
    assert s.kept.ended == ["released"]
    assert len(await s.answer.read()) == 2 * READ_BYTES


async def test_a_lost_connection_is_told_to_who_keeps_it_and_to_the_reader() -> None:
    s = Scene()
    s.answer.data_received(WHOLE[:-1])
    lost = OSError("gone")
    s.answer.connection_lost(lost)
    assert s.kept.protocol.lost == [lost]
    assert s.kept.ended == ["closed"]
    assert await s.answer.read() == b"o"
    with pytest.raises(OSError, match="gone"):
        await s.answer.read()


async def test_time_that_is_over_takes_nothing_that_has_come() -> None:
    s = Scene()
    s.answer.data_received(WHOLE[:-1])
    s.answer.expire()
    assert await s.answer.read() == b"o"
    s.answer.data_received(WHOLE[-1:])
    assert [await s.answer.read(), await s.answer.read()] == [b"k", b""]


async def test_time_that_is_over_ends_a_wait() -> None:
    s = Scene()
    reading = asyncio.create_task(s.answer.read())
    await asyncio.sleep(0)
    s.answer.expire()
    with pytest.raises(TimeoutError):
        await reading


async def test_closing_the_pool_ends_what_is_out() -> None:
    class Connector:
        async def close(self) -> None:
            """Nothing is idle."""

    s = Scene()
    s.pool._connector = cast(aiohttp.BaseConnector, Connector())
    await s.pool.close()
    assert s.kept.ended == ["closed"]
    with pytest.raises(ConnectionResetError):
        await s.answer.head
