"""The outgoing HTTP client: how long a read may take, whatever the reads before it were given."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop

from palyra.adapters.net.client import HttpClient, Outgoing, Reply
from palyra.core.errors import Unavailable

# The first piece comes with the head, so that whoever has the reply need not wait for it.
FIRST = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"
SECOND = b"3\r\ntwo\r\n"
SHORT_S = 0.02
LONG_S = 60.0
TEST_S = 20.0  # Less than the long wait: what waits too long fails.


@asynccontextmanager
async def replied(second_after_s: float) -> AsyncIterator[Reply]:
    """An answer whose second piece comes after so long a time."""
    loop = asyncio.get_running_loop()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(FIRST)
        sending = loop.call_later(second_after_s, writer.write, SECOND)
        await reader.read()
        sending.cancel()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    client = HttpClient()
    outgoing = Outgoing(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", headers={}, body=b"")
    try:
        async with asyncio.timeout(TEST_S), server, client.post(outgoing) as reply:
            yield reply
    finally:
        await client.close()


async def test_a_short_wait_that_was_met_does_not_cut_a_longer_one() -> None:
    async with replied(second_after_s=SHORT_S * 5) as reply:
        assert await reply.read_some(SHORT_S) == b"one"
        assert await reply.read_some(LONG_S) == b"two"


async def test_a_long_wait_that_was_met_does_not_stretch_a_shorter_one() -> None:
    async with replied(second_after_s=LONG_S) as reply:
        assert await reply.read_some(LONG_S) == b"one"
        with pytest.raises(Unavailable, match="nothing came") as fault:
            await reply.read_some(SHORT_S)
    assert fault.value.code == "timed_out"


def test_a_wait_that_is_over_at_once_ends_like_any_other() -> None:
    """There, an alarm for this very moment is no timer that knows its time."""

    async def scene() -> None:
        async with replied(second_after_s=LONG_S) as reply:
            assert await reply.read_some(1e-9) == b"one"
            with pytest.raises(Unavailable, match="nothing came"):
                await reply.read_some(1e-9)

    uvloop.run(scene())


async def test_a_failed_connection_names_the_host_and_nothing_else_of_the_address() -> None:
    client = HttpClient()
    try:
        with pytest.raises(Unavailable) as fault:
            async with client.get(Outgoing(url="http://nowhere.invalid/bot123:token/getMe", headers={})):
                pass
    finally:
        await client.close()
    assert fault.value.code == "connect_failed"
    assert fault.value.message == "no connection to nowhere.invalid:80: its name is not known"
