"""Servers over HTTP that mean harm, or stand behind a proxy that breaks: what a call came to is told as it was."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import httpx2
import pytest

from palyra.adapters.runtimes.mcp.http import bounded_stream_class
from palyra.adapters.runtimes.mcp.settings import MESSAGE_BYTES_MAX
from palyra.core.events.tool import Outcome
from tests.runtimes.test_mcp_http import over_http
from tests.support.mcp_servers.running import ready, status, use
from tests.support.ports import free_port
from tests.support.tool_calls import code_of
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
ECHO = {"name": "echo", "description": "Echoes.", "inputSchema": {"type": "object"}}
GREETING = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
Answer = Callable[[dict[str, object]], bytes]


def reply(body: object, status: str = "200 OK", media_type: str = "application/json") -> bytes:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {len(encoded)}\r\nMcp-Session-Id: s\r\n"
    return head.encode() + b"\r\n" + encoded


def result(request: dict[str, object], value: object) -> bytes:
    return reply({"jsonrpc": "2.0", "id": request["id"], "result": value})


def error(request: dict[str, object], code: int) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": "the server's own words"}}


@asynccontextmanager
async def raw_server(
    port: int, call: Answer, first: Callable[[dict[str, object]], bytes | None] = lambda _: None
) -> AsyncIterator[None]:
    """A server that greets and lists one tool; `call` gives the bytes of the answer to everything else.

    `first` may answer any request in its place.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if not head.startswith(b"POST"):
                    writer.write(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
                    continue
                sizes = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                request = json.loads(await reader.readexactly(int(sizes[0])))
                writer.write(first(request) or _answer(request, call))
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", port):
        yield


def _answer(request: dict[str, object], call: Answer) -> bytes:
    match request:
        case {"method": "initialize"}:
            return result(request, GREETING)
        case {"method": "tools/list"}:
            return result(request, {"tools": [ECHO]})
        case {"method": "ping"}:
            return result(request, {})
        case {"id": _, "method": _}:
            return call(request)
        case _:
            return b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


def events(*messages: object) -> bytes:
    return b"".join(b"event: message\ndata: " + json.dumps(each).encode() + b"\n\n" for each in messages)


@pytest.mark.parametrize("form", ["json", "events", "refusal"])
@pytest.mark.parametrize("code", [-32000, -32001])
async def test_an_error_with_a_code_of_our_own_failures_is_the_servers_answer(code: int, form: str) -> None:
    def call(request: dict[str, object]) -> bytes:
        if form == "events":
            return reply(events(error(request, code)), media_type="text/event-stream")
        return reply(error(request, code), "400 Bad Request" if form == "refusal" else "200 OK")

    port = free_port()
    async with raw_server(port, call), ready(over_http(port)) as servers:
        refused = await use(servers, "mcp.web.echo", {})
        assert (code_of(refused), refused.is_unknown) == ("server_refused", False)
        assert refused.output == "the server's own words"
        assert status(servers, "web").starts_count == 1


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"<h1>Gateway Timeout</h1>", "504 Gateway Timeout", "text/html"),
        reply({"message": "upstream"}, "502 Bad Gateway"),
        reply(b"<h1>Welcome</h1>", media_type="text/html"),
        reply(b'{"jsonrpc"', media_type="application/json"),
        reply(b"", media_type="text/event-stream"),
        reply(b"event: message\ndata: {\n\n", media_type="text/event-stream"),
        b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: /done\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 303 See Other\r\nLocation: /done\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["504", "502", "page", "half", "no-event", "half-event", "202", "302", "303"],
)
async def test_a_call_without_the_servers_answer_is_not_known_to_have_failed(answer: bytes) -> None:
    port = free_port()
    async with raw_server(port, lambda _: answer), ready(over_http(port)) as servers:
        lost = await use(servers, "mcp.web.echo", {})
        assert (code_of(lost), lost.is_unknown) == ("connection_lost", True)


@pytest.mark.parametrize("refusal", ["401 Unauthorized", "429 Too Many Requests"])
async def test_a_refusal_without_the_protocols_words_is_one(refusal: str) -> None:
    port = free_port()
    async with raw_server(port, lambda _: reply(b"no", refusal, "text/plain")), ready(over_http(port)) as servers:
        refused = await use(servers, "mcp.web.echo", {})
        assert (code_of(refused), refused.is_unknown) == ("server_refused", False)


