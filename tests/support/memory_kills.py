"""Kills an engine with SIGKILL on either side of each commit and erasure, while it remembers and forgets.

Run it as its own process: `python -m tests.support.memory_kills WORK` (commit_kills).
"""

import sys
from pathlib import Path

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script
from palyra.core.ids import MemoryId
from palyra.engine.engine import Engine
from palyra.ports.memory import MemoryPage
from tests.support.asking import ask, finished
from tests.support.commit_kills import kill_at_each_point, killing
from tests.support.engines import OWNER, Workshop
from tests.support.memory import give
from tests.support.waiting import until

ITEMS_COUNT = 20
SECRET_WORD = "quokka"


async def live(root: Path, point: int) -> None:
    """Remembers some items, shows one to a session, and forgets it; the point lies somewhere in that."""
    workshop = workshop_at(root)
    journals = killing(workshop, point)
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
        left: dict[str, object] = {
            "boxes": len(boxes),
            "found_boxes": len(hits),
            "marked": len(items) - len(boxes),
            "found_marked": len(await engine.memory.search(OWNER, SECRET_WORD, 5)),
            "stray": len(await engine._setup.views.memory.upkeep.stray_mentions(10)),
        }
    left["is_in_file"] = SECRET_WORD.encode() in b"".join(path.read_bytes() for path in root.glob("journal.db*"))
    return left


def workshop_at(root: Path) -> Workshop:
    return Workshop(root, [Script(turns=(Turn(text="Somebody does."),))])


async def no_jobs(engine: Engine) -> bool:
    from palyra.ports.jobs import JobFilter

    jobs = await engine._setup.views.jobs.list_jobs(None, JobFilter(kind="memory_erasure", limit=10))
    return all(job.state.value not in ("queued", "running") for job in jobs)


if __name__ == "__main__":
    kill_at_each_point(Path(sys.argv[1]), live, settle)
