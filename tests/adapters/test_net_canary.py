"""What our own HTTP protocol needs of aiohttp, yarl, multidict and httptools, one claim a test.

`adapters/net` speaks to model providers over aiohttp's connections and without its session. Parts of what it uses are not
promised by aiohttp's documentation. A release that changes one of them fails here first, with the name of the file to change.
"""

import asyncio
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from typing import cast

import aiohttp
import pytest


@contextmanager
def needed_by(module: str) -> Iterator[None]:
    """Whatever goes wrong inside is told with the file that breaks and the way out."""
    try:
        yield
    except Exception as cause:
        versions = ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "yarl", "multidict", "httptools"))
        raise AssertionError(
            f"adapters/net/{module}.py breaks with {versions}: {cause!r}. Adapt that file to this release. If that takes more "
            "than a few lines, let adapters/net/client.py use aiohttp.ClientSession instead: Reply then reads "
            "response.content.readany(), and wire, response, response_parser, pool and preconnect go. "
            "Until then keep the release out in pyproject.toml."
        ) from cause


with needed_by("pool"):
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
with needed_by("response_parser"):
    from httptools import HttpResponseParser
    from multidict import CIMultiDict
with needed_by("wire"):
    from yarl import URL

    from palyra.adapters.net.wire import RequestTarget

WAIT_S = 30.0
TIMEOUT = aiohttp.ClientTimeout(total=None, connect=WAIT_S)


class Upstream:
    """A server that says what it is told to, and keeps what it heard."""

    def __init__(self) -> None:
        self.port = 0
        self.heard = b""
        self.peers: list[asyncio.StreamWriter] = []
        self.has_peer = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/chat?q=1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.append(writer)
        self.has_peer.set()
        try:
            while data := await reader.read(65_536):
                self.heard += data
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def upstream() -> AsyncIterator[Upstream]:
    said = Upstream()
    server = await asyncio.start_server(said.serve, "127.0.0.1", 0)
    said.port = server.sockets[0].getsockname()[1]
    try:
        yield said
    finally:
        server.close()
        for peer in said.peers:
            peer.close()


@asynccontextmanager
async def connector(**options: float) -> AsyncIterator[aiohttp.TCPConnector]:
    made = aiohttp.TCPConnector(limit=int(options.pop("limit", 0)), **options)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.close()


async def connect(source: aiohttp.TCPConnector, server: Upstream) -> Connection:
    return await source.connect(RequestTarget(server.url).request, [], TIMEOUT)


async def until(condition: object) -> None:
    """Waits for something that the loop brings about."""
    assert callable(condition)
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


class Listener(asyncio.Protocol):
    """In the place of aiohttp's protocol, as an exchange is."""

    def __init__(self) -> None:
        self.data = b""
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, cause: Exception | None) -> None:
        self.is_lost = True


async def test_request_is_made_without_a_session_and_names_its_target_and_headers() -> None:
    with needed_by("wire"):
        request = aiohttp.ClientRequest("GET", URL("http://127.0.0.1:8080/v1/a b?q=ü"))
        assert request.url.raw_path_qs == "/v1/a%20b?q=%C3%BC"
        names = {name.lower() for name in request.headers}
        assert {"host", "accept", "accept-encoding", "user-agent"} <= names
        assert not names & {"content-length", "transfer-encoding", "connection", "cookie", "authorization"}
        assert request.headers["Host"] == "127.0.0.1:8080"
        assert request.connection_key == aiohttp.ClientRequest("GET", URL("http://127.0.0.1:8080/other")).connection_key


def test_addresses_are_read_as_they_are_sent() -> None:
    with needed_by("wire"):
        assert URL("http://host").raw_path_qs == "/"
        assert URL("HTTP://Host/%2e?a=b&a=c").scheme == "http"
        assert URL("http://bücher.example/").raw_host == "xn--bcher-kva.example"
        assert issubclass(aiohttp.InvalidURL, ValueError)
        with pytest.raises(ValueError, match="IPv6"):
            URL("http://[")


