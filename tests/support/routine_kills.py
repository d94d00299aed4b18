"""Kills a daemon's engine with SIGKILL on either side of its n-th commit while a routine fires, for every n.

Run it as its own process: `python -m tests.support.routine_kills WORK` (commit_kills).
"""

import sys
from pathlib import Path

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script
from palyra.core.routines.model import Misfire
from palyra.engine.api.requests import RunsQuery
from palyra.engine.engine import Engine
from tests.support.commit_kills import kill_at_each_point, killing
from tests.support.engines import OWNER, Workshop
from tests.support.routines import SetClock, fired_times, live_jobs_count, times_of, wish
from tests.support.waiting import until

DUE_S = 60


async def live(root: Path, point: int) -> None:
    """Fires one due time; the point lies somewhere in that."""
    clock = SetClock()
    workshop = workshop_at(root, clock)
    journals = killing(workshop, point)
    async with workshop.open() as engine:
        await engine.scheduler.look()
        await engine.routines.create(OWNER, wish(every_s=DUE_S, misfire=Misfire.ALL))
        journals[0].is_armed = True
        clock.forward(DUE_S)
        await engine.scheduler.look()
        await until(lambda: is_quiet(engine))


async def settle(root: Path) -> dict[str, object]:
    """Starts again a little later, lets everything end, and tells what there is."""
    clock = SetClock()
    clock.forward(DUE_S + 30)
    async with workshop_at(root, clock).open() as engine:
        await engine.scheduler.look()
        await until(lambda: is_quiet(engine))
        runs = await engine.runs.list(OWNER, RunsQuery())
        (routine,) = await engine.routines.list(OWNER, "", 10)
        times = await times_of(engine, routine.id)
        return {
            "fired_count": len(await fired_times(engine)),
            "runs": [run.state for run in runs],
            "history": [[time.fire.due_at_ms, time.fire.reason, time.run_state] for time in times],
            "counted": routine.fired_count,
        }


def workshop_at(root: Path, clock: SetClock) -> Workshop:
    workshop = Workshop(root, [Script(turns=(Turn(text="Done."),))])
    workshop.clock = clock
    return workshop


async def is_quiet(engine: Engine) -> bool:
    """Tells whether a time has fired, no job is left and no run goes on."""
    runs = await engine.runs.list(OWNER, RunsQuery())
    is_over = all(run.state in ("done", "failed", "cancelled") for run in runs)
    return is_over and bool(await fired_times(engine)) and not await live_jobs_count(engine)


if __name__ == "__main__":
    kill_at_each_point(Path(sys.argv[1]), live, settle)
