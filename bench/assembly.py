"""What assembling a context costs. Owns: the time of it in sessions of 100 to 100,000 events, without recall.

Sessions are written through the journal's own commits, in whole cycles of a run. Each is opened by a further run, which
compacts what is long; then its context is assembled again and again. The window is bounded, and 1,000 events fill it: the
ratio is to such a session. A session of 100 events has fewer messages to count.
Usage: python -m bench.assembly [--quick]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from palyra.adapters.providers.scripted import Script
from palyra.core.events import Draft
from palyra.core.ids import SessionId
from palyra.engine.engine import Engine
from palyra.ports.journal import Append
from palyra.ports.router import ModelCard
from tests.support.asking import ask, finished, says
from tests.support.engines import OWNER, Workshop
from tests.support.journals import Ids, run_cycle

CYCLE_EVENTS = 13
COMMIT_CYCLES = 200
TIMES_COUNT = 200
FULL_EVENTS = 1_000


async def measure(lengths: tuple[int, ...]) -> None:
    ids = Ids()
    with tempfile.TemporaryDirectory(prefix="palyra-bench-") as folder:
        workshop = Workshop(Path(folder), [Script(turns=(says("It is done."),))])
        workshop.describe = lambda name: ModelCard(
            name=name, provider="p", kind="scripted", id=name, window_tokens=32_000, max_output_tokens=500
        )
        async with workshop.open() as engine:
            sessions = [(length, await _write(engine, length, ids)) for length in lengths]
        async with workshop.open() as engine:
            taken_s = [(length, await _assemble(engine, session_id)) for length, session_id in sessions]
    full_s = dict(taken_s)[FULL_EVENTS]
    print("assembling a context, without recall (wanted: <= 10 ms, ratio <= 1.3):")
    for length, each_s in taken_s:
        print(f"  {length:>7,} events  p50 {1000 * each_s:.2f} ms, ratio {each_s / full_s:.2f}")


async def _write(engine: Engine, length: int, ids: Ids) -> SessionId:
    run = await engine.runs.start(OWNER, ask("Let us begin."))
    seq = (await finished(engine, run))[-1].seq
    cycles_count = length // CYCLE_EVENTS
    for begin in range(0, cycles_count, COMMIT_CYCLES):
        drafts: list[Draft] = []
        for number in range(begin, min(begin + COMMIT_CYCLES, cycles_count)):
            drafts += run_cycle(ids.run(), f"How many lines has README {number}?")
        await engine._setup.journal.commit([Append(run.session_id, seq, tuple(drafts))])
        seq += len(drafts)
    return run.session_id


async def _assemble(engine: Engine, session_id: SessionId) -> float:
    started = await engine.runs.start(OWNER, ask("Go on.", session_id=session_id))
    await finished(engine, started)
    row = await engine._setup.views.runs.run(started.id, None)
    assert row is not None
    run = await engine._parts.loader.fold_run(row)
    assert run is not None
    window = (await engine._parts.loader.load(session_id)).window
    taken_s: list[float] = []
    for _ in range(TIMES_COUNT):
        began_s = time.perf_counter()
        await engine._parts.assembler.choose(window, run)
        taken_s.append(time.perf_counter() - began_s)
    return statistics.median(taken_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 1,000 events, for a check that it still runs")
    asyncio.run(measure((100, FULL_EVENTS) if parser.parse_args().quick else (100, FULL_EVENTS, 10_000, 100_000)))


if __name__ == "__main__":
    main()
