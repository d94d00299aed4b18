"""The load generator. Owns: runs over HTTP and SSE from a process of its own, and how long each took. Not: any daemon.

A client that speaks just enough HTTP over raw sockets, so that what is measured is the daemon and not aiohttp. One
connection is one worker: it asks, reads the stream to its last chunk, and asks again.
Usage: python -m bench._load '{"kind": "runs", …}'; it prints one JSON object.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, cast

import msgspec
import uvloop

TIMEOUT_S = 300.0  # For the whole load: nothing here waits for ever.
LAST_CHUNK = b"\r\n0\r\n\r\n"
STREAMED_S = 0.1  # How long a model talks before it is cancelled.
RUN_TEXT = "What time is it?"
LONG_TEXT = "talk to me"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """`sessions` empty: each run in a new session. Else worker n uses session n modulo their number."""

    kind: str  # runs | visits | cancels | sessions
    port: int
    token: str
    concurrency: int = 1
    count: int = 1
    sessions: tuple[str, ...] = ()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    wall_s: float
    cpu_s: float
    times_ms: list[float]
    sessions: list[str] = []


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request under way."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._awaited: Callable[[bytearray], int] = find_end
        self._found: asyncio.Future[float] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not say that it is one.

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._look()

    def connection_lost(self, error: Exception | None) -> None:
        if self._found is not None and not self._found.done():
            self._found.set_exception(ConnectionError(f"the daemon closed the connection: {error}"))

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self._received.clear()
        self._transport.write(request)

    async def until(self, awaited: Callable[[bytearray], int]) -> float:
        """The moment at which what has been received holds what is awaited."""
        self._awaited = awaited
        self._found = asyncio.get_running_loop().create_future()
        self._look()
        return await self._found

    @property
    def received(self) -> bytes:
        return bytes(self._received)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _look(self) -> None:
        if self._found is not None and not self._found.done() and self._awaited(self._received) >= 0:
            self._found.set_result(time.perf_counter())


def find_end(received: bytearray) -> int:
    """The last chunk of a stream."""
    return len(received) if received.endswith(LAST_CHUNK) else -1


def find_text(text: bytes) -> Callable[[bytearray], int]:
    return lambda received: received.find(text)


def find_plain_end(received: bytearray) -> int:
    """The end of an answer with a Content-Length."""
    head, mark, body = bytes(received).partition(b"\r\n\r\n")
    if not mark:
        return -1
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    return len(received) if len(body) >= length else -1


async def connect(order: Order) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", order.port)
    return connection


def make_post(order: Order, path: str, body: dict[str, object], accept: str) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{order.port}\r\nauthorization: Bearer {order.token}\r\n"
        f"accept: {accept}\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def make_run(order: Order, worker: int, text: str) -> bytes:
    body: dict[str, object] = {"text": text}
    if order.sessions:
        body["session_id"] = order.sessions[worker % len(order.sessions)]
    return make_post(order, "/api/v1/runs", body, "text/event-stream")


async def run_all(order: Order) -> Outcome:
    times_ms: list[float] = []
    turns = iter(range(order.count))

    async def work(worker: int) -> None:
        connection = await connect(order)
        request = make_run(order, worker, RUN_TEXT)
        for _ in turns:
            started_s = time.perf_counter()
            connection.send(request)
            ended_s = await connection.until(find_end)
            times_ms.append((ended_s - started_s) * 1000)
            require(connection, b"event: run.done\n")
        connection.close()

    return await _timed([work(worker) for worker in range(order.concurrency)], times_ms)


async def visit_all(order: Order) -> Outcome:
    """`count` runs in each session, one session after the other; the times in that order."""
    times_ms: list[float] = []
    connection = await connect(order)

    async def work() -> None:
        for number in range(len(order.sessions) * order.count):
            started_s = time.perf_counter()
            connection.send(make_run(order, number // order.count, RUN_TEXT))
            ended_s = await connection.until(find_end)
            times_ms.append((ended_s - started_s) * 1000)
            require(connection, b"event: run.done\n")
        connection.close()

    return await _timed([work()], times_ms)


async def cancel_all(order: Order) -> Outcome:
    """From sending the cancel to the terminal event on the stream of a run whose model is talking."""
    times_ms: list[float] = []
    turns = iter(range(order.count))

    async def work(worker: int) -> None:
        stream, beside = await connect(order), await connect(order)
        for _ in turns:
            stream.send(make_run(order, worker, LONG_TEXT))
            await stream.until(find_text(b"event: model.delta\n"))
            await asyncio.sleep(STREAMED_S)
            path = f"/api/v1/runs/{_run_id(stream)}/cancel"
            cancel = make_post(order, path, {}, "application/json")
            started_s = time.perf_counter()
            beside.send(cancel)
            ended_s = await stream.until(find_text(b"event: run.cancelled\n"))
            times_ms.append((ended_s - started_s) * 1000)
            await beside.until(find_plain_end)
            await stream.until(find_end)
            if b" 202 " not in beside.received[:32]:
                raise RuntimeError(f"the cancel was refused: {beside.received[:400]!r}")
        stream.close()
        beside.close()

    return await _timed([work(worker) for worker in range(order.concurrency)], times_ms)


async def open_all(order: Order) -> Outcome:
    """Sessions made one after the other."""
    connection = await connect(order)
    sessions = []
    for _ in range(order.count):
        connection.send(make_post(order, "/api/v1/sessions", {}, "application/json"))
        await connection.until(find_plain_end)
        sessions.append(json.loads(connection.received.partition(b"\r\n\r\n")[2])["id"])
    connection.close()
    return Outcome(wall_s=0.0, cpu_s=0.0, times_ms=[], sessions=sessions)


def require(connection: Connection, text: bytes) -> None:
    if text not in connection.received:
        raise RuntimeError(f"{text!r} is not in the answer: {connection.received[:2_000]!r}")


def _run_id(stream: Connection) -> str:
    return stream.received.partition(b"location: /api/v1/runs/")[2][:26].decode()


async def _timed(workers: list[Coroutine[Any, Any, None]], times_ms: list[float]) -> Outcome:
    before_s, started_s = _cpu_s(), time.perf_counter()
    await asyncio.gather(*workers)
    return Outcome(wall_s=time.perf_counter() - started_s, cpu_s=_cpu_s() - before_s, times_ms=times_ms)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


KINDS = {"runs": run_all, "visits": visit_all, "cancels": cancel_all, "sessions": open_all}


async def _main() -> None:
    order = msgspec.json.decode(sys.argv[1], type=Order)
    async with asyncio.timeout(TIMEOUT_S):
        outcome = await KINDS[order.kind](order)
    sys.stdout.write(msgspec.json.encode(outcome).decode())


if __name__ == "__main__":
    uvloop.run(_main())
