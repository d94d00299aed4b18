"""Strangers who open connections, and send too slowly, too little, too much or nonsense: the daemon goes on answering.

The suite makes few of them. The campaign makes 10,000, alone on the machine, and holds the time of an answer too.
"""

import asyncio
import os
import random
import resource
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from palyra.app.open_files import FILES_WANTED
from tests.support.daemons import Daemon

pytestmark = pytest.mark.anyio

IS_CAMPAIGN = "FLOOD_ATTEMPTS" in os.environ
ATTEMPTS = int(os.environ.get("FLOOD_ATTEMPTS", "200"))
AT_ONCE = 50  # Fewer than the daemon below keeps open: a newcomer has the time to say something.
HELD_MAX = 400  # Far more than the daemon below keeps open.
FILES = 256  # So few that the attempts of the suite reach the daemon's limits: a half is for HTTP.
GROWTH_MIB_MAX = 200  # Four uploads of 32 MiB, and the connections.
HEALTH_S_MAX = 0.25  # On a machine that does nothing else: a core answers the whole backlog in half of that.
LOG_LINES_MAX = 100  # Else strangers fill the disk.
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
HALF_BODY = b"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
LARGE_BODY_BYTES = 100 * 1024 * 1024
PIECE = b"x" * 65_536
LARGE_PATHS = ("/api/v1/runs", "/api/v1/artifacts", "/v1/chat/completions", "/mcp", "/api/v1/memory")


SET_FILES = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({}, {})); "
SERVE = "from palyra.cli.main import main; main()"

Held = deque[asyncio.StreamWriter]


class LimitedDaemon(Daemon):
    """A daemon that may have few files open, and cannot ask for more."""

    program = ("-c", SET_FILES.format(FILES, FILES) + SERVE)


class ModestDaemon(Daemon):
    """A daemon that may have few files open at first, as on many systems."""

    program = ("-c", SET_FILES.format(FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]) + SERVE)


@asynccontextmanager
async def opened(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def stay_silent(port: int, held: Held) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    held.append(writer)


async def stay_in_the_head(port: int, held: Held) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEALTH[:-2])
    held.append(writer)


async def close_half(port: int, held: Held) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HALF_BODY)
    writer.write_eof()
    held.append(writer)


async def send_nonsense(port: int, _: Held) -> None:
    async with opened(port) as (reader, writer):
        writer.write(random.randbytes(random.randrange(1, 4_000)) + b"\r\n\r\n")
        await asyncio.wait_for(reader.read(), 60)


ATTACKS = [stay_silent, stay_in_the_head, close_half, send_nonsense]


# A connection that is closed while asyncio opens it is left to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_connections_of_strangers_lock_nobody_out(
    tmp_path: Path, attack: Callable[[int, Held], Awaitable[None]]
) -> None:
    held: Held = deque()
    with LimitedDaemon(tmp_path) as daemon:
        async with watched(daemon):
            for _ in range(0, ATTEMPTS, AT_ONCE):
                await asyncio.gather(*(attack(daemon.port, held) for _ in range(AT_ONCE)), return_exceptions=True)
                while len(held) > HELD_MAX:
                    held.popleft().close()
            await asyncio.sleep(0.2)
        for writer in held:
            writer.close()
        assert len(daemon.log().splitlines()) < LOG_LINES_MAX


def test_a_daemon_takes_as_many_files_as_it_may(tmp_path: Path) -> None:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with ModestDaemon(tmp_path) as daemon:
        limits = Path(f"/proc/{daemon.process.pid}/limits").read_text()
    line = next(line for line in limits.splitlines() if line.startswith("Max open files"))
    assert int(line.split()[3]) == (FILES_WANTED if allowed == resource.RLIM_INFINITY else min(FILES_WANTED, allowed))


async def test_large_bodies_are_neither_kept_nor_awaited(tmp_path: Path) -> None:
    with LimitedDaemon(tmp_path) as daemon:
        async with watched(daemon):
            for path in LARGE_PATHS:
                token = daemon.token
                heads = [(path, token, True), (path, token, False), (path, "", True), (path, "", False)]
                await asyncio.gather(*(send_large(daemon.port, *head) for head in heads))


async def send_large(port: int, path: str, token: str, is_chunked: bool) -> None:
    size = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {LARGE_BODY_BYTES}"
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n{size}\r\n\r\n"
    piece = b"%x\r\n%b\r\n" % (len(PIECE), PIECE) if is_chunked else PIECE
    async with opened(port) as (_, writer):
        writer.write(head.encode())
        with suppress(ConnectionError):
            for _ in range(LARGE_BODY_BYTES // len(PIECE)):
                writer.write(piece)
                await asyncio.wait_for(writer.drain(), 60)


@asynccontextmanager
async def watched(daemon: Daemon) -> AsyncIterator[None]:
    """Asks for the daemon's health all the time. Every answer must come, and the memory stay bounded."""
    before_mib, over = memory_mib(daemon), asyncio.Event()
    asking = asyncio.create_task(ask_until(over, daemon.port))
    try:
        yield
    finally:
        over.set()
        times_s = await asking
    assert memory_mib(daemon) - before_mib < GROWTH_MIB_MAX
    if IS_CAMPAIGN:
        assert sorted(times_s)[int(len(times_s) * 0.99)] <= HEALTH_S_MAX


async def ask_until(over: asyncio.Event, port: int) -> list[float]:
    times_s = [await ask_health(port)]
    while not over.is_set():
        times_s.append(await ask_health(port))
        await asyncio.sleep(0.01)
    return [*times_s, await ask_health(port)]


async def ask_health(port: int) -> float:
    started_s = time.perf_counter()
    async with opened(port) as (reader, writer):
        writer.write(HEALTH)
        answer = await asyncio.wait_for(reader.read(), 60)
    assert b" 200 OK" in answer, answer
    return time.perf_counter() - started_s


def memory_mib(daemon: Daemon) -> int:
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) // 1024
