"""What the journal costs. Owns: its throughput beside two others, its latency, opening and reading of long journals.

The first other is the journal itself, same producers, queue, thread, columns, index and hash chain, with projections left
out. The second is a bare writer: the same shape written as plainly and as fast as such a thing reasonably is, raw tuples,
no preconditions, no checks of what is written, no records handed back.
Usage: python -m bench.journal [--quick]
"""

import argparse
import asyncio
import gc
import hashlib
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple
from unittest import mock

import apsw
import msgspec

from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.adapters.store.sqlite.journal import SqliteJournal, open_journal
from palyra.core.chain import GENESIS, SALT_BYTES, Header
from palyra.core.commit import plan
from palyra.core.events import Draft
from palyra.core.ids import SessionId
from palyra.ports.journal import Append
from tests.support.journals import FixedClock, FixedSigner, Ids, run_cycle, session_created

PRODUCERS_COUNT = 64
GROUP_MAX = 512

Work = list[tuple[SessionId, list[Draft]]]


class Pace(NamedTuple):
    """Events a second by the clock, and what each cost all threads together: the second hardly hears a busy neighbour."""

    rate: float
    cpu_us: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, for a check that it still runs")
    is_quick = parser.parse_args().quick
    folder = Path(tempfile.mkdtemp(prefix="palyra-bench-"))
    try:
        compare_throughput(folder, cycles_count=5 if is_quick else 20, rounds_count=2 if is_quick else 9)
        measure_latency(folder, commits_count=200 if is_quick else 2_000)
        compare_long(
            folder, sessions_count=1_000 if is_quick else 10_000, events_count=100_000 if is_quick else 1_000_000
        )
    finally:
        shutil.rmtree(folder)


def compare_throughput(folder: Path, cycles_count: int, rounds_count: int) -> None:
    """Rounds of both in turn, so that a slow moment of the machine hits either."""
    ours: list[Pace] = []
    plain: list[Pace] = []
    bare: list[Pace] = []
    for number in range(rounds_count):
        bare.append(asyncio.run(run_baseline(folder / f"bare{number}.db", drafts_of_producers(cycles_count))))
        with mock.patch.object(plan, "PROJECTED_TYPES", frozenset()):
            plain.append(asyncio.run(run_journal(folder / f"plain{number}.db", drafts_of_producers(cycles_count))))
        ours.append(asyncio.run(run_journal(folder / f"ours{number}.db", drafts_of_producers(cycles_count))))
        rates = [f"{paces[-1].rate:,.0f}" for paces in (bare, plain, ours)]
        print(f"  round {number + 1}: bare {rates[0]}, ours without projections {rates[1]}, ours {rates[2]} events/s")
    print(f"throughput, {PRODUCERS_COUNT} producers, one event a commit, FULL, {rounds_count} rounds:")
    _print_paces("bare writer             ", bare)
    _print_paces("ours without projections", plain)
    _print_paces("ours                    ", ours)
    _print_ratio("to ours without projections (wanted >= 0.6)", ours, plain)
    _print_ratio("to the bare writer                         ", ours, bare)


def _print_ratio(name: str, ours: Sequence[Pace], others: Sequence[Pace]) -> None:
    median = statistics.median(pace.rate for pace in ours) / statistics.median(pace.rate for pace in others)
    best = max(pace.rate for pace in ours) / max(pace.rate for pace in others)
    cpu = min(pace.cpu_us for pace in others) / min(pace.cpu_us for pace in ours)
    print(f"  ratio {name}: medians {median:.2f}, best rounds {best:.2f}, CPU time {cpu:.2f}")


def _print_paces(name: str, paces: Sequence[Pace]) -> None:
    median = statistics.median(pace.rate for pace in paces)
    best = max(pace.rate for pace in paces)
    cpu_us = min(pace.cpu_us for pace in paces)
    print(f"  {name} median {median:,.0f}, best {best:,.0f} events/s, {cpu_us:.1f} us of CPU an event")


def drafts_of_producers(cycles_count: int) -> Work:
    ids = Ids()
    work: Work = []
    for _ in range(PRODUCERS_COUNT):
        session = ids.session()
        work.append((session, [draft for _ in range(cycles_count) for draft in run_cycle(ids.run())]))
    return work


async def run_journal(path: Path, work: Work) -> Pace:
    journal = open_journal(JournalSettings(path=path), FixedSigner(), FixedClock())
    for session, _ in work:
        await journal.commit([Append(session, 0, (session_created(),))])

    async def produce(session: SessionId, drafts: Sequence[Draft]) -> None:
        for seq, draft in enumerate(drafts, start=1):
            await journal.commit([Append(session, seq, (draft,))])

    pace = await timed([produce(session, drafts) for session, drafts in work], sum(len(drafts) for _, drafts in work))
    await journal.close()
    return pace


