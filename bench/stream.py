"""What streaming costs. Owns: tokens a second and the first token's delay through run, tape and SSE. Not: whole runs (runs).

The same loopback model is asked directly, through our daemon and through LiteLLM's proxy, each a process of its own, by a
client in another. Rounds of all take turns, so that a slow moment of the machine hits each; the ratios are of one run of
this script, of the best and of the median rounds.
Usage: python -m bench.stream [--quick] [--rounds N] [--only throughput|latency]
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from bench import _litellm, _upstream
from bench._daemon import ROOT, Daemon, made_home
from bench._daemon import running as daemon_running
from bench._litellm import Proxy
from bench._rival import ensure_rival
from bench._upstream_load import Order, Outcome

LOAD_TIMEOUT_S = 600.0
SETTLE_S = 20.0
QUIET_S = 0.3
DISK_SYNCS = 200
WARM_UP_MODEL = "full-20"
AT_ONCE = 32
IN_FLIGHT = 50
WANTED_RATIO = 20.0
WANTED_P50_MS = 5.0
WANTED_P99_MS = 20.0

OURS, THEIRS, DIRECT = "Palyra", "LiteLLM", "direct"

CONFIG = """
[server]
http = "127.0.0.1:0"
[[provider]]
name = "upstream"
kind = "openai-chat"
base_url = "http://127.0.0.1:{port}"
{models}
[[agent]]
name = "default"
"""


class Speed(msgspec.Struct, frozen=True):
    """One case of throughput. LiteLLM is given fewer answers, or a round of it would take minutes."""

    name: str
    model: str
    streams_count: int
    answers_count: int
    their_answers_count: int = 1
    wanted: float | None = None


class Delay(msgspec.Struct, frozen=True):
    """One case of latency."""

    name: str
    model: str
    streams_count: int
    answers_count: int = 1
    spread_s: float = 0.0
    seed: int | None = None
    is_wanted: bool = False


class Measured(msgspec.Struct, frozen=True):
    outcome: Outcome
    server_cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        return self.outcome.tokens_count / self.outcome.wall_s


SPEEDS = (
    Speed("1 stream, upstream at full speed", "full-2000", 1, 16, 2),
    Speed(f"{AT_ONCE} streams, upstream at full speed", "full-2000", AT_ONCE, 4, wanted=WANTED_RATIO),
    Speed(f"{AT_ONCE} streams, every token written by itself", "each-2000", AT_ONCE, 2, wanted=WANTED_RATIO),
)
DELAYS = (
    Delay(f"{IN_FLIGHT} streams, arrivals spread over 5 s", "paced-300", IN_FLIGHT, spread_s=5.0, is_wanted=True),
    # Evenly spaced, they arrive in step with the 20 ms of all the others; people do not.
    Delay(f"{IN_FLIGHT} streams, at random over 5 s", "paced-300", IN_FLIGHT, spread_s=5.0, seed=7, is_wanted=True),
    Delay(f"{IN_FLIGHT} streams at one instant", "paced-100", IN_FLIGHT),
    Delay("1 stream", "paced-10", 1, answers_count=20),
    Delay(f"{IN_FLIGHT} spread over 5 s, blank before the word", "leading-300", IN_FLIGHT, spread_s=5.0),
)
QUICK_SPEEDS = (
    Speed("1 stream, upstream at full speed", "full-2000", 1, 2),
    Speed("8 streams, upstream at full speed", "full-500", 8, 2),
    Speed("8 streams, every token written by itself", "each-500", 8, 1),
)
QUICK_DELAYS = (
    Delay("10 streams, arrivals spread over 1 s", "paced-60", 10, spread_s=1.0),
    Delay("10 streams at one instant", "paced-20", 10),
    Delay("1 stream", "paced-10", 1, answers_count=3),
    Delay("10 spread over 1 s, blank before the word", "leading-60", 10, spread_s=1.0),
)


class Bench:
    """All three ways to the same model, while they are up."""

    def __init__(self, upstream_port: int, daemon: Daemon, proxy: Proxy) -> None:
        self._upstream_port = upstream_port
        self._daemon = daemon
        self._proxy = proxy

    def raw(self, model: str, streams_count: int, answers_count: int) -> Measured:
        order = Order(
            kind="raw",
            port=self._upstream_port,
            model=model,
            streams_count=streams_count,
            answers_count=answers_count,
        )
        return Measured(_load(order))

    def ask(self, way: str, model: str, streams_count: int, answers_count: int, delay: Delay | None = None) -> Measured:
        servers: dict[str, Daemon | Proxy] = {OURS: self._daemon, THEIRS: self._proxy}
        server = servers.get(way)
        order = Order(
            kind="palyra" if way == OURS else "openai",
            port=server.port if server is not None else self._upstream_port,
            token=server.token if server is not None else "",
            model=model,
            streams_count=streams_count,
            answers_count=answers_count,
            spread_s=delay.spread_s if delay is not None else 0.0,
            seed=delay.seed if delay is not None else None,
        )
        before_s = server.cpu_s if server is not None else 0.0
        outcome = _load(order)
        return Measured(outcome, server.cpu_s - before_s if server is not None else 0.0)

    def settle(self) -> None:
        """LiteLLM works on after its last answer; until it is quiet nothing else is measured beside it."""
        until_s = time.perf_counter() + SETTLE_S
        before_s = -1.0
        while before_s != self._proxy.cpu_s and time.perf_counter() < until_s:
            before_s = self._proxy.cpu_s
            time.sleep(QUIET_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little work in one round, for a check that it still runs")
    parser.add_argument("--rounds", type=int, help="how often each case is measured (3; 1 with --quick)")
    parser.add_argument("--only", choices=("throughput", "latency"), help="one half of it")
    options = parser.parse_args()
    rounds_count = options.rounds or (1 if options.quick else 3)
    speeds, delays = (QUICK_SPEEDS, QUICK_DELAYS) if options.quick else (SPEEDS, DELAYS)
    ensure_rival()
    with running(sorted({WARM_UP_MODEL, *(case.model for case in (*speeds, *delays))})) as bench:
        warm_up(bench)
        if options.only != "latency":
            print(
                f"tokens a second, whole texts checked, {rounds_count} rounds; LiteLLM {_litellm.version()}, one worker:"
            )
            for speed in speeds:
                measure_speed(bench, speed, rounds_count)
        if options.only != "throughput":
            measure_disk()
            print(f"first token, upstream at {_upstream.TOKENS_A_SECOND} tokens/s, {rounds_count} rounds:")
            for delay in delays:
                measure_delay(bench, delay, rounds_count)


@contextlib.contextmanager
def running(models: list[str]) -> Iterator[Bench]:
    with _upstream.running() as port, made_home() as home, _litellm.running(port, models) as proxy:
        _configure(home, port, models)
        with daemon_running(home) as daemon:
            yield Bench(port, daemon, proxy)


def warm_up(bench: Bench) -> None:
    """The first questions cost LiteLLM more than a second, and ours some imports."""
    for way in (OURS, THEIRS):
        bench.ask(way, WARM_UP_MODEL, 8, 8)


def measure_speed(bench: Bench, case: Speed, rounds_count: int) -> None:
    raw: list[Measured] = []
    sides: dict[str, list[Measured]] = {OURS: [], THEIRS: []}
    for _ in range(rounds_count):
        raw.append(bench.raw(case.model, case.streams_count, case.answers_count))
        sides[OURS].append(bench.ask(OURS, case.model, case.streams_count, case.answers_count))
        sides[THEIRS].append(bench.ask(THEIRS, case.model, case.streams_count, case.their_answers_count))
        bench.settle()
    print(f"  {case.name}:")
    print(f"    {'raw client':10} {_rates(raw)}")
    for way, rounds in sides.items():
        best = max(rounds, key=lambda one: one.rate)
        cost_us = best.server_cpu_s / best.outcome.tokens_count * 1e6
        share = best.outcome.cpu_s / best.outcome.wall_s * 100
        print(
            f"    {way:10} {_rates(rounds)}   {cost_us:6.1f} µs of CPU a token; the client took {share:.0f} % of a core"
        )
    wanted = f" (wanted >= {case.wanted:g})" if case.wanted is not None else ""
    against = _ratios(sides[OURS], sides[THEIRS])
    print(f"    to LiteLLM {against}{wanted}; to the raw client {_ratios(sides[OURS], raw)}", flush=True)


def measure_delay(bench: Bench, case: Delay, rounds_count: int) -> None:
    ways: dict[str, list[Measured]] = {DIRECT: [], OURS: [], THEIRS: []}
    for _ in range(rounds_count):
        for way, rounds in ways.items():
            rounds.append(bench.ask(way, case.model, case.streams_count, case.answers_count, case))
        bench.settle()
    print(f"  {case.name}:")
    for way, rounds in ways.items():
        p50s, p99s = ([quantile(one.outcome.first_ms, share) for one in rounds] for share in (0.5, 0.99))
        line = f"    {way:10} p50 {_times(p50s)}   p99 {_times(p99s)}"
        if way != DIRECT:
            line += f"   more than direct: {_added(ways[DIRECT], rounds)}"
        wanted = (
            f" (wanted p50 <= {WANTED_P50_MS:g}, p99 <= {WANTED_P99_MS:g})" if way == OURS and case.is_wanted else ""
        )
        print(line + wanted, flush=True)


def measure_disk() -> None:
    """A run is durable before its model is called, so the disk is part of every first token of ours."""
    times_ms = []
    with tempfile.TemporaryFile(prefix="palyra-bench-") as file:
        for _ in range(DISK_SYNCS):
            os.pwrite(file.fileno(), b"x" * 4096, 0)
            started_s = time.perf_counter()
            os.fdatasync(file.fileno())
            times_ms.append((time.perf_counter() - started_s) * 1000)
            time.sleep(0.01)
    p50_ms, p99_ms = quantile(times_ms, 0.5), quantile(times_ms, 0.99)
    print(f"the disk alone: a block written and synced in p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms")


def quantile(times_ms: list[float], share: float) -> float:
    ordered = sorted(times_ms)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _rates(rounds: list[Measured]) -> str:
    rates = [one.rate for one in rounds]
    return f"best {max(rates):9,.0f} tokens/s, median {statistics.median(rates):9,.0f}"


def _ratios(ours: list[Measured], others: list[Measured]) -> str:
    picks: tuple[Callable[[list[float]], float], ...] = (max, statistics.median)
    best, median = (pick([one.rate for one in ours]) / pick([one.rate for one in others]) for pick in picks)
    return f"{best:.2f} (medians {median:.2f})"


def _times(times_ms: list[float]) -> str:
    return f"best {min(times_ms):7.1f} ms, median {statistics.median(times_ms):7.1f} ms"


def _added(direct: list[Measured], rounds: list[Measured]) -> str:
    """Round by round, since both of a round saw the same machine."""
    parts = []
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        pairs = zip(direct, rounds, strict=True)
        more = [quantile(b.outcome.first_ms, share) - quantile(a.outcome.first_ms, share) for a, b in pairs]
        parts.append(f"{name} best {min(more):.1f} ms, median {statistics.median(more):.1f} ms")
    return "; ".join(parts)


def _configure(home: Path, port: int, models: list[str]) -> None:
    tables = "\n".join(f'[[model]]\nname = "{name}"\nprovider = "upstream"' for name in models)
    (home / "palyra.toml").write_text(CONFIG.format(port=port, models=tables))


def _load(order: Order) -> Outcome:
    """In a process of its own, so that client and servers share no interpreter."""
    command = [sys.executable, "-m", "bench._upstream_load", msgspec.json.encode(order).decode()]
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=True, timeout=LOAD_TIMEOUT_S)
    return msgspec.json.decode(done.stdout, type=Outcome)


if __name__ == "__main__":
    main()
