"""Servers over streamable HTTP, run in a process of their own on this machine."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.runtimes.mcp.http import RECONNECT_EVERY_S_MIN, _ReconnectPace
from palyra.adapters.runtimes.mcp.server import ServerState
from palyra.adapters.runtimes.mcp.servers import McpServers
from palyra.adapters.runtimes.mcp.settings import ServerSettings
from palyra.core.events.tool import Outcome
from tests.support.mcp_servers.running import QUICK, find, ready, running, status, use
from tests.support.ports import free_port
from tests.support.tool_calls import code_of
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
SCRIPT = Path(__file__).parents[1] / "support" / "mcp_servers" / "http_server.py"


@asynccontextmanager
async def http_server(port: int, *arguments: str) -> AsyncIterator[int]:
    command = (sys.executable, str(SCRIPT), str(port), *arguments)
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    try:
        yield process.pid
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def over_http(port: int, **fields: object) -> ServerSettings:
    given: dict[str, object] = {"name": "web", "url": f"http://127.0.0.1:{port}/mcp", "timeouts": QUICK, **fields}
    return ServerSettings(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["events", "json"])
async def test_tools_resources_and_prompts_over_http(form: str) -> None:
    port = free_port()
    async with http_server(port, form), ready(over_http(port)) as servers:
        assert (await use(servers, "mcp.web.add", {"a": 2, "b": 3})).output == "5"
        assert find(servers, "mcp.web.add").nature({}, ()).host == "127.0.0.1"
        assert "note://one" in (await use(servers, "mcp.resources", {"server": "web"})).output
        read = await use(servers, "mcp.read", {"server": "web", "uri": "note://one"})
        assert read.output == "[resource note://one]\nwhat the note says"
        prompt = await use(servers, "mcp.prompt", {"server": "web", "name": "greeting", "arguments": {"name": "Ada"}})
        assert prompt.output == "user:\nGreet Ada."
        missing = await use(servers, "mcp.read", {"server": "web", "uri": "note://none"})
        assert code_of(missing) == "server_refused"


async def test_call_over_http_that_takes_too_long_ends_and_the_next_one_works() -> None:
    port = free_port()
    async with http_server(port), ready(over_http(port, timeout_s=0.5)) as servers:
        starts_count = status(servers, "web").starts_count
        assert (await use(servers, "mcp.web.wait", {"seconds": 60})).outcome is Outcome.TIMEOUT

        async def is_answered() -> bool:
            return (await use(servers, "mcp.web.add", {"a": 1, "b": 1})).output == "2"

        await until(is_answered)  # The same limit is short for any call on a busy machine.
        assert status(servers, "web").starts_count == starts_count


@pytest.mark.parametrize("form", ["events", "json"])
async def test_answer_over_http_beyond_the_limit_harms_nothing(form: str) -> None:
    port = free_port()
    async with http_server(port, form), ready(over_http(port)) as servers:
        starts_count = status(servers, "web").starts_count
        waiting = asyncio.create_task(use(servers, "mcp.web.wait", {"seconds": 1}))
        result = await use(servers, "mcp.web.grow", {"count": 20 * 1024 * 1024})
        assert code_of(result) == "answer_too_large"
        assert (await waiting).output == "waited"
        assert (await use(servers, "mcp.web.add", {"a": 1, "b": 1})).output == "2"
        assert status(servers, "web").starts_count == starts_count


async def test_server_over_http_that_went_away_is_found_again() -> None:
    port = free_port()
    async with running(over_http(port, timeouts=replace(QUICK, restart_wait_s=20))) as servers:
        await until(lambda: status(servers, "web").state is ServerState.DOWN)
        assert "cannot be reached" in servers.missing()[0].reason
        async with http_server(port) as pid:
            await until(lambda: status(servers, "web").state is ServerState.READY)
            os.kill(pid, signal.SIGKILL)
        lost = await use(servers, "mcp.web.add", {"a": 1, "b": 1})
        assert code_of(lost) in ("connection_lost", "server_down")
        async with http_server(port):
            await until(lambda: status(servers, "web").state is ServerState.READY)
            assert (await use(servers, "mcp.web.add", {"a": 1, "b": 2})).output == "3"


async def answer_with(reply: bytes, seen: list[bytes], port: int) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(reply)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", port)


async def test_redirect_to_another_host_is_not_followed_and_the_token_stays() -> None:
    port, other = free_port(), free_port()
    seen: list[bytes] = []
    elsewhere: list[bytes] = []
    location = f"http://127.0.0.1:{other}/mcp".encode()
    reply = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"
    async with (
        await answer_with(reply, seen, port),
        await answer_with(b"HTTP/1.1 200 OK\r\n\r\n", elsewhere, other),
        running(over_http(port, token=lambda: "the-token")) as servers,
    ):
        await until(lambda: status(servers, "web").state is ServerState.DOWN)
    assert b"authorization: bearer the-token" in seen[0].lower()
    assert elsewhere == []


async def test_compressed_answer_is_not_read() -> None:
    port = free_port()
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"
    )
    async with await answer_with(head, [], port), running(over_http(port)) as servers:
        await until(lambda: status(servers, "web").state is ServerState.DOWN)


async def test_server_that_greets_and_then_hangs_on_everything_is_given_up_and_closed() -> None:
    port = free_port()
    body = (
        b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
        b'"serverInfo":{"name":"x","version":"1"}}}'
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s\r\nContent-Length: %d\r\n\r\n"
    hanging = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if not hanging.is_set():
            hanging.set()
            writer.write(head % len(body) + body)
        await reader.read()  # Until the client lets go of it.
        writer.close()

    settings = over_http(port, timeouts=replace(QUICK, request_s=0.5))
    async with await asyncio.start_server(serve, "127.0.0.1", port), running(settings) as servers:
        await until(lambda: status(servers, "web").state is ServerState.DOWN)
        assert servers.tools() == ()


async def test_missing_secret_is_the_reason_and_nothing_is_sent() -> None:
    from palyra.core.errors import Unavailable

    def no_token() -> str | None:
        raise Unavailable("secret_missing", "vault:web is not there; run: palyra secrets set web")

    servers: McpServers
    async with running(over_http(free_port(), token=no_token)) as servers:
        await until(lambda: status(servers, "web").state is ServerState.DOWN)
        assert servers.missing()[0].reason.endswith("palyra secrets set web")


async def test_a_server_that_asks_for_reconnects_at_once_is_reconnected_once_a_second() -> None:
    pace = _ReconnectPace()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for _ in range(3):
        await pace.wait()
    assert loop.time() - began_s >= 2 * RECONNECT_EVERY_S_MIN