async def test_connector_gives_a_connection_with_its_transport_and_protocol() -> None:
    with needed_by("pool"):
        async with upstream() as server, connector() as source:
            connection = await connect(source, server)
            assert isinstance(connection.protocol, ResponseHandler)
            assert isinstance(connection.transport, asyncio.Transport)
            assert connection.transport.get_protocol() is connection.protocol
            assert not connection.protocol.should_close
            connection.close()


async def test_protocol_can_be_held_in_a_weak_set() -> None:
    with needed_by("pool"):
        protocol = ResponseHandler(asyncio.get_running_loop())
        assert protocol in weakref.WeakSet([protocol])


async def test_released_connection_is_the_next_one() -> None:
    with needed_by("pool"):
        async with upstream() as server, connector() as source:
            first = await connect(source, server)
            protocol = first.protocol
            first.release()
            assert first.protocol is None
            assert first.transport is None
            second = await connect(source, server)
            assert second.protocol is protocol
            second.close()


async def test_unused_connection_may_be_given_back_and_nothing_is_sent_on_it() -> None:
    with needed_by("preconnect"):
        async with upstream() as server, connector() as source:
            first, second = await connect(source, server), await connect(source, server)
            protocols = {first.protocol, second.protocol}
            first.release()
            second.release()
            again = [await connect(source, server), await connect(source, server)]
            assert {each.protocol for each in again} == protocols
            await until(lambda: len(server.peers) == 2)
            assert server.heard == b""
            for each in again:
                each.close()


async def test_closed_connection_ends_and_is_not_given_again() -> None:
    with needed_by("response"):
        async with upstream() as server, connector() as source:
            first = await connect(source, server)
            protocol, transport = first.protocol, first.transport
            first.close()
            assert transport is not None
            assert transport.is_closing()
            first.close()  # Twice does nothing.
            second = await connect(source, server)
            assert second.protocol is not protocol
            second.close()


async def test_connection_that_should_close_is_not_kept() -> None:
    with needed_by("pool"):
        async with upstream() as server, connector() as source:
            first = await connect(source, server)
            protocol = cast(ResponseHandler, first.protocol)
            protocol.force_close()
            assert protocol.should_close
            first.release()
            second = await connect(source, server)
            assert second.protocol is not protocol
            second.close()


async def test_idle_connection_that_ended_is_not_given() -> None:
    with needed_by("pool"):
        async with upstream() as server, connector() as source:
            first = await connect(source, server)
            protocol, transport = first.protocol, first.transport
            first.release()
            await asyncio.wait_for(server.has_peer.wait(), WAIT_S)
            server.peers[0].close()
            await until(lambda: transport is None or transport.is_closing())
            second = await connect(source, server)
            assert second.protocol is not protocol
            second.close()


async def test_idle_connection_that_is_too_old_is_not_given() -> None:
    with needed_by("client"):
        async with upstream() as server, connector(keepalive_timeout=0.01) as source:
            first = await connect(source, server)
            protocol = first.protocol
            first.release()
            await asyncio.sleep(0.02)
            second = await connect(source, server)
            assert second.protocol is not protocol
            second.close()


async def test_what_is_said_on_an_idle_connection_marks_it_and_is_handed_to_a_parser() -> None:
    with needed_by("wire"):
        async with upstream() as server, connector() as source:
            first = await connect(source, server)
            protocol = cast(ResponseHandler, first.protocol)
            first.release()
            await asyncio.wait_for(server.has_peer.wait(), WAIT_S)
            server.peers[0].write(b"HTTP/1.1 408 Bye\r\n\r\n")
            await until(lambda: protocol.should_close)
            second = await connect(source, server)
            assert second.protocol is protocol, "the connector now passes over such connections: pool.take need not"
            kept = Kept()
            protocol.set_parser(kept, None)
            assert kept.data == b"HTTP/1.1 408 Bye\r\n\r\n"
            second.close()


class Kept:
    def __init__(self) -> None:
        self.data = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        """There is nothing to finish."""


