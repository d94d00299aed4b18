"""What compaction costs others. Owns: the latency of one session's turns while many other sessions are compacted.

All run in one engine on a real journal, with a model that answers at once and takes a while for summaries.
Usage: python -m bench.compaction [--quick]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from palyra.core.compaction.model import CompactionSettings
from palyra.core.events.model import Finish
from palyra.core.ids import SessionId
from palyra.core.jobs.model import JobState
from palyra.engine.api.jobs import JobRequest
from palyra.engine.engine import Engine
from palyra.engine.setup import EngineSettings
from palyra.ports.jobs import JobFilter
from palyra.ports.provider import Completed, Delta, ModelRequest, TextDelta
from tests.support.asking import ask, finished
from tests.support.engines import OWNER, Workshop

TURNS_COUNT = 40  # After as many turns another session of the same length takes over.
TURNS_AT_ONCE = 5
EXCHANGES_COUNT = 12
SUMMARY_S = 0.2


class Model:
    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        if "summarise a conversation" in request.instructions:
            await asyncio.sleep(SUMMARY_S)
        yield TextDelta("Certainly. " + "word " * 100)
        yield Completed(Finish.STOP)


async def measure(sessions_count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="palyra-bench-") as folder:
        settings = EngineSettings(compaction=CompactionSettings(is_automatic=False))
        async with Workshop(Path(folder), Model(), settings).open() as engine:
            sessions = [await _fill(engine) for _ in range(sessions_count)]
            quiet = statistics.median(await _turns(engine, await _fill(engine), TURNS_COUNT))
            other = await _fill(engine)
            for session_id in sessions:
                request = JobRequest(
                    kind="compaction", principal=OWNER, payload={"session_id": session_id}, session_id=session_id
                )
                await engine.jobs.enqueue(request)
            taken: list[float] = []
            while await _is_compacting(engine):
                taken += await _turns(engine, other, TURNS_AT_ONCE)
                other = other if len(taken) % TURNS_COUNT else await _fill(engine)
            busy = statistics.median(taken)
    print(f"one session's turns while {sessions_count} others are compacted, {len(taken)} turns until all are:")
    print(
        f"  quiet p50 {1000 * quiet:.1f} ms, meanwhile {1000 * busy:.1f} ms, ratio {busy / quiet:.2f} (wanted <= 1.5)"
    )


async def _is_compacting(engine: Engine) -> bool:
    unfinished = (JobState.QUEUED, JobState.RUNNING)
    jobs = [await engine.jobs.list(None, JobFilter(kind="compaction", state=state)) for state in unfinished]
    return any(jobs)


async def _fill(engine: Engine) -> SessionId:
    session_id: SessionId | None = None
    for number in range(EXCHANGES_COUNT):
        text = f"The number of box {number} is {number:05}."
        run = await engine.runs.start(OWNER, ask(text) if session_id is None else ask(text, session_id=session_id))
        session_id = run.session_id
        await finished(engine, run)
    assert session_id is not None
    return session_id


async def _turns(engine: Engine, session_id: SessionId, count: int) -> list[float]:
    taken: list[float] = []
    for _ in range(count):
        began_s = time.perf_counter()
        run = await engine.runs.start(OWNER, ask("Go on.", session_id=session_id))
        await finished(engine, run)
        taken.append(time.perf_counter() - began_s)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ten sessions, for a check that it still runs")
    asyncio.run(measure(10 if parser.parse_args().quick else 100))


if __name__ == "__main__":
    main()
