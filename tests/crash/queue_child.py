"""A worker to be killed: performs the jobs of a journal until it is.

Jobs of the kind `exact` commit their effect with the job. Jobs of the kind `marked` leave a line in a file first.
"""

import asyncio
import sys
from pathlib import Path

from palyra.core.ids import NodeId
from palyra.core.jobs.model import Job
from palyra.core.writes import TakeLease
from palyra.engine.jobs.handler import JobDone, JobFailed, JobResult, Report
from tests.support.queues import job_type, open_queue

NODE = NodeId("effects")
AT_ONCE = 16


def effect_name(job_id: str) -> str:
    return f"effect:{job_id}"


async def commit_effect(job: Job, report: Report) -> JobResult:
    """Fails every seventh time at first, so that retries are under fire too."""
    if job.attempts == 1 and job.payload.get("number", 0) % 7 == 0:  # type: ignore[operator]
        return JobFailed(message="the first attempt always fails")
    await asyncio.sleep(0)
    return JobDone(writes=(TakeLease(effect_name(job.id), NODE, 0, 1),))


async def work(folder: Path) -> None:
    marks = (folder / "marks").open("a")

    async def leave_mark(job: Job, report: Report) -> JobResult:
        marks.write(f"{job.id}\n")
        marks.flush()
        await asyncio.sleep(0)
        return JobDone()

    types = [
        job_type("exact", commit_effect, at_once_max=AT_ONCE, backoff_s=0.01),
        job_type("marked", leave_mark, at_once_max=AT_ONCE),
    ]
    async with open_queue(folder, types):
        print("working", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1])))
