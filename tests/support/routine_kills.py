"""Kills a daemon's engine with SIGKILL on either side of its n-th commit while a routine fires, for every n.

Run it as its own process (`python -m tests.support.routine_kills WORK`), because it forks. It prints one JSON line
for each point: what was left once a second engine had settled the rest.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script
from palyra.core.events import Event
from palyra.core.routines.model import Misfire
from palyra.core.writes import Fence, Write
from palyra.engine.api.requests import RunsQuery
from palyra.engine.engine import Engine
from palyra.ports.journal import Append, Journal
from tests.support.engines import OWNER, Workshop
from tests.support.routines import SetClock, fired_times, live_jobs_count, times_of, wish
from tests.support.waiting import until

POINTS_MAX = 100
DUE_S = 60


class KillingJournal:
    """The journal, which ends the process on either side of one commit, counted from when it is armed."""

    def __init__(self, journal: Journal, point: int) -> None:
        self._journal = journal
        self._steps_left = point
        self.is_armed = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)

    async def commit(
        self, appends: Sequence[Append], writes: Sequence[Write] = (), fence: Fence | None = None
    ) -> tuple[Event, ...]:
        self._step()
        events = await self._journal.commit(appends, writes, fence)
        self._step()
        return events

    def _step(self) -> None:
        if self.is_armed:
            self._steps_left -= 1
            if self._steps_left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    work = Path(sys.argv[1])
    for point in range(1, POINTS_MAX):
        root = work / str(point)
        child = os.fork()
        if child == 0:
            asyncio.run(live(root, point))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        left = asyncio.run(settle(root))
        left["was_killed"] = os.WIFSIGNALED(status)
        left["is_broken"] = os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0
        sys.stdout.write(json.dumps(left) + "\n")
        shutil.rmtree(root)
        if not left["was_killed"]:
            return


async def live(root: Path, point: int) -> None:
    """Fires one due time; the point lies somewhere in that."""
    clock = SetClock()
    workshop = workshop_at(root, clock)
    journals: list[KillingJournal] = []

    def wrap(journal: Journal) -> Journal:
        journals.append(KillingJournal(journal, point))
        return journals[0]  # type: ignore[return-value]

    workshop.wrap_journal = wrap
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
    main()
