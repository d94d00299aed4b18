"""What a busy channel costs. Owns: 20 conversations at 5 messages a second each, for a minute, over a signed webhook.

Every message is one run, and its answer is posted back. A message that is asked to come again is sent again, as a
platform does. Found out: messages lost or answered out of order, how long answers take in each conversation, and what
each costs in processor time and memory. What memory is bounded by is listed in docs/benchmarks.md, under Channels.
Usage: python -m bench.channels [--quick]
"""

import argparse
import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import ClientSession, web

from bench._daemon import Daemon, made_home, running
from tests.support.waiting import until

CONVERSATIONS_COUNT = 20
RATE_PER_S = 5
MINUTE_S = 60
QUICK_S = 5
DRAIN_S = 120.0
LOOK_EVERY_S = 0.5
AGAIN_S = 0.05  # A platform that is asked to come again waits longer each time.
AGAIN_MAX_S = 2.0
MEMORY_GROWTH_MB_MAX = 20.0
UNFAIR_MAX = 2.0  # The slowest conversation's median, as a multiple of the quickest one's.
SECRET_VARIABLE = "BENCH_CHANNEL_SECRET"
SECRET = "a-secret-of-the-benchmark"

CHANNEL = """
[[channel]]
name = "bench"
kind = "webhook"
secret = "env:{variable}"
dm_policy = "allow"
when_busy = "queue"
outbound_url = "http://127.0.0.1:{port}/answers"
"""
SCRIPT = '[[scripts]]\nturns = [{ text = "I heard you." }]\n'


@dataclass
class Talk:
    """What was sent and answered. Times are seconds of the process's own clock."""

    sent_at_s: dict[str, float] = field(default_factory=dict)
    answered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    waits_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    deliveries: set[str] = field(default_factory=set)
    deferred_count: int = 0
    cpu_s: float = 0.0
    private_mb: list[float] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        delivery, told = request.headers["x-palyra-delivery"], await request.json()
        if delivery not in self.deliveries:
            self.deliveries.add(delivery)
            self.answered[told["conversation_id"]].append(told["reply_to"])
            self.waits_s[told["conversation_id"]].append(time.perf_counter() - self.sent_at_s[told["reply_to"]])
        return web.Response()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 seconds, for a check that it still runs")
    seconds = QUICK_S if parser.parse_args().quick else MINUTE_S
    os.environ[SECRET_VARIABLE] = SECRET
    with made_home() as home:
        talk, took_s = asyncio.run(_measure(home, RATE_PER_S * seconds))
    _print(talk, RATE_PER_S * seconds, took_s)


async def _measure(home: Path, each_count: int) -> tuple[Talk, float]:
    talk, app = Talk(), web.Application()
    app.router.add_post("/answers", talk.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    with (home / "palyra.toml").open("a") as file:
        file.write(CHANNEL.format(variable=SECRET_VARIABLE, port=runner.addresses[0][1]))
    (home / "script.toml").write_text(SCRIPT)
    try:
        with running(home) as daemon:
            return talk, await _talk(daemon, talk, each_count)
    finally:
        await runner.cleanup()


async def _talk(daemon: Daemon, talk: Talk, each_count: int) -> float:
    """Returns how long it took from the first message to the last answer."""
    watching = asyncio.create_task(_watch(daemon, talk))
    began_s, cpu_before_s = time.perf_counter(), daemon.cpu_s
    async with ClientSession() as client:
        await asyncio.gather(
            *(_speak(client, daemon.port, talk, (f"c{number}", each_count)) for number in range(CONVERSATIONS_COUNT))
        )
    with contextlib.suppress(AssertionError):
        await until(lambda: len(talk.deliveries) >= CONVERSATIONS_COUNT * each_count, "the last answer", DRAIN_S)
    watching.cancel()
    talk.cpu_s = daemon.cpu_s - cpu_before_s
    return time.perf_counter() - began_s


async def _watch(daemon: Daemon, talk: Talk) -> None:
    while True:
        talk.private_mb.append(daemon.private_mb)
        await asyncio.sleep(LOOK_EVERY_S)


async def _speak(client: ClientSession, port: int, talk: Talk, conversation: tuple[str, int]) -> None:
    """Sends a message each fifth of a second, whether or not those before were answered."""
    name, count = conversation
    began_s = time.perf_counter()
    for number in range(count):
        await asyncio.sleep(max(0.0, began_s + number / RATE_PER_S - time.perf_counter()))
        named = f"{name}-{number}"
        talk.sent_at_s[named] = time.perf_counter()
        wait_s = AGAIN_S
        while not await _is_taken(client, port, named):
            talk.deferred_count += 1
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, AGAIN_MAX_S)


async def _is_taken(client: ClientSession, port: int, named: str) -> bool:
    name = named.partition("-")[0]
    told = {"envelope_id": named, "message_id": named, "sender_id": name, "conversation_id": name, "is_direct": True}
    body, stamp = json.dumps({**told, "text": f"message {named}"}).encode(), str(int(time.time()))
    signature = hmac.new(SECRET.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    headers = {
        "content-type": "application/json",
        "x-palyra-timestamp": stamp,
        "x-palyra-signature": f"v1={signature}",
    }
    url = f"http://127.0.0.1:{port}/api/v1/channels/bench/inbound"
    async with client.post(url, data=body, headers=headers) as answer:
        return answer.status in (200, 202)


def _print(talk: Talk, each_count: int, took_s: float) -> None:
    total = CONVERSATIONS_COUNT * each_count
    lost = total - len(talk.deliveries)
    disordered = sum(
        found != [f"{name}-{number}" for number in range(each_count)] for name, found in talk.answered.items()
    )
    waits_ms = sorted(1000 * wait for waits in talk.waits_s.values() for wait in waits)
    medians_ms = [1000 * statistics.median(waits) for waits in talk.waits_s.values()]
    # The first half warms caches up and fills queues; what a second half adds is what goes on growing.
    half = len(talk.private_mb) // 2
    growth_mb = max(talk.private_mb) - max(talk.private_mb[:half])
    print(f"{CONVERSATIONS_COUNT} conversations, {RATE_PER_S} messages/s each, {total:,} messages in {took_s:.1f} s:")
    print(f"  lost                     {lost:8,} (wanted 0)")
    print(f"  out of order             {disordered:8,} conversations (wanted 0)")
    print(f"  asked to come again      {talk.deferred_count:8,}")
    print(f"  answered within, p50     {waits_ms[len(waits_ms) // 2]:8.0f} ms")
    print(f"  answered within, p99     {waits_ms[len(waits_ms) * 99 // 100]:8.0f} ms")
    print(f"  processor time           {1000 * talk.cpu_s / total:8.1f} ms a message")
    unfair = max(medians_ms) / min(medians_ms)
    print(f"  slowest conversation     {unfair:8.2f} times the quickest one's median (wanted <= {UNFAIR_MAX:g})")
    print(f"  memory                   {talk.private_mb[0]:8.0f} MB at first, {max(talk.private_mb):.0f} MB at most")
    print(f"  memory, the second half  {growth_mb:8.0f} MB more than the first (wanted <= {MEMORY_GROWTH_MB_MAX:g})")


if __name__ == "__main__":
    main()
