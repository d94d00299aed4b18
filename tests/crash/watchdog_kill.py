"""A daemon's process that is killed between the record of an action and the action itself.

Run as `python -m tests.crash.watchdog_kill FOLDER`. It ends by SIGKILL, or with a status that tells what went wrong.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from palyra.core.healing.model import HealingMode, Remedy
from palyra.engine.healing.remedies import Remedies
from tests.support.asking import ask, wait_for
from tests.support.engines import OWNER
from tests.support.healing import HangingProvider, watched, watched_workshop


async def die(_remedies: Remedies, _remedy: Remedy, _subject: str) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


async def main(folder: Path) -> None:
    Remedies.apply = die  # type: ignore[method-assign, assignment]
    workshop = watched_workshop(folder, HangingProvider(), HealingMode.AUTO, provider=HealingMode.OBSERVE_ONLY)
    async with watched(workshop) as scene:
        record = await scene.engine.runs.start(OWNER, ask())
        await wait_for(scene.engine, record.id, "model.requested")
        await scene.pass_s(300)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
