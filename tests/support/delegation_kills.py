"""Kills a daemon's engine with SIGKILL around every commit of a delegation, and looks at what the next one makes of it.

Run it as its own process: `python -m tests.support.delegation_kills finish|cancel FOLDER` (commit_kills).
"""

import sys
from pathlib import Path

from palyra.core.delegation import JOB
from palyra.core.events.run import CancelRequested, RunAccepted
from palyra.core.ids import RunId
from palyra.engine.api.requests import RunRecord
from palyra.engine.engine import Engine
from tests.support.asking import ask, calls, finished, says
from tests.support.commit_kills import kill_at_each_point, killing
from tests.support.delegating import child_begun, children, delegates, delegating, every_run, results
from tests.support.engines import OWNER, Workshop, mark_tools
from tests.support.waiting import until

FOREVER_S = 600.0


def main() -> None:
    act, folder = sys.argv[1], Path(sys.argv[2])
    begin, look = {"finish": (_begin_and_finish, _look_at_end), "cancel": (_begin_and_cancel, _look_at_cancel)}[act]
    kill_at_each_point(folder, begin, look)


def _workshop(root: Path, pause_s: float = 0.0) -> Workshop:
    made = delegating(
        root,
        ("^go$", (delegates("look"), says("All done."))),
        ("^look$", (calls("mark.keep", text="a"), says("Seen."))),
    )
    made.tools = mark_tools(made.marks, pause_s)
    return made


async def _started(engine: Engine) -> RunRecord:
    """Starts the parent, or finds the one that an earlier process started."""
    return await engine.runs.start(OWNER, ask("go", idempotency_key="one"))


async def _begin_and_finish(root: Path, point: int) -> None:
    made = _workshop(root)
    journals = killing(made, point)
    async with made.open() as engine:
        journals[0].is_armed = True
        await finished(engine, await _started(engine))


async def _look_at_end(root: Path) -> dict[str, object]:
    async with _workshop(root).open() as engine:
        record = await _started(engine)
        events = await finished(engine, record)
        rows = await children(engine, record.id)
        tape = await engine.sessions.tape(OWNER, rows[0].session_id, 0, 500)
        return {
            "answer": (await engine.runs.get(OWNER, record.id)).answer,
            "outputs": [result.output for result in results(events)],
            "children": [row.state.value for row in rows],
            "runs_count": len(await every_run(engine)),
            "accepted_count": sum(isinstance(event.data, RunAccepted) for event in tape),
            "ends_count": sum(event.type == "run.done" for event in tape),
        }


async def _begin_and_cancel(root: Path, point: int) -> None:
    made = _workshop(root, FOREVER_S)
    journals = killing(made, point)
    async with made.open() as engine:
        record = await _started(engine)
        (child,) = await child_begun(engine, record.id)
        await until(made.executed, "the child's tool")
        journals[0].is_armed = True
        await engine.runs.cancel(OWNER, record.id)
        for run_id in (record.id, child.id):
            await _ended(engine, run_id)
        await _no_job_left(engine)


async def _look_at_cancel(root: Path) -> dict[str, object]:
    """The tools never end here, so nothing but a cancel ends the child."""
    async with _workshop(root, FOREVER_S).open() as engine:
        record = await _started(engine)
        tape = await engine.sessions.tape(OWNER, record.session_id, 0, 500)
        if not any(isinstance(event.data, CancelRequested) for event in tape):
            await engine.runs.cancel(OWNER, record.id)  # It was killed before the cancel was durable.
        states = [await _ended(engine, record.id)]
        states += [await _ended(engine, row.id) for row in await children(engine, record.id)]
        return {"states": states}


async def _ended(engine: Engine, run_id: RunId) -> str:
    async def is_over() -> bool:
        return (await engine.runs.get(OWNER, run_id)).ended_seq is not None

    await until(is_over, f"the end of {run_id}")
    return (await engine.runs.get(OWNER, run_id)).state


async def _no_job_left(engine: Engine) -> None:
    async def is_done() -> bool:
        counts = await engine.delegations.loader.views.jobs.count_jobs()
        return [each.state.value for each in counts if each.kind == JOB] == ["done"]

    await until(is_done, "the job that ends children")


if __name__ == "__main__":
    main()