async def run_baseline(path: Path, work: Work) -> Pace:
    baseline = Baseline(path)
    for tape_id, (session, _) in enumerate(work, start=1):
        await baseline.append(tape_id, session, 1, session_created())

    async def produce(tape_id: int, session: SessionId, drafts: Sequence[Draft]) -> None:
        for seq, draft in enumerate(drafts, start=2):
            await baseline.append(tape_id, session, seq, draft)

    tasks = [produce(tape_id, session, drafts) for tape_id, (session, drafts) in enumerate(work, start=1)]
    pace = await timed(tasks, sum(len(drafts) for _, drafts in work))
    baseline.close()
    return pace


async def timed(tasks: Sequence[Coroutine[Any, Any, None]], events_count: int) -> Pace:
    gc.collect()
    gc.freeze()  # The drafts made beforehand are not the store's to walk through.
    started, cpu_started = time.perf_counter(), time.process_time()
    await asyncio.gather(*tasks)
    taken, cpu_taken = time.perf_counter() - started, time.process_time() - cpu_started
    gc.unfreeze()
    return Pace(events_count / taken, cpu_taken / events_count * 1e6)


class Baseline:
    """A queue, a thread, a table, a hash chain."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        self._connection.execute(
            """
            CREATE TABLE events (position INTEGER PRIMARY KEY, tape_id INTEGER NOT NULL, seq INTEGER NOT NULL, run_id TEXT,
                type TEXT NOT NULL, at_ms INTEGER NOT NULL, actor TEXT NOT NULL, trust TEXT NOT NULL, data BLOB NOT NULL,
                salt BLOB, digest BLOB NOT NULL, hash BLOB NOT NULL) STRICT;
            CREATE UNIQUE INDEX events_by_tape ON events (tape_id, seq);
            """
        )
        self._encoder = msgspec.json.Encoder(order="sorted")
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._heads: dict[int, bytes] = {}
        self._salts: list[bytes] = []
        self._position = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    async def append(self, tape_id: int, session: SessionId, seq: int, draft: Draft) -> tuple[int, bytes]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[int, bytes]] = loop.create_future()
        data = self._encoder.encode(draft.data)
        type_name = draft.data.TYPE
        trust = draft.trust
        header = self._encoder.encode(
            Header(
                actor=draft.actor,
                at_ms=draft.at_ms,
                run_id=draft.run_id,
                seq=seq,
                session_id=session,
                trust=trust,
                type=type_name,
            )
        )
        salt = self._salts.pop() if self._salts else self._draw_salt()
        digest = hashlib.sha256(salt + data).digest()
        cells = (tape_id, seq, draft.run_id, type_name, draft.at_ms, draft.actor, trust.value, data, salt, digest)
        self._queue.put((loop, future, header, cells))
        return await future

    def _draw_salt(self) -> bytes:
        drawn = os.urandom(SALT_BYTES * 256)
        self._salts = [drawn[start : start + SALT_BYTES] for start in range(0, len(drawn), SALT_BYTES)]
        return self._salts.pop()

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _serve(self) -> None:
        while (first := self._queue.get()) is not None:
            group = [first]
            try:
                while len(group) < GROUP_MAX:
                    group.append(self._queue.get_nowait())
            except Empty:
                pass
            self._commit(group)

    def _commit(self, group: list[Any]) -> None:
        rows, results = [], []
        for _, future, header, cells in group:
            self._position += 1
            event_hash = hashlib.sha256(self._heads.get(cells[0], GENESIS) + header + cells[9]).digest()
            self._heads[cells[0]] = event_hash
            rows.append((self._position, *cells, event_hash))
            results.append((future, (self._position, event_hash)))
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._connection.execute("COMMIT")
        group[0][0].call_soon_threadsafe(_settle, results)


def _settle(results: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in results:
        future.set_result(result)


def measure_latency(folder: Path, commits_count: int) -> None:
    times_ms = sorted(asyncio.run(_latencies(folder / "latency.db", commits_count)))
    p50, p99 = times_ms[len(times_ms) // 2], times_ms[len(times_ms) * 99 // 100]
    print(f"single commit, one producer, FULL: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    bare_ms = sorted(_bare_latencies(folder / "fsync.db", commits_count))
    p50, p99 = bare_ms[len(bare_ms) // 2], bare_ms[len(bare_ms) * 99 // 100]
    print(f"  (bare apsw, one row a transaction: p50 {p50:.2f} ms, p99 {p99:.2f} ms)")


async def _latencies(path: Path, commits_count: int) -> list[float]:
    journal = open_journal(JournalSettings(path=path), FixedSigner(), FixedClock())
    ids = Ids()
    session = ids.session()
    await journal.commit([Append(session, 0, (session_created(),))])
    drafts = [draft for _ in range(commits_count // 13 + 1) for draft in run_cycle(ids.run())]
    times_ms = []
    for seq, draft in enumerate(drafts, start=1):
        started = time.perf_counter()
        await journal.commit([Append(session, seq, (draft,))])
        times_ms.append((time.perf_counter() - started) * 1000)
    await journal.close()
    return times_ms


def _bare_latencies(path: Path, commits_count: int) -> list[float]:
    connection = apsw.Connection(str(path))
    for statement in (
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "CREATE TABLE t (a INTEGER PRIMARY KEY, b)",
    ):
        connection.execute(statement).fetchall()
    times_ms = []
    for _ in range(commits_count):
        started = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t (b) VALUES (?)", (bytes(200),))
        connection.execute("COMMIT")
        times_ms.append((time.perf_counter() - started) * 1000)
    connection.close()
    return times_ms


def compare_long(folder: Path, sessions_count: int, events_count: int) -> None:
    asyncio.run(build_long(folder / "long.db", sessions_count, events_count))
    asyncio.run(_with_journal(folder / "empty.db", lambda journal: _nothing()))
    empty_ms = opening_ms(folder / "empty.db")
    long_ms = opening_ms(folder / "long.db")
    print(
        f"opening: empty {empty_ms:.2f} ms, {sessions_count:,} sessions with {events_count:,} events {long_ms:.2f} ms"
    )
    print(f"  ratio {long_ms / empty_ms:.2f} (wanted <= 1.5)")
    asyncio.run(_with_journal(folder / "tapes.db", lambda journal: compare_tails(journal, events_count // 10)))


async def build_long(path: Path, sessions_count: int, events_count: int) -> None:
    journal = open_journal(JournalSettings(path=path, durability="normal"), FixedSigner(), FixedClock())
    ids = Ids()
    cycles_count = events_count // sessions_count // 13
    rest = events_count // sessions_count - cycles_count * 13 - 1
    started = time.perf_counter()
    for number in range(0, sessions_count, 50):
        appends = []
        for _ in range(50):
            drafts = [session_created(), *(draft for _ in range(cycles_count) for draft in run_cycle(ids.run()))]
            appends.append(Append(ids.session(), 0, (*drafts, *run_cycle(ids.run())[:rest])))
        await journal.commit(appends)
        if number % 1_000 == 0:
            print(f"  building: {number:,} of {sessions_count:,} sessions, {time.perf_counter() - started:.0f} s")
    await journal.close()


async def _with_journal(path: Path, act: Callable[[SqliteJournal], Coroutine[Any, Any, None]]) -> None:
    journal = open_journal(JournalSettings(path=path), FixedSigner(), FixedClock())
    await act(journal)
    await journal.close()


async def _nothing() -> None:
    pass


def opening_ms(path: Path) -> float:
    """From nothing to a journal that takes commits; the best of several, closing left out."""
    return min(asyncio.run(_opening_ms(path)) for _ in range(20))


async def _opening_ms(path: Path) -> float:
    started = time.perf_counter()
    journal = open_journal(JournalSettings(path=path), FixedSigner(), FixedClock())
    taken_ms = (time.perf_counter() - started) * 1000
    await journal.close()
    return taken_ms


async def compare_tails(journal: SqliteJournal, events_count: int) -> None:
    ids = Ids()
    short = await _tape(journal, ids, 100)
    long = await _tape(journal, ids, events_count)
    short_ms = await _tail_ms(journal, short)
    long_ms = await _tail_ms(journal, long)
    print(f"last 50 events: of a tape of 100 {short_ms:.3f} ms, of a tape of {events_count:,} {long_ms:.3f} ms")
    print(f"  ratio {long_ms / short_ms:.2f}")


async def _tape(journal: SqliteJournal, ids: Ids, events_count: int) -> SessionId:
    session = ids.session()
    drafts = [session_created()]
    while len(drafts) < events_count:
        drafts += run_cycle(ids.run())
    for start in range(0, events_count, 5_000):
        await journal.commit([Append(session, start, tuple(drafts[start : min(start + 5_000, events_count)]))])
    return session


async def _tail_ms(journal: SqliteJournal, session: SessionId) -> float:
    times_ms = []
    for _ in range(200):
        started = time.perf_counter()
        events = await journal.read_last(session, 50)
        times_ms.append((time.perf_counter() - started) * 1000)
        assert len(events) == 50
    return statistics.median(times_ms)


if __name__ == "__main__":
    main()
