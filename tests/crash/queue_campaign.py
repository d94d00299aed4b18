"""Kills workers at random while they perform jobs, until all jobs are over, and counts what their effects came to.

Usage: python -m tests.crash.queue_campaign [--jobs 5000] [--seed 1]
"""

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from palyra.core.jobs.model import JobState
from palyra.core.writes import EnqueueJob
from palyra.engine.api.jobs import JobRequest
from tests.crash.queue_child import effect_name
from tests.support.queues import OWNER, job_type, open_queue
from tests.support.waiting import WAIT_S

ROOT = Path(__file__).parents[2]
LIFE_MIN_S = 0.001
LIFE_MAX_S = 0.012  # Of processor time: a hundred jobs, so that kills fall into claims, effects and ends alike.
TIME_MAX_S = 1_200.0
KINDS = ("exact", "marked")


@dataclass(frozen=True, slots=True)
class Outcome:
    kills_count: int
    states: Counter[JobState]
    missing_count: int
    repeated_exact_count: int
    repeated_marked_count: int

    @property
    def is_good(self) -> bool:
        return not self.missing_count and not self.repeated_exact_count and set(self.states) == {JobState.DONE}


def run_campaign(folder: Path, jobs_count: int, seed: int) -> Outcome:
    asyncio.run(_fill(folder, jobs_count))
    chance, kills_count, deadline_s = random.Random(seed), 0, time.monotonic() + TIME_MAX_S
    while asyncio.run(_live_count(folder)):
        assert time.monotonic() < deadline_s, "the jobs did not end"
        _live_and_die(folder, chance.uniform(LIFE_MIN_S, LIFE_MAX_S))
        kills_count += 1
    return asyncio.run(_examine(folder, kills_count))


async def _fill(folder: Path, jobs_count: int) -> None:
    async with open_queue(folder, [job_type(kind) for kind in KINDS], is_working=False) as queue:
        writes: list[EnqueueJob] = []
        for number in range(jobs_count):
            request = JobRequest(kind=KINDS[number % 2], principal=OWNER, payload={"number": number})
            writes.append(queue.jobs.prepare(request))
        await queue.journal.commit((), writes)


def _live_and_die(folder: Path, life_s: float) -> None:
    command = [sys.executable, "-m", "tests.crash.queue_child", str(folder), str(life_s)]
    ended = subprocess.run(command, cwd=ROOT, timeout=WAIT_S, check=False)
    assert ended.returncode in (-signal.SIGPROF, -signal.SIGALRM)


async def _live_count(folder: Path) -> int:
    async with open_queue(folder, (), is_working=False) as queue:
        counts = await queue.jobs.counts()
    return sum(one.count for one in counts if one.state in (JobState.QUEUED, JobState.RUNNING))


async def _examine(folder: Path, kills_count: int) -> Outcome:
    marks = Counter((folder / "marks").read_text().split())
    states: Counter[JobState] = Counter()
    missing = repeated_exact = repeated_marked = 0
    async with open_queue(folder, (), is_working=False) as queue:
        rows = queue.journal._writer.perform(
            lambda recorder: recorder.connection.execute("SELECT id, kind, state FROM jobs").fetchall()
        )
        for found_id, kind, state in await rows:
            job_id = str(found_id)
            states[JobState(state)] += 1
            if kind == "marked":
                missing += marks[job_id] == 0
                repeated_marked += marks[job_id] > 1
                continue
            lease = await queue.journal.state.lease(effect_name(job_id))
            missing += lease is None
            repeated_exact += lease is not None and lease.token != 1
    return Outcome(kills_count, states, missing, repeated_exact, repeated_marked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="palyra-queue-") as folder:
        outcome = run_campaign(Path(folder), options.jobs, options.seed)
    print(f"{options.jobs} jobs, {outcome.kills_count} kills; ended {dict(outcome.states)}")
    print(f"effects missing: {outcome.missing_count}; exactly-once effects repeated: {outcome.repeated_exact_count}")
    print(f"at-least-once effects repeated: {outcome.repeated_marked_count}")
    sys.exit(0 if outcome.is_good else 1)


if __name__ == "__main__":
    main()