async def test_transport_speaks_to_another_protocol_and_back() -> None:
    with needed_by("response"):
        async with upstream() as server, connector() as source:
            first = await connect(source, server)
            protocol, transport = cast(ResponseHandler, first.protocol), cast(asyncio.Transport, first.transport)
            ours = Listener()
            transport.set_protocol(ours)
            transport.write(b"ping")
            await until(lambda: server.heard == b"ping")
            server.peers[0].write(b"pong")
            await until(lambda: ours.data == b"pong")
            assert not protocol.should_close  # It heard nothing of it.
            transport.set_protocol(protocol)
            first.release()
            second = await connect(source, server)
            assert second.protocol is protocol
            second.close()


async def test_protocol_takes_the_news_of_a_lost_connection_from_us() -> None:
    with needed_by("response"):
        async with upstream() as server, connector() as source:
            first = await connect(source, server)
            protocol, transport = cast(ResponseHandler, first.protocol), cast(asyncio.Transport, first.transport)
            ours = Listener()
            transport.set_protocol(ours)
            await asyncio.wait_for(server.has_peer.wait(), WAIT_S)
            server.peers[0].close()
            await until(lambda: ours.is_lost)
            protocol.connection_lost(None)
            assert protocol.should_close
            first.close()


async def test_wait_for_a_connection_ends_with_timeout_error() -> None:
    with needed_by("pool"):
        async with upstream() as server, connector(limit=1) as source:
            held = await connect(source, server)
            request = RequestTarget(server.url).request
            with pytest.raises(TimeoutError):
                await source.connect(request, [], aiohttp.ClientTimeout(total=None, connect=0.02))
            held.close()


async def test_limit_of_zero_is_no_limit() -> None:
    with needed_by("client"):
        async with upstream() as server, connector() as source:
            many = [await connect(source, server) for _ in range(120)]  # More than a connector allows by itself.
            for each in many:
                each.close()


async def test_closing_the_connector_closes_idle_connections_and_those_that_are_out() -> None:
    with needed_by("pool"):
        async with upstream() as server:
            source = aiohttp.TCPConnector(limit=0)
            idle, out = await connect(source, server), await connect(source, server)
            transports = [idle.transport, out.transport]
            idle.release()
            await source.close()
            assert all(each is not None and each.is_closing() for each in transports)
            out.close()


async def test_refused_connection_says_why() -> None:
    with needed_by("client"):
        async with connector() as source:
            nobody = Upstream()
            nobody.port = 1
            with pytest.raises(aiohttp.ClientConnectorError) as refused:
                await connect(source, nobody)
            assert refused.value.os_error.strerror
        for error in (
            aiohttp.ClientConnectorCertificateError,
            aiohttp.ClientConnectorSSLError,
            aiohttp.ClientConnectorDNSError,
        ):
            assert issubclass(error, aiohttp.ClientError)


def test_headers_are_kept_in_order_without_regard_to_case() -> None:
    with needed_by("response_parser"):
        headers: CIMultiDict[str] = CIMultiDict()
        headers.add("Set-Cookie", "a")
        headers.add("set-cookie", "b")
        assert headers.getall("SET-COOKIE", ()) == ["a", "b"]
        assert headers.getall("absent", ()) == ()
        assert "sEt-cookie" in headers
        assert headers.get("content-type", "") == ""
        headers.clear()
        assert not headers


def test_parser_calls_back_and_takes_our_leniencies() -> None:
    with needed_by("response_parser"):
        heard: list[object] = []

        class Callbacks:
            def on_status(self, status: bytes) -> None:
                heard.append(status)

            def on_header(self, name: bytes, value: bytes) -> None:
                heard.append((name, value))

            def on_body(self, body: bytes) -> None:
                heard.append(body)

            def on_message_complete(self) -> None:
                heard.append(("whole", parser.get_status_code(), parser.should_keep_alive()))

        parser = HttpResponseParser(Callbacks())
        parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        parser.feed_data(b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2 \r\nhi\r\n0\r\n\r\n")
        assert heard == [b"OK", (b"Transfer-Encoding", b"chunked"), b"hi", ("whole", 200, True)]
