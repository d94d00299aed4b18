"""Many followers. Owns: 2,000 subscribers of 200 runs, that each sees every event once, in order, and how late it is.

The runs speak for some seconds while ten clients each follow them over SSE; one of the ten does not read for a while.
The second round is without slow clients, so that what they cost the others can be seen.
Usage: python -m bench.fanout [--quick]
"""

import argparse
import asyncio
import json
import re
import statistics
import time
import urllib.request
from pathlib import Path

import msgspec
import uvloop

from bench._daemon import Daemon, made_home, running

RUNS_COUNT = 200
FOLLOWERS_COUNT = 10  # Of each run; one of them is slow.
SLOW_PAUSE_S = 3.0
READ_BYTES = 64 * 1024
TIMEOUT_S = 300.0
WANTED_P99_MS = 250.0

CONFIG = """
[server]
http = "127.0.0.1:0"
grpc = "off"
[limits]
streams_max = 8192
streams_per_token_max = 8192
[[provider]]
name = "script"
kind = "scripted"
file = "script.toml"
[[agent]]
name = "default"
"""
SCRIPT = """
[[scripts]]
[[scripts.turns]]
delay_ms = 100
text = "one two three four five six seven eight nine ten and so on and so on until everything is said that can be said"
[[scripts.turns.calls]]
tool = "time.now"
[[scripts.turns]]
delay_ms = 100
text = "and now it is late and we should end"
"""
RECORDED = re.compile(rb"id: (\d+)\nevent: ([\w.]+)\n")
ENDS = (b"run.done", b"run.failed", b"run.cancelled")


class Seen(msgspec.Struct, frozen=True):
    """What one follower got. `ended_s` is when its terminal event came."""

    run_id: str
    is_slow: bool
    seqs: list[int]
    live_count: int
    ended_s: float


async def follow(daemon: Daemon, run_id: str, is_slow: bool) -> Seen:
    reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port, limit=READ_BYTES)
    head = (
        f"GET /api/v1/runs/{run_id}/events HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {daemon.token}\r\n\r\n"
    )
    writer.write(head.encode())
    received = bytearray()
    if is_slow:
        await asyncio.sleep(SLOW_PAUSE_S)
    while not received.endswith(b"\r\n0\r\n\r\n"):
        arrived = await reader.read(READ_BYTES)
        if not arrived:
            break
        received += arrived
    ended_s = time.perf_counter()
    writer.close()
    found = RECORDED.findall(received)
    assert found, bytes(received[:300])
    assert found[-1][1] in ENDS, (run_id, found[-1])
    return Seen(run_id, is_slow, [int(seq) for seq, _ in found], received.count(b"event: model.delta"), ended_s)


async def one_round(daemon: Daemon, runs_count: int, has_slow: bool) -> None:
    started_s = time.perf_counter()
    runs = [await asyncio.to_thread(start, daemon) for _ in range(runs_count)]
    async with asyncio.timeout(TIMEOUT_S):
        followers = [
            follow(daemon, run_id, has_slow and number == 0) for run_id in runs for number in range(FOLLOWERS_COUNT)
        ]
        seen = await asyncio.gather(*followers)
    wall_s = time.perf_counter() - started_s
    check(seen)
    late_ms = lateness(seen)
    events_count = sum(len(each.seqs) for each in seen)
    live_count = sum(each.live_count for each in seen)
    cuts = statistics.quantiles(late_ms, n=100)
    name = "one of ten slow" if has_slow else "nobody slow"
    print(
        f"{len(seen):,} followers of {runs_count} runs, {name}: {events_count:,} events, each once and in order, "
        f"{live_count:,} live frames, in {wall_s:.1f} s; the end came p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms after "
        f"the first follower of the run had it (wanted p99 <= {WANTED_P99_MS:.0f} ms)"
    )


def check(seen: list[Seen]) -> None:
    """Everybody who follows a run sees the same events, without a gap or a repetition."""
    expected: dict[str, list[int]] = {}
    for each in seen:
        first = expected.setdefault(each.run_id, each.seqs)
        assert each.seqs == first, f"followers of {each.run_id} differ"
        assert each.seqs == list(range(each.seqs[0], each.seqs[0] + len(each.seqs))), f"{each.run_id} has a gap"


def lateness(seen: list[Seen]) -> list[float]:
    """Of followers that are not slow: how long after the first of its run each had the terminal event."""
    firsts: dict[str, float] = {}
    for each in seen:
        firsts[each.run_id] = min(each.ended_s, firsts.get(each.run_id, each.ended_s))
    return [1000 * (each.ended_s - firsts[each.run_id]) for each in seen if not each.is_slow]


def start(daemon: Daemon) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{daemon.port}/api/v1/runs", data=b'{"text": "go"}')
    request.add_header("authorization", f"Bearer {daemon.token}")
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(json.load(answer)["id"])


async def measure(daemon: Daemon, runs_count: int) -> None:
    await one_round(daemon, runs_count, has_slow=False)
    await one_round(daemon, runs_count, has_slow=True)
    print(f"memory of the daemon: {daemon.rss_mb:.0f} MB")


def write_home(home: Path) -> None:
    (home / "palyra.toml").write_text(CONFIG)
    (home / "script.toml").write_text(SCRIPT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    runs_count = 20 if parser.parse_args().quick else RUNS_COUNT
    with made_home() as home:
        write_home(home)
        with running(home) as daemon:
            uvloop.run(measure(daemon, runs_count))


if __name__ == "__main__":
    main()
