"""Spare connections: one is open before it is asked for where answers overlap, and nowhere else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from palyra.adapters.net.client import HttpClient, Outgoing
from palyra.adapters.net.preconnect import Preconnect
from tests.support.waiting import WAIT_S, until

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"
END = b"0\r\n\r\n"
TEST_S = WAIT_S


class Server:
    """Answers begin at once and end when told; `quiet_count` connections have never said anything."""

    def __init__(self, opened_max: int) -> None:
        self.opened_max = opened_max
        self.opened_count = 0
        self.refused_count = 0
        self.asked: list[asyncio.StreamWriter] = []
        self.quiet_count = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.opened_count == self.opened_max:
            self.refused_count += 1
            writer.transport.abort()
            return
        self.opened_count += 1
        self.quiet_count += 1
        is_quiet = True
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.quiet_count -= is_quiet
                is_quiet = False
                self.asked.append(writer)
                writer.write(HEAD)
        except asyncio.IncompleteReadError:
            self.quiet_count -= is_quiet
        writer.close()


@asynccontextmanager
async def scene(opened_max: int = 100) -> AsyncIterator[tuple[Server, HttpClient, Outgoing]]:
    server, client = Server(opened_max), HttpClient()
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    try:
        async with asyncio.timeout(TEST_S), listening:
            yield server, client, Outgoing(url=url, headers={})
            await client.close()
    finally:
        await client.close()


async def until_quiet(server: Server, count: int) -> None:
    await until(lambda: server.quiet_count == count)


async def test_answers_that_overlap_have_a_third_connection_ready_which_the_next_one_takes() -> None:
    async with scene() as (server, client, outgoing), AsyncExitStack() as open_answers:
        for _ in range(2):
            await open_answers.enter_async_context(client.post(outgoing))
        await until_quiet(server, 1)
        assert server.opened_count == 3
        await open_answers.enter_async_context(client.post(outgoing))
        assert server.opened_count == 3
        assert server.asked[-1] is not server.asked[0]
        await until_quiet(server, 1)
        assert server.opened_count == 4


async def test_one_answer_after_the_other_needs_one_connection() -> None:
    async with scene() as (server, client, outgoing):
        for _ in range(5):
            async with client.post(outgoing) as reply:
                server.asked[-1].write(END)
                while await reply.read_some(TEST_S):
                    pass
        await asyncio.sleep(0.1)
        assert server.opened_count == 1


async def test_a_closed_client_leaves_nothing_open() -> None:
    async with scene() as (server, client, outgoing):
        async with client.post(outgoing), client.post(outgoing):
            await until_quiet(server, 1)
        await client.close()
        await until_quiet(server, 0)


async def test_closing_ends_a_spare_that_is_still_being_opened() -> None:
    begun = asyncio.Event()
    ends: list[str] = []

    async def never() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")

    spares = Preconnect()
    async with asyncio.timeout(TEST_S):
        with spares.out("a"), spares.out("a"):
            spares.answered("a", never)
            await begun.wait()
            spares.answered("a", never)
        await spares.close()
        await asyncio.sleep(0.1)  # What was due is not begun after the end.
    assert ends == ["cancelled"]


async def test_a_server_that_takes_no_third_spoils_nothing() -> None:
    async with scene(opened_max=2) as (server, client, outgoing):
        async with client.post(outgoing) as one, client.post(outgoing) as other:
            await until(lambda: server.refused_count)
            for writer in server.asked:
                writer.write(END)
            for reply in (one, other):
                while await reply.read_some(TEST_S):
                    pass
        await asyncio.sleep(
            0.1
        )  # Until the end of the third has arrived: a request sent before would break off with it.
        async with client.post(outgoing) as reply:
            assert await reply.read_some(TEST_S) == b"one"
        assert server.opened_count == 2
