"""Kills an engine with SIGKILL on either side of its n-th commit while a checkpoint is made and restored, for every n.

Run it as its own process (`python -m tests.support.restore_kills WORK`), because it forks. It prints one JSON line for
each point: what a second engine finds.
"""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

from palyra.app import Home
from palyra.ports.journal import Journal
from tests.support.engines import OWNER, Workshop
from tests.support.marks import READS, loaded, say
from tests.support.routine_kills import KillingJournal
from tests.support.verification import verify_summary

POINTS_MAX = 20


def main() -> None:
    work = Path(sys.argv[1])
    for point in range(1, POINTS_MAX):
        root = work / str(point)
        child = os.fork()
        if child == 0:
            asyncio.run(live(root, point))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        left = asyncio.run(look(root))
        left["was_killed"] = os.WIFSIGNALED(status)
        left["is_whole"] = verify_summary(Home(root))["ok"]
        sys.stdout.write(json.dumps(left) + "\n")
        shutil.rmtree(root)
        if not left["was_killed"]:
            return


async def live(root: Path, point: int) -> None:
    """Pins, makes a checkpoint and restores it; the point lies somewhere in that."""
    workshop = Workshop(root, READS)
    journals: list[KillingJournal] = []

    def wrap(journal: Journal) -> Journal:
        journals.append(KillingJournal(journal, point))
        return journals[0]  # type: ignore[return-value]

    workshop.wrap_journal = wrap
    async with workshop.open() as engine:
        session_id, _ = await say(engine, "one")
        journals[0].is_armed = True
        await engine.marks.pin(OWNER, session_id, "Keep it short.", None)
        checkpoint = await engine.marks.checkpoint(OWNER, session_id, None, None)
        await engine.marks.restore(OWNER, session_id, checkpoint.id, None)
        journals[0].is_armed = False


async def look(root: Path) -> dict[str, object]:
    async with Workshop(root, READS).open() as engine:
        original, *others = await engine.sessions.list(OWNER, "", 10)
        windows = [await loaded(engine, row.id) for row in (original, *others)]
        return {
            "pins_count": [len(await engine.marks.pins(OWNER, row.id)) for row in (original, *others)],
            "checkpoints_count": len(await engine.marks.checkpoints(OWNER, original.id, 0, 10)),
            "restored_count": len(others),
            "is_same": len(set(windows)) == 1,
        }


if __name__ == "__main__":
    main()
