"""Kills an engine with SIGKILL on either side of its n-th commit while a session is compacted and goes on, for every n.

Run it as its own process: `python -m tests.support.compaction_kills WORK` (commit_kills).
"""

import sys
from pathlib import Path

from palyra.adapters.providers.scripted import Script
from palyra.core.compaction.model import CompactionSettings
from palyra.core.events.session import SessionCompacted
from palyra.core.ids import SessionId
from palyra.engine.api.requests import RunsQuery
from palyra.engine.engine import Engine
from palyra.engine.setup import EngineSettings
from tests.support.asking import says
from tests.support.commit_kills import kill_at_each_point, killing
from tests.support.engines import OWNER, Workshop
from tests.support.marks import loaded, say
from tests.support.waiting import until

RULE = "Never open the blue door."
SCRIPTS = [Script(turns=(says("Certainly. " + "It depends on many things. " * 20),))]
EVENTS_MAX = 1_000


def workshop_at(root: Path) -> Workshop:
    return Workshop(root, SCRIPTS, EngineSettings(compaction=CompactionSettings(is_automatic=False)))


async def live(root: Path, point: int) -> None:
    """Talks, compacts and talks on; the point lies somewhere in the last two."""
    workshop = workshop_at(root)
    journals = killing(workshop, point)
    async with workshop.open() as engine:
        session_id, _ = await say(engine, RULE)
        for number in range(7):
            await say(engine, f"Tell me more about it, part {number}.", session_id)
        (root / "before").write_bytes(await loaded(engine, session_id))
        journals[0].is_armed = True
        await engine.compaction.compact(OWNER, session_id)
        await say(engine, "And now?", session_id)
        journals[0].is_armed = False


async def look(root: Path) -> dict[str, object]:
    async with workshop_at(root).open() as engine:
        session_id = (await engine.sessions.list(OWNER, "", 10))[0].id
        await until(lambda: _is_at_rest(engine), "the end of what was resumed")
        found_count = await compactions_count(engine, session_id)
        checkpoints = await engine.marks.checkpoints(OWNER, session_id, 0, 10)
        restored = [await engine.marks.restore(OWNER, session_id, each.id, None) for _, each in checkpoints]
        windows = [await loaded(engine, row.id) for row in restored]
        if not found_count:
            await engine.compaction.compact(OWNER, session_id)
        await say(engine, "And then?", session_id)
        return {
            "found_count": found_count,
            "checkpoints_count": len(checkpoints),
            "is_restored": all(window == (root / "before").read_bytes() for window in windows),
            "after_count": await compactions_count(engine, session_id),
            "has_rule": RULE.encode() in await loaded(engine, session_id),
            "states": sorted({run.state for run in await engine.runs.list(OWNER, RunsQuery(limit=100))}),
        }


async def _is_at_rest(engine: Engine) -> bool:
    runs = await engine.runs.list(OWNER, RunsQuery(limit=100))
    return all(run.state in {"done", "failed", "cancelled"} for run in runs)


async def compactions_count(engine: Engine, session_id: SessionId) -> int:
    events = await engine._setup.journal.read(session_id, 0, EVENTS_MAX)
    return sum(isinstance(event.data, SessionCompacted) for event in events)


if __name__ == "__main__":
    kill_at_each_point(Path(sys.argv[1]), live, look)