@pytest.mark.parametrize("form", ["plain", "python", "typescript"])
async def test_a_session_that_the_server_forgot_is_begun_again(form: str) -> None:
    forgotten = asyncio.Event()

    def first(request: dict[str, object]) -> bytes | None:
        if request.get("method") == "initialize":
            forgotten.clear()
        if not forgotten.is_set() or "id" not in request:
            return None
        match form:
            case "plain":
                return reply(b"no", "404 Not Found", "text/plain")
            case "python":
                return reply(error(request, -32600), "404 Not Found")
            case _:
                return reply(error(request, -32000), "400 Bad Request")

    def call(request: dict[str, object]) -> bytes:
        return result(request, {"content": [{"type": "text", "text": "hi"}]})

    port = free_port()
    async with raw_server(port, call, first), ready(over_http(port)) as servers:
        forgotten.set()
        assert code_of(await use(servers, "mcp.web.echo", {})) == "server_refused"
        await until(lambda: status(servers, "web").starts_count == 2)
        assert (await use(servers, "mcp.web.echo", {})).output == "hi"


async def test_questions_without_end_over_http_fill_nothing() -> None:
    def call(request: dict[str, object]) -> bytes:
        flood = events(*({"jsonrpc": "2.0", "id": n, "method": "roots/list"} for n in range(60_000)))
        answered = events({"jsonrpc": "2.0", "id": request["id"], "result": {"content": []}})
        return reply(flood + answered, media_type="text/event-stream")

    port = free_port()
    async with raw_server(port, call), ready(over_http(port)) as servers:
        before_count = len(asyncio.all_tasks())
        answer = await use(servers, "mcp.web.echo", {})
        assert answer.outcome is Outcome.OK
        assert len(asyncio.all_tasks()) - before_count < 100


@pytest.mark.parametrize("cuts", [("\n", "\n"), ("\n\r", "\n"), ("\n", "\r\n"), ("", "\n\n"), ("\n\n", "")])
async def test_messages_whose_end_is_split_are_measured_each_by_itself(cuts: tuple[str, str]) -> None:
    """Where a network cuts a stream of events is luck. A long stream of short messages is no long message."""
    before, after = (cut.encode() for cut in cuts)

    class Cut:
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for _ in range(8):
                yield after + b"x" * (MESSAGE_BYTES_MAX // 4) + before

    pieces = [piece async for piece in bounded_stream_class()(Cut(), None, has_many_messages=True)]
    assert len(pieces) == 8


async def test_a_message_without_end_is_cut_off_however_it_is_split() -> None:
    class Endless:
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for _ in range(8):
                yield b"x" * (MESSAGE_BYTES_MAX // 4) + b"\n"

    with pytest.raises(httpx2.StreamError):
        [piece async for piece in bounded_stream_class()(Endless(), None, has_many_messages=True)]


async def test_an_answer_of_tiny_pieces_lets_others_work_meanwhile() -> None:
    """A piece of one byte is at hand as quickly as it is read. Ten thousand of them held the loop for 0.2 s."""

    class Tiny:
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for _ in range(10_000):
                yield b" "

    async def read() -> None:
        [piece async for piece in bounded_stream_class()(Tiny(), None, has_many_messages=False)]

    turns_count = 0
    reading = asyncio.create_task(read())
    while not reading.done():
        turns_count += 1
        await asyncio.sleep(0)
    assert turns_count >= 20


async def test_blank_lines_inside_of_one_answer_hide_none_of_its_parts() -> None:
    """An answer that is no stream of events is one message. Millions of parts in it hold the loop for seconds."""
    many = b"\n\n".join([b"[]," * 20_000] * 15)

    def call(request: dict[str, object]) -> bytes:
        head = json.dumps({"jsonrpc": "2.0", "id": request["id"]}).encode()[:-1]
        return reply(head + b',"result":{"content":[' + many + b"[]]}}")

    port = free_port()
    async with raw_server(port, call), ready(over_http(port)) as servers:
        assert code_of(await use(servers, "mcp.web.echo", {})) == "answer_too_large"
