"""What the queue costs. Owns: small jobs a second, beside raw inserts and updates of the same rows.

A job is queued, claimed and ended. The raw writer does the same to the same table with plain SQL: it inserts each row,
marks it running and marks it done, in transactions of as many rows as the worker claims at once, with the same settings
of the file. It checks nothing.
Usage: python -m bench.queue [--quick]
"""

import argparse
import asyncio
import shutil
import tempfile
import time
from contextlib import closing
from pathlib import Path

import apsw

from palyra.adapters.store.sqlite.connection import JournalSettings, open_writing
from palyra.adapters.store.sqlite.migrations import known_migrations, migrate
from palyra.core.jobs.model import JobState
from palyra.engine.api.jobs import JobRequest
from tests.support.queues import OWNER, job_type, open_queue
from tests.support.waiting import until

AT_ONCE = 64
ROUNDS_COUNT = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, for a check that it still runs")
    jobs_count = 500 if parser.parse_args().quick else 5_000
    folder = Path(tempfile.mkdtemp(prefix="palyra-bench-"))
    try:
        ours = max(asyncio.run(_measure_queue(_new(folder, f"queue-{n}"), jobs_count)) for n in range(ROUNDS_COUNT))
        raw = max(_measure_raw(_new(folder, f"raw-{n}"), jobs_count) for n in range(ROUNDS_COUNT))
    finally:
        shutil.rmtree(folder)
    print(f"small jobs, {jobs_count:,} queued, claimed and ended, {AT_ONCE} at once, best of {ROUNDS_COUNT}:")
    print(f"  Palyra     {ours:8,.0f} jobs/s (wanted >= 2,000)")
    print(f"  raw rows   {raw:8,.0f} jobs/s; ratio {ours / raw:.2f}")


async def _measure_queue(folder: Path, jobs_count: int) -> float:
    async with open_queue(folder, [job_type("small", at_once_max=AT_ONCE)]) as queue:
        began_s = time.perf_counter()
        request = JobRequest(kind="small", principal=OWNER)
        for start in range(0, jobs_count, AT_ONCE):
            count = min(AT_ONCE, jobs_count - start)
            await queue.journal.commit((), [queue.jobs.prepare(request) for _ in range(count)])
            queue.jobs.wake()

        async def is_over() -> bool:
            counts = await queue.jobs.counts()
            return any(one.state is JobState.DONE and one.count == jobs_count for one in counts)

        await until(is_over, "the end of all jobs")
        return jobs_count / (time.perf_counter() - began_s)


def _new(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def _measure_raw(folder: Path, jobs_count: int) -> float:
    settings = JournalSettings(path=folder / "journal.db")
    with closing(open_writing(settings)) as connection:
        migrate(connection, settings.path, known_migrations())
        began_s = time.perf_counter()
        for start in range(0, jobs_count, AT_ONCE):
            _write_group(connection, range(start, min(start + AT_ONCE, jobs_count)))
        return jobs_count / (time.perf_counter() - began_s)


def _write_group(connection: apsw.Connection, numbers: range) -> None:
    insert = """
        INSERT INTO jobs VALUES (?, 'small', ?, '{}', 'queued', 0, NULL, NULL, 0, NULL, 0, 0, NULL, 1, 0, 0, '', NULL, 0, 0)
    """
    claim = (
        "UPDATE jobs SET state = 'running', owner = 'node', token = 2, leased_until_ms = 1, attempts = 1 WHERE id = ?"
    )
    end = "UPDATE jobs SET state = 'done', token = 3, leased_until_ms = 0, updated_at_ms = 1 WHERE id = ?"
    ids = [(f"{number:026}",) for number in numbers]
    for sql, rows in ((insert, [(*one, OWNER) for one in ids]), (claim, ids), (end, ids)):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(sql, rows)
        connection.execute("COMMIT")


if __name__ == "__main__":
    main()
