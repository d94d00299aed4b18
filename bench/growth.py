"""What length costs. Owns: a further run in ever longer sessions beside LangGraph's, and starting with a long journal.

A session of n events is built through the journal's own commits, in whole cycles of a run; then the daemon starts and
further runs in it are timed over HTTP, one after the other. The first run in a session loads it from disk and is shown
apart, and the compaction that it starts is waited for. Short sessions are many, because each run makes them longer.
Rounds take turns; the best median of each counts.
Usage: python -m bench.growth [--quick]
"""

import argparse
import asyncio
import http.client
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench._daemon import Daemon, made_home, running
from bench._rival import ensure_rival, run_rival
from palyra.app import Home, Offline, open_offline
from palyra.core.events import Draft
from palyra.core.ids import Principal, SessionId
from palyra.ports.journal import Append
from tests.support.journals import Ids, run_cycle, session_created

OWNER = Principal("user:owner")  # Whom the admin token acts as.
CYCLE_EVENTS = 13
COMMIT_CYCLES = 350
SETTLE_S = 60.0
SESSION_CYCLES = 70  # Of the sessions that fill a long journal.


class Group(msgspec.Struct, frozen=True):
    """Sessions of one length, and how many runs each is visited for in a round; the first is not counted."""

    cycles_count: int
    sessions_a_round: int
    runs_count: int

    @property
    def events_count(self) -> int:
        return 1 + CYCLE_EVENTS * self.cycles_count


class Size(msgspec.Struct, frozen=True):
    groups: tuple[Group, ...]
    rounds_count: int
    rival_lengths: tuple[int, ...]
    rival_runs_count: int
    journal_events_count: int
    starts_count: int


QUICK = Size((Group(1, 5, 3), Group(77, 2, 7), Group(769, 1, 15)), 2, (10, 1_000), 5, 50_000, 2)
FULL = Size((Group(1, 10, 5), Group(77, 3, 15), Group(7_692, 1, 41)), 4, (10, 1_000, 5_000), 20, 1_000_000, 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller journals, for a check that it still runs")
    size = QUICK if parser.parse_args().quick else FULL
    version = ensure_rival()
    with made_home() as home:
        compare_lengths(home, size)
    compare_rival(size, version)
    compare_starts(size)


def compare_lengths(home: Path, size: Size) -> None:
    with running(home):
        pass  # The first start makes journal and keys.
    sessions = asyncio.run(build_groups(home, size))
    first: dict[Group, list[float]] = {group: [] for group in size.groups}
    medians: dict[Group, list[float]] = {group: [] for group in size.groups}
    with running(home) as daemon:
        daemon.load(kind="runs", count=50)
        for number in range(size.rounds_count):
            for group in size.groups:
                visited = sessions[group][number * group.sessions_a_round :][: group.sessions_a_round]
                first[group].append(statistics.median(visit(daemon, group, visited)[0]))
                settle(daemon)
                medians[group].append(statistics.median(visit(daemon, group, visited)[1]))
    print(f"a further run with a tool call, best median of {size.rounds_count} rounds:")
    for group in size.groups:
        print(f"  session of {group.events_count:>7,} events: {min(medians[group]):6.2f} ms", end="")
        print(f"   (the first, which loads it: {min(first[group]):.2f} ms)")
    ratio = min(medians[size.groups[-1]]) / min(medians[size.groups[0]])
    print(f"  ratio longest to shortest {ratio:.2f} (wanted <= 1.3)", flush=True)


def visit(daemon: Daemon, group: Group, sessions: Sequence[SessionId]) -> tuple[list[float], list[float]]:
    """Times of the first runs, and of all others."""
    times_ms = daemon.load(kind="visits", count=group.runs_count, sessions=sessions).times_ms
    first = times_ms[:: group.runs_count]
    return first, [time_ms for number, time_ms in enumerate(times_ms) if number % group.runs_count]


def settle(daemon: Daemon) -> None:
    """Waits for the compaction of a session that was built whole. A session that grew had it long before."""
    until_s = time.monotonic() + SETTLE_S
    while time.monotonic() < until_s:
        if not any(_has_compaction(daemon, state) for state in ("queued", "running")):
            return
        time.sleep(0.1)
    raise RuntimeError(f"a compaction was not done within {SETTLE_S:g} s")


def _has_compaction(daemon: Daemon, state: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=10)
    try:
        headers = {"authorization": f"Bearer {daemon.token}"}
        connection.request("GET", f"/api/v1/jobs?kind=compaction&state={state}&limit=1", headers=headers)
        return bool(json.loads(connection.getresponse().read())["items"])
    finally:
        connection.close()


async def build_groups(home: Path, size: Size) -> dict[Group, list[SessionId]]:
    ids = Ids()
    async with open_offline(Home(home)) as offline:
        return {
            group: [
                await build_session(offline, ids, group.cycles_count)
                for _ in range(group.sessions_a_round * size.rounds_count)
            ]
            for group in size.groups
        }


async def build_session(offline: Offline, ids: Ids, cycles_count: int) -> SessionId:
    session = ids.session()
    seq = 0
    drafts: list[Draft] = [session_created(owner=OWNER)]
    for number in range(cycles_count):
        drafts += run_cycle(ids.run())
        if number % COMMIT_CYCLES == COMMIT_CYCLES - 1 or number == cycles_count - 1:
            await offline.journal.commit([Append(session, seq, tuple(drafts))])
            seq += len(drafts)
            drafts = []
    return session


def compare_rival(size: Size, version: str) -> None:
    outcome = run_rival(kind="growth", lengths=size.rival_lengths, count=size.rival_runs_count)
    medians_ms = list(outcome["medians_ms"].values())
    print(f"the same with LangGraph {version}, in process:")
    for length, median_ms in zip(size.rival_lengths, medians_ms, strict=True):
        print(f"  thread of {length:>6,} messages: {median_ms:7.2f} ms")
    print(f"  ratio longest to shortest {medians_ms[-1] / medians_ms[0]:.2f}", flush=True)


def compare_starts(size: Size) -> None:
    with made_home() as empty, made_home() as long:
        for home in (empty, long):
            with running(home):
                pass
        asyncio.run(fill(long, size.journal_events_count))
        empty_s, long_s = [], []
        for _ in range(size.starts_count):
            with running(empty) as daemon:
                empty_s.append(daemon.ready_s)
            with running(long) as daemon:
                long_s.append(daemon.ready_s)
    print(
        f"ready, best of {size.starts_count} starts: empty journal {min(empty_s):.3f} s, "
        f"{size.journal_events_count:,} events {min(long_s):.3f} s"
    )
    print(f"  ratio {min(long_s) / min(empty_s):.2f} (wanted <= 1.5)")


async def fill(home: Path, events_count: int) -> None:
    ids = Ids()
    started_s = time.perf_counter()
    async with open_offline(Home(home)) as offline:
        for _ in range(events_count // (1 + CYCLE_EVENTS * SESSION_CYCLES) + 1):
            await build_session(offline, ids, SESSION_CYCLES)
    print(f"(built a journal of {events_count:,} events in {time.perf_counter() - started_s:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
