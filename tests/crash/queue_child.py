"""A worker to be killed: performs the jobs of a journal until it is, by an alarm that no code of it can answer.

The kernel ends it after the processor time that it was given. A parent that kills it might come when all is done.

Jobs of the kind `exact` commit their effect with the job. Jobs of the kind `marked` leave a line in a file first.
"""

import asyncio
import signal
import sys
from pathlib import Path

from palyra.core.ids import NodeId
from palyra.core.jobs.model import Job
from palyra.core.writes import TakeLease
from palyra.engine.jobs.handler import JobDone, JobFailed, JobResult, Report
from tests.support.queues import job_type, open_queue

NODE = NodeId("effects")
AT_ONCE = 16
IDLE_MAX_S = 2.0  # Who only waits for the moment to try a job again uses no processor time.


def effect_name(job_id: str) -> str:
    return f"effect:{job_id}"


async def commit_effect(job: Job, report: Report) -> JobResult:
    """Fails every seventh time at first, so that retries are under fire too."""
    if job.attempts == 1 and job.payload.get("number", 0) % 7 == 0:  # type: ignore[operator]
        return JobFailed(message="the first attempt always fails")
    await asyncio.sleep(0)
    return JobDone(writes=(TakeLease(effect_name(job.id), NODE, 0, 1),))


async def work(folder: Path, life_s: float) -> None:
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
        signal.setitimer(signal.ITIMER_PROF, life_s)
        signal.setitimer(signal.ITIMER_REAL, IDLE_MAX_S)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), float(sys.argv[2])))
