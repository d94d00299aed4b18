"""Measures how long the event loop is held: the most CPU time of its thread between two turns of one task."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class LoopBeats:
    """`held_s` is CPU time of the loop's thread, so that a busy machine does not count."""

    def __init__(self) -> None:
        self.held_s = 0.0

    async def beat(self) -> None:
        before_s = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now_s = time.thread_time()
            self.held_s = max(self.held_s, now_s - before_s)
            before_s = now_s


@asynccontextmanager
async def loop_beats() -> AsyncIterator[LoopBeats]:
    beats = LoopBeats()
    gc.freeze()  # What earlier tests left is not collected meanwhile, which may take longer than all that is measured.
    task = asyncio.create_task(beats.beat())
    await asyncio.sleep(0)  # The first beat comes before what is measured, and the last one after it.
    try:
        yield beats
    finally:
        await asyncio.sleep(0)
        task.cancel()
        gc.unfreeze()
