"""Kills an engine with SIGKILL on either side of its n-th commit while a checkpoint is made and restored, for every n.

Run it as its own process: `python -m tests.support.restore_kills WORK` (commit_kills).
"""

import sys
from pathlib import Path

from tests.support.commit_kills import kill_at_each_point, killing
from tests.support.engines import OWNER, Workshop
from tests.support.marks import READS, loaded, say


async def live(root: Path, point: int) -> None:
    """Pins, makes a checkpoint and restores it; the point lies somewhere in that."""
    workshop = Workshop(root, READS)
    journals = killing(workshop, point)
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
    kill_at_each_point(Path(sys.argv[1]), live, look)
