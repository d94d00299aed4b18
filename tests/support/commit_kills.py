"""Kills an engine with SIGKILL on either side of its n-th change of the journal, for every n, and looks at what is left.

A module of kills is its own process, because it forks: a fork of the test process would inherit its threads' locks. It
prints one JSON line for each point. `points_of` runs one and reads them.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from palyra.app import Home
from palyra.core.events import Event
from palyra.core.writes import Fence, Write
from palyra.ports.journal import Append, Erasure, Journal
from tests.support.engines import Workshop
from tests.support.verification import verify_summary

ROOT = Path(__file__).parents[2]
POINTS_MAX = 120
TIMEOUT_S = 600.0

Begin = Callable[[Path, int], Coroutine[Any, Any, None]]
Look = Callable[[Path], Coroutine[Any, Any, dict[str, object]]]


class KillingJournal:
    """The journal, which ends the process on either side of one change, counted from when it is armed."""

    def __init__(self, journal: Journal, point: int) -> None:
        self._journal = journal
        self._steps_left = point
        self.is_armed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def commit(
        self, appends: Sequence[Append], writes: Sequence[Write] = (), fence: Fence | None = None
    ) -> tuple[Event, ...]:
        self._step()
        events = await self._journal.commit(appends, writes, fence)
        self._step()
        return events

    async def erase(self, erasures: Sequence[Erasure]) -> tuple[Event, ...]:
        self._step()
        events = await self._journal.erase(erasures)
        self._step()
        return events

    def _step(self) -> None:
        self._steps_left -= self.is_armed
        if self.is_armed and self._steps_left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def killing(workshop: Workshop, point: int) -> list[KillingJournal]:
    """Returns a list that holds the journal once the workshop is open."""
    journals: list[KillingJournal] = []

    def wrap(journal: Journal) -> Journal:
        journals.append(KillingJournal(journal, point))
        return journals[0]

    workshop.wrap_journal = wrap
    return journals


def kill_at_each_point(folder: Path, begin: Begin, look: Look) -> None:
    """Ends with the first point that `begin` does not reach. What `look` returns is printed."""
    for point in range(1, POINTS_MAX):
        root = folder / str(point)
        code = _in_fork(begin(root, point))
        was_killed = code == -signal.SIGKILL
        if not was_killed and code != 0:
            sys.exit(f"point {point}: the engine failed by itself")
        if _in_fork(_tell(root, was_killed, look)) != 0:
            sys.exit(f"point {point}: what was left could not be looked at")
        shutil.rmtree(root)
        if not was_killed:
            return


def points_of(module: str, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", f"tests.support.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    points = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [point.pop("was_killed") for point in points] == [True] * (len(points) - 1) + [False]
    assert all(point.pop("is_whole") for point in points)
    return points


async def _tell(root: Path, was_killed: bool, look: Look) -> None:
    left = await look(root)
    told = {**left, "was_killed": was_killed, "is_whole": verify_summary(Home(root))["ok"]}
    sys.stdout.write(json.dumps(told) + "\n")


def _in_fork(work: Coroutine[Any, Any, None]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(work)
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    work.close()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
