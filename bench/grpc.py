"""What gRPC costs. Owns: calls a second, latency, runs over one stream, and streamed text. Not: HTTP (runs, stream).

The daemon is a process of its own; the client is grpcio in this one, so both sides of gRPC are in every number.
Usage: python -m bench.grpc [--quick]
"""

import argparse
import asyncio
import json
import statistics
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from bench._daemon import LONG_TEXT, SCRIPT, Daemon, made_home, running
from palyra.client import GrpcGatewayClient, LiveUpdate, RunWish, TapeEvent

AT_ONCE = 32
WORDS = 20_000
WANTED_MESSAGES_PER_S = 15_000  # What the design measured for plain grpcio, for one stream of coalesced deltas.
BURST = """
[[scripts]]
when = "burst"
[[scripts.turns]]
text = "{text}"
"""


async def measure(address: str, token: str, scale: int) -> None:
    async with GrpcGatewayClient(address, token) as client:
        await client.list_sessions(limit=1)
        await calls(client, 500 * scale)
        await whole_runs(client, 50 * scale)
        await texts(client, 2 * scale)
        await tapes(client, 5 * scale)


async def calls(client: GrpcGatewayClient, count: int) -> None:
    async def call() -> None:
        await client.list_sessions(limit=1)

    print(f"ListSessions, one after the other: {latency(await timed(call, count // 5))}")
    wall_s = await at_once(call, count)
    print(f"ListSessions, {AT_ONCE} at once: {count / wall_s:,.0f} calls/s")


async def whole_runs(client: GrpcGatewayClient, count: int) -> None:
    firsts_ms: list[float] = []

    async def run() -> None:
        started_s = time.perf_counter()
        conversation = await client.run(RunWish(text="What time is it?"))
        is_first = True
        async for update in conversation:
            if is_first and isinstance(update, LiveUpdate):
                firsts_ms.append(1000 * (time.perf_counter() - started_s))
                is_first = False

    print(f"a run of two turns and a tool over RunStream: {latency(await timed(run, count))}")
    print(f"  until its first text: {latency(firsts_ms)}")
    wall_s = await at_once(run, count)
    print(f"such runs, {AT_ONCE} at once: {count / wall_s:,.0f} runs/s")


async def texts(client: GrpcGatewayClient, count: int) -> None:
    """A model that says everything at once: how fast its text comes through, and in how many messages."""
    best_per_s, messages_count = 0.0, 0
    for _ in range(count):
        words_count = messages_count = 0
        started_s = time.perf_counter()
        async for update in await client.run(RunWish(text="burst")):
            messages_count += 1
            if isinstance(update, LiveUpdate):
                words_count += str(update.data.get("text", "")).count(" ")
        best_per_s = max(best_per_s, words_count / (time.perf_counter() - started_s))
    print(f"one stream of {WORDS:,} words: best {best_per_s:,.0f} words/s, in {messages_count:,} messages")


async def tapes(client: GrpcGatewayClient, count: int) -> None:
    """Recorded events of a long session, page by page."""
    session = await client.resolve_session(key="bench")
    for _ in range(20 * count):
        async for _update in await client.run(RunWish(text="What time is it?", session_key="bench")):
            pass
    started_s, events_count = time.perf_counter(), 0
    async for event in client.read_tape(session.id):
        events_count += isinstance(event, TapeEvent)
    per_s = events_count / (time.perf_counter() - started_s)
    print(f"ReadTape: {per_s:,.0f} events/s ({events_count:,} events; wanted >= {WANTED_MESSAGES_PER_S:,})")


async def timed(act: Callable[[], Awaitable[None]], count: int) -> list[float]:
    times_ms = []
    for _ in range(count):
        started_s = time.perf_counter()
        await act()
        times_ms.append(1000 * (time.perf_counter() - started_s))
    return times_ms


async def at_once(act: Callable[[], Awaitable[None]], count: int) -> float:
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await act()

    started_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return time.perf_counter() - started_s


def latency(times_ms: list[float]) -> str:
    cuts = statistics.quantiles(times_ms, n=100)
    return f"p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms ({len(times_ms)} times)"


def grpc_address(daemon: Daemon) -> str:
    """Waits for gRPC, which starts after HTTP."""
    request = urllib.request.Request(f"http://127.0.0.1:{daemon.port}/readyz")
    request.add_header("authorization", f"Bearer {daemon.token}")
    until_s, state = time.perf_counter() + 30, {}
    while time.perf_counter() < until_s:
        with urllib.request.urlopen(request, timeout=5) as answer:
            state = json.load(answer)["grpc"]
        if state["state"] == "ok":
            return str(state["detail"])
        time.sleep(0.01)
    raise RuntimeError(f"gRPC did not start: {state}")


def write_script(home: Path) -> None:
    burst = BURST.format(text="word " * WORDS)
    (home / "script.toml").write_text(burst + SCRIPT.format(long_text=LONG_TEXT))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    scale = 1 if parser.parse_args().quick else 4
    with made_home() as home:
        write_script(home)
        with running(home) as daemon:
            print(f"HTTP ready after {daemon.ready_s:.2f} s (wanted <= 1 s), before gRPC is loaded")
            address = grpc_address(daemon)
            uvloop.run(measure(address, daemon.token, scale))
            print(f"memory of the daemon: {daemon.rss_mb:.0f} MB")


if __name__ == "__main__":
    main()
