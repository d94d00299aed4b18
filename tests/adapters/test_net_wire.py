"""Exchanges on pooled connections: all of a body arrives, nothing of one exchange gets into another, nothing is left open."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvloop

from palyra.adapters.net.client import HttpClient, Outgoing, Timeouts
from palyra.adapters.net.response import READ_BYTES
from palyra.adapters.net.wire import WHOLE_BYTES_MAX, RequestTarget
from palyra.core.errors import Unavailable
from tests.support.waiting import WAIT_S, until

BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
TEST_S = WAIT_S


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


Script = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Any]


class Player:
    """A server that hears one head after the other on each connection and lets `script` answer."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.heads: list[bytes] = []
        self.opened: list[asyncio.StreamWriter] = []
        self.closed_count = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened.append(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.append(head)
                await self.script(head, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.closed_count += 1
            writer.close()


@asynccontextmanager
async def playing(script: Script) -> AsyncIterator[tuple[Player, HttpClient]]:
    player, client = Player(script), HttpClient()
    listening = await asyncio.start_server(player.serve, "127.0.0.1", 0)
    player.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/a?b=c#d"
    try:
        async with asyncio.timeout(TEST_S), listening:
            try:
                yield player, client
            finally:
                await client.close()
    finally:
        await client.close()


def saying(*pieces: bytes) -> Script:
    async def script(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return script


async def got(client: HttpClient, url: str) -> bytes:
    whole = b""
    async with client.get(Outgoing(url=url, headers={})) as reply:
        while chunk := await reply.read_some(TEST_S):
            whole += chunk
    return whole


async def test_the_next_request_takes_the_same_connection() -> None:
    async with playing(saying(ANSWER)) as (player, client):
        assert [await got(client, player.url) for _ in range(5)] == [b"ok"] * 5
        assert len(player.opened) == 1


@pytest.mark.parametrize(
    "said",
    [
        ANSWER + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother",
        ANSWER + b"more",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
async def test_a_connection_on_which_something_may_follow_is_not_used_again(said: bytes) -> None:
    async with playing(saying(said)) as (player, client):
        assert [await got(client, player.url) for _ in range(3)] == [b"ok"] * 3
        assert len(player.opened) == 3


async def test_what_a_server_says_on_an_idle_connection_is_nobodys_answer() -> None:
    async with playing(saying(ANSWER)) as (player, client):
        assert await got(client, player.url) == b"ok"
        player.opened[0].write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await asyncio.sleep(0.05)
        assert await got(client, player.url) == b"ok"
        assert len(player.opened) == 2


async def test_every_spoiled_idle_connection_is_passed_over() -> None:
    async def script(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await until(lambda: len(player.opened) >= 3)
        writer.write(ANSWER)

    async with playing(script) as (player, client):
        await asyncio.gather(*(got(client, player.url) for _ in range(3)))
        await asyncio.sleep(0.1)  # A spare is looked for now, and would find them too.
        for writer in player.opened:
            writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 4\r\n\r\nlate")
        await asyncio.sleep(0.05)
        assert await got(client, player.url) == b"ok"
        assert len(player.opened) == 4


@pytest.mark.parametrize(("greeting", "code"), [(b"220 hello\r\n", "not_http"), (BUSY, None)])
def test_what_a_server_says_before_it_is_asked_is_its_answer(greeting: bytes, code: str | None) -> None:
    closed: list[int] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        closed.append(1)

    async def scene() -> None:
        async with await asyncio.start_server(greet, "127.0.0.1", 0) as listening, asyncio.timeout(TEST_S):
            client = HttpClient()
            outgoing = Outgoing(url=f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/", headers={})
            for _ in range(3):
                try:
                    async with client.post(outgoing) as reply:
                        assert (reply.status, await reply.read_some(TEST_S)) == (503, b"busy")
                        assert code is None
                except Unavailable as fault:
                    assert fault.code == code
            await client.close()
            await until(lambda: len(closed) == 3)

    uvloop.run(scene())  # There the first bytes are here before anybody could ask for them.


async def test_what_changes_nothing_is_asked_again_when_an_idle_connection_was_gone() -> None:
    async def script(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(player.heads) == 2:
            writer.transport.abort()
        writer.write(ANSWER)

    async with playing(script) as (player, client):
        assert await got(client, player.url) == b"ok"
        assert await got(client, player.url) == b"ok"
        assert len(player.heads) == 3


async def test_what_may_change_something_is_never_asked_again() -> None:
    async def script(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(player.heads) == 2:
            writer.transport.abort()
        writer.write(ANSWER)

    async with playing(script) as (player, client):
        assert await asked(client, player.url, b"") == b"ok"
        with pytest.raises(Unavailable) as fault:
            await asked(client, player.url, b"")
        assert fault.value.code == "closed"
        assert len(player.heads) == 2


async def test_leaving_a_reply_ends_a_read_that_is_under_way() -> None:
    async with playing(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")) as (player, client):
        async with client.get(Outgoing(url=player.url, headers={})) as reply:
            assert await reply.read_some(TEST_S) == b"half"
            reading = asyncio.create_task(reply.read_some(TEST_S))
            await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await reading
        with pytest.raises(Unavailable):
            await reply.read_some(TEST_S)


async def test_a_client_can_be_closed_while_a_server_does_not_read() -> None:
    async def script(_head: bytes, _reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(TEST_S)

    async with playing(script) as (player, client):
        asking = asyncio.create_task(asked(client, player.url, b"x" * (32 * WHOLE_BYTES_MAX)))
        await until(lambda: bool(player.heads))
        async with asyncio.timeout(TEST_S / 2):
            await client.close()
        with pytest.raises(Unavailable):
            await asking


async def test_a_body_without_a_length_is_whole_when_the_connection_ends() -> None:
    async def script(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall there is")
        writer.close()

    async with playing(script) as (player, client):
        assert await got(client, player.url) == b"all there is"


async def test_what_came_before_a_break_is_given_before_it_is_told() -> None:
    async def script(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    async with playing(script) as (player, client), client.get(Outgoing(url=player.url, headers={})) as reply:
        await asyncio.sleep(0.05)
        assert await reply.read_some(TEST_S) == b"half"
        with pytest.raises(Unavailable, match="broke off"):
            await reply.read_some(TEST_S)


async def test_an_early_answer_to_a_large_body_is_heard_and_its_connection_closed() -> None:
    async def script(head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await asyncio.sleep(0.1)

    async with playing(script) as (player, client):
        outgoing = Outgoing(url=player.url, headers={}, body=b"x" * (16 * WHOLE_BYTES_MAX))
        async with client.post(outgoing) as reply:
            assert (reply.status, reply.reason) == (413, "Too Large")
            assert await reply.read_some(TEST_S) == b"no"
        assert await got(client, player.url) == b"no"
        assert len(player.opened) == 2


async def test_a_server_that_reads_nothing_of_a_large_body_is_given_up_in_time() -> None:
    async def script(_head: bytes, _reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(TEST_S)

    async with playing(script) as (player, client):
        code = ""
        for connect_s in (0.1, 5.0, 50.0):  # A busy machine may not even connect in a short time.
            timeouts = Timeouts(connect_s=connect_s, first_byte_s=0.1)
            outgoing = Outgoing(url=player.url, headers={}, body=b"x" * (16 * WHOLE_BYTES_MAX), timeouts=timeouts)
            with pytest.raises(Unavailable) as fault:
                async with client.post(outgoing):
                    pass
            code = fault.value.code
            if code != "connect_timed_out":
                break
        assert code == "timed_out"


async def test_a_reader_that_takes_its_time_holds_the_server_up() -> None:
    sent_bytes = 0
    total_bytes = 64 * 1024 * 1024

    async def script(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent_bytes
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total_bytes)
        for _ in range(total_bytes // READ_BYTES):
            writer.write(b"x" * READ_BYTES)
            await writer.drain()
            sent_bytes += READ_BYTES

    async with playing(script) as (player, client), client.get(Outgoing(url=player.url, headers={})) as reply:
        await asyncio.sleep(0.3)
        assert sent_bytes < total_bytes // 2
        first = await reply.read_some(TEST_S)
        assert len(first) <= 4 * READ_BYTES
        size = len(first)
        while chunk := await reply.read_some(TEST_S):
            size += len(chunk)
        assert size == total_bytes


async def test_cancelling_at_any_moment_leaves_nothing_open_and_spoils_nothing() -> None:
    async def script(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in (b"HTTP/1.1 200 OK\r\n", b"Content-Length: 4\r\n\r\n", b"ab", b"cd"):
            writer.write(piece)
            await asyncio.sleep(0.002)

    async with playing(script) as (player, client):
        for turns in range(40):
            asking = asyncio.create_task(got(client, player.url))
            for _ in range(turns):
                await asyncio.sleep(0.0003)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert client._pool is None or not client._pool.out
            assert await got(client, player.url) == b"abcd"
        await client.close()
        await until(lambda: player.closed_count == len(player.opened))


async def test_closing_the_client_ends_what_is_out() -> None:
    async with playing(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")) as (player, client):
        async with client.get(Outgoing(url=player.url, headers={})) as reply:
            assert await reply.read_some(TEST_S) == b"half"
            await client.close()
            with pytest.raises(Unavailable, match="broke off"):
                await reply.read_some(TEST_S)
        await until(lambda: player.closed_count == 1)


async def test_interim_answers_are_passed_over() -> None:
    async with playing(saying(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hm\r\nA: b\r\n\r\n", ANSWER)) as it:
        player, client = it
        assert await got(client, player.url) == b"ok"


def lines_of(url: str, method: str = "POST", length: int = 3, **headers: str) -> list[str]:
    return RequestTarget(url).head(method, headers, length).decode().split("\r\n")


async def test_a_request_says_what_is_asked_and_what_every_request_says() -> None:
    lines = lines_of("http://example.com:8080/a%20b?c=d#e", Accept="text/plain", authorization="Bearer x")
    assert lines[0] == "POST /a%20b?c=d HTTP/1.1"
    assert {"Host: example.com:8080", "Accept: text/plain", "authorization: Bearer x", "Content-Length: 3"} <= set(
        lines
    )
    assert sum(line.lower().startswith("accept:") for line in lines) == 1
    assert lines[-2:] == ["", ""]


async def test_hosts_are_named_as_they_must_be() -> None:
    assert "Host: [::1]:9" in lines_of("http://[::1]:9/")
    assert "Host: example.com" in lines_of("https://example.com:443/")
    assert "Host: xn--bcher-kva.example" in lines_of("http://b\u00fccher.example")
    assert "Authorization: Basic dTpw" in lines_of("http://u:p@example.com/")
    assert "Authorization: Basic dTpw" not in lines_of("http://u:p@example.com/", authorization="Bearer x")


async def test_the_length_of_a_body_is_said_where_one_is_expected() -> None:
    assert "Content-Length: 0" in lines_of("http://example.com/", "POST", 0)
    assert not any("Content-Length" in line for line in lines_of("http://example.com/", "GET", 0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X", "a\r\nY: b"),
        ("X", "a\nb"),
        ("X\r\nY", "b"),
        ("X Y", "b"),
        ("", "b"),
        ("X", "a\0"),
        ("Content-Length", "3"),
    ],
)
async def test_a_header_that_would_not_stay_in_its_line_is_refused(name: str, value: str) -> None:
    async with playing(saying(ANSWER)) as (player, client):
        with pytest.raises(Unavailable):
            async with client.get(Outgoing(url=player.url, headers={name: value})):
                pass
        assert player.heads == []


@pytest.mark.parametrize("url", ["ftp://example.com/", "example.com", "", "http://", "http://[::1", "http://a:99999/"])
async def test_what_is_no_address_is_said_so(url: str) -> None:
    client = HttpClient()
    with pytest.raises(Unavailable) as fault:
        async with client.get(Outgoing(url=url, headers={})):
            pass
    assert fault.value.code == "address_invalid"
    await client.close()
