"""What a run costs. Owns: whole runs over HTTP and SSE beside LangGraph, starting, memory, and cancelling. Not: long sessions.

A run is two turns with one tool call: asked over HTTP, its stream read to the terminal event by a client in a process of
its own. LangGraph does the same two turns in process, without HTTP and without a stream, in an environment of its own.
Rounds of both take turns, so that a slow moment of the machine hits either; the best round of each counts.
Usage: python -m bench.runs [--quick]
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench._daemon import Daemon, made_home, running
from bench._rival import ensure_rival, run_rival

AT_ONCE = 32
WARM_UP_COUNT = 64
STARTS_COUNT = 5


class Size(msgspec.Struct, frozen=True):
    rounds_count: int
    alone_count: int  # Runs one after the other.
    together_count: int  # Runs at 32 at once.
    cancels_count: int


class Case(msgspec.Struct, frozen=True):
    name: str
    concurrency: int
    is_lasting: bool  # In 32 long-lived sessions instead of a new session for each run.
    wanted: float | None = None


CASES = (
    Case("1 at once, new sessions", 1, is_lasting=False),
    Case(f"{AT_ONCE} at once, new sessions", AT_ONCE, is_lasting=False, wanted=5.0),
    Case(f"{AT_ONCE} at once, {AT_ONCE} long-lived sessions", AT_ONCE, is_lasting=True, wanted=5.0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, for a check that it still runs")
    size = Size(1, 20, 96, 24) if parser.parse_args().quick else Size(3, 100, 640, 200)
    version = ensure_rival()
    with made_home() as home:
        measure_start(home, 2 if size.rounds_count == 1 else STARTS_COUNT)
        with running(home) as daemon:
            measure_memory(daemon)
            compare(daemon, size, version)
            measure_cancels(daemon, size.cancels_count)


def measure_start(home: Path, starts_count: int) -> None:
    times_s = []
    for _ in range(starts_count):
        with running(home) as daemon:
            times_s.append(daemon.ready_s)
    print(f"ready: best {min(times_s):.2f} s of {starts_count} starts, worst {max(times_s):.2f} s (wanted <= 1 s)")


def measure_memory(daemon: Daemon) -> None:
    idle_mb = daemon.rss_mb
    daemon.load(kind="runs", concurrency=AT_ONCE, count=100)
    print(
        f"resident memory: idle {idle_mb:.0f} MB (wanted <= 100 MB), after 100 runs {daemon.rss_mb:.0f} MB", flush=True
    )


def compare(daemon: Daemon, size: Size, version: str) -> None:
    print(f"runs of two turns and one tool call, best of {size.rounds_count} rounds; LangGraph {version}, in process:")
    for case in CASES:
        count = size.alone_count if case.concurrency == 1 else size.together_count
        ours: list[Measured] = []
        theirs: list[Measured] = []
        for _ in range(size.rounds_count):
            theirs.append(measure_rival(case, count))
            ours.append(measure_ours(daemon, case, count))
        print_comparison(case, best(ours), best(theirs))


class Measured(msgspec.Struct, frozen=True):
    rate: float  # Runs a second.
    p50_ms: float
    p99_ms: float
    cpu_ms: float  # Of a run, all threads of the side that is measured.
    client_cpu_s: float = 0.0
    wall_s: float = 0.0


def measure_ours(daemon: Daemon, case: Case, count: int) -> Measured:
    sessions: Sequence[str] = ()
    if case.is_lasting:
        sessions = daemon.load(kind="sessions", count=AT_ONCE).sessions
    daemon.load(kind="runs", concurrency=case.concurrency, count=WARM_UP_COUNT)
    before_s = daemon.cpu_s
    outcome = daemon.load(kind="runs", concurrency=case.concurrency, count=count, sessions=sessions)
    cpu_s = daemon.cpu_s - before_s
    return measured(outcome.times_ms, outcome.wall_s, cpu_s, outcome.cpu_s)


def measure_rival(case: Case, count: int) -> Measured:
    outcome = run_rival(kind="runs", concurrency=case.concurrency, count=count, is_lasting=case.is_lasting)
    return measured(outcome["times_ms"], outcome["wall_s"], outcome["cpu_s"], 0.0)


def measured(times_ms: list[float], wall_s: float, cpu_s: float, client_cpu_s: float) -> Measured:
    count = len(times_ms)
    return Measured(
        rate=count / wall_s,
        p50_ms=quantile(times_ms, 0.5),
        p99_ms=quantile(times_ms, 0.99),
        cpu_ms=cpu_s / count * 1000,
        client_cpu_s=client_cpu_s,
        wall_s=wall_s,
    )


def best(rounds: list[Measured]) -> Measured:
    return max(rounds, key=lambda one: one.rate)


def print_comparison(case: Case, ours: Measured, theirs: Measured) -> None:
    print(f"  {case.name}:")
    for name, side in (("Palyra over HTTP", ours), ("LangGraph", theirs)):
        print(
            f"    {name:17} {side.rate:7,.1f} runs/s   p50 {side.p50_ms:7.1f} ms   p99 {side.p99_ms:7.1f} ms   "
            f"{side.cpu_ms:.1f} ms of CPU a run"
        )
    wanted = f" (wanted >= {case.wanted:g})" if case.wanted is not None else ""
    share = ours.client_cpu_s / ours.wall_s * 100
    print(f"    ratio {ours.rate / theirs.rate:.1f}{wanted}; our client took {share:.0f} % of one core", flush=True)


def measure_cancels(daemon: Daemon, count: int) -> None:
    """Each run has talked for a while, at 200 tokens a second, when it is cancelled."""
    for concurrency in (1, 8):
        times_ms = daemon.load(kind="cancels", concurrency=concurrency, count=count).times_ms
        p50_ms, p99_ms = quantile(times_ms, 0.5), quantile(times_ms, 0.99)
        print(
            f"cancel while streaming, {concurrency} talking at once: p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms "
            f"(wanted p99 < 100 ms; {count} cancels)"
        )


def quantile(times_ms: Sequence[float], share: float) -> float:
    ordered = sorted(times_ms)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


if __name__ == "__main__":
    main()
