"""Kills an engine with SIGKILL on either side of each commit and erasure, while it remembers and forgets.

Run it as its own process (`python -m tests.support.memory_kills WORK`), because it forks. It prints one JSON line for
each point: what was left once a second engine had settled the rest.
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
from palyra.app import Home
from palyra.core.events import Event
from palyra.core.ids import MemoryId
from palyra.core.writes import Fence, Write
from palyra.engine.engine import Engine
from palyra.ports.journal import Append, Erasure, Journal
from palyra.ports.memory import MemoryPage
from tests.support.asking import ask, finished
from tests.support.engines import OWNER, Workshop
from tests.support.memory import give
from tests.support.verification import verify_summary
from tests.support.waiting import until

POINTS_MAX = 60
ITEMS_COUNT = 20
SECRET_WORD = "quokka"


class MemoryKillJournal:
    """The journal, which ends the process on either side of one change, counted from when it is armed."""

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

    async def erase(self, erasures: Sequence[Erasure]) -> tuple[Event, ...]:
        self._step()
        events = await self._journal.erase(erasures)
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
        left["is_whole"] = verify_summary(Home(root))["ok"]
        left["is_in_file"] = SECRET_WORD.encode() in b"".join(path.read_bytes() for path in root.glob("journal.db*"))
        left["was_killed"] = os.WIFSIGNALED(status)
        left["is_broken"] = os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0
        sys.stdout.write(json.dumps(left) + "\n")
        shutil.rmtree(root)
        if not left["was_killed"]:
            return


async def live(root: Path, point: int) -> None:
    """Remembers some items, shows one to a session, and forgets it; the point lies somewhere in that."""
    workshop = workshop_at(root)
    journals: list[MemoryKillJournal] = []

    def wrap(journal: Journal) -> Journal:
        journals.append(MemoryKillJournal(journal, point))
        return journals[0]  # type: ignore[return-value]

    workshop.wrap_journal = wrap
    async with workshop.open() as engine:
        (marked,) = await give(engine, f"The {SECRET_WORD} lies in the harbour.")
        await finished(engine, await engine.runs.start(OWNER, ask("Who lies in the harbour?")))
        await until(lambda: no_jobs(engine))
        journals[0].is_armed = True
        await give(engine, *(f"Box {number} stands on shelf {number}." for number in range(ITEMS_COUNT)))
        assert marked.id is not None
        await engine.memory.forget(OWNER, MemoryId(marked.id), OWNER)
        await until(lambda: no_jobs(engine))


async def settle(root: Path) -> dict[str, object]:
    """Starts again, does what the job does, and tells what there is."""
    async with workshop_at(root).open() as engine:
        # The dead process may still hold the job's lease. Another worker would do this once the lease is over.
        await engine.memory.eraser.perform(None, lambda progress: None)  # type: ignore[arg-type]
        items = await engine.memory.list(OWNER, MemoryPage())
        boxes = [item for item in items if item.content.startswith("Box")]
        hits = await engine.memory.search(OWNER, "box shelf", 100)
        return {
            "boxes": len(boxes),
            "found_boxes": len(hits),
            "marked": len(items) - len(boxes),
            "found_marked": len(await engine.memory.search(OWNER, SECRET_WORD, 5)),
            "stray": len(await engine._setup.views.memory.upkeep.stray_mentions(10)),
        }


def workshop_at(root: Path) -> Workshop:
    return Workshop(root, [Script(turns=(Turn(text="Somebody does."),))])


async def no_jobs(engine: Engine) -> bool:
    from palyra.ports.jobs import JobFilter

    jobs = await engine._setup.views.jobs.list_jobs(None, JobFilter(kind="memory_erasure", limit=10))
    return all(job.state.value not in ("queued", "running") for job in jobs)


if __name__ == "__main__":
    main()
