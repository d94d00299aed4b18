"""Requests that go out at once: whatever a connection takes of a body, all of it arrives."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from palyra.adapters.net.client import HttpClient, Outgoing
from palyra.adapters.net.wire import WHOLE_BYTES_MAX

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
TEST_S = 20.0


class Server:
    """Answers every request with `ok` once its whole body is here; reads only while it may."""

    def __init__(self) -> None:
        self.connections_count = 0
        self.bodies: list[bytes] = []
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections_count += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await self.may_read.wait()
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                self.bodies.append(await reader.readexactly(size))
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, HttpClient]]:
    server, client = Server(), HttpClient()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    try:
        async with asyncio.timeout(TEST_S), listening:
            try:
                yield server, client
            finally:
                await client.close()
    finally:
        await client.close()


async def asked(client: HttpClient, url: str, body: bytes) -> bytes:
    async with client.post(Outgoing(url=url, headers={}, body=body)) as reply:
        answer = await reply.read_some(TEST_S)
        await reply.drain(TEST_S)
        return answer


async def test_a_body_larger_than_the_connection_takes_at_once_arrives_whole() -> None:
    async with serving() as (server, client):
        server.may_read.clear()
        body = bytes(range(256)) * (WHOLE_BYTES_MAX // 256)
        asking = [asyncio.create_task(asked(client, server.url, body)) for _ in range(8)]
        await until(lambda: server.connections_count == 8)
        server.may_read.set()
        assert await asyncio.gather(*asking) == [b"ok"] * 8
        assert server.bodies == [body] * 8


async def test_a_request_that_is_given_up_in_the_middle_of_its_body_harms_no_other() -> None:
    async with serving() as (server, client):
        server.may_read.clear()
        asking = asyncio.create_task(asked(client, server.url, b"x" * WHOLE_BYTES_MAX))
        await until(lambda: server.connections_count == 1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        server.may_read.set()
        assert await asked(client, server.url, b"hello") == b"ok"
        assert server.bodies[-1] == b"hello"


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)
