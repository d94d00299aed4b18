"""Runs blocking work in a thread, and stops it when its call is cancelled.

Does not own: what the work is.
A thread cannot be killed, so the work asks `stop` before each step that changes something. Errors that say what
happened become results inside the thread. So nothing is raised when nobody waits any more.
"""

import asyncio
from collections.abc import Callable
from threading import Event

from palyra.core.errors import PalyraError
from palyra.core.events.tool import Outcome
from palyra.core.tools import ToolResult, failed

STOP_WAIT_S = 0.05  # A cancel must take effect within 100 ms. Most work stops in this time.

STOPPED = ToolResult(outcome=Outcome.CANCELLED)

Work = Callable[[Event], ToolResult]


async def offload(work: Work) -> ToolResult:
    stop = Event()
    future = asyncio.get_running_loop().run_in_executor(None, _answer, work, stop)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait({future}, timeout=STOP_WAIT_S)
        raise


def _answer(work: Work, stop: Event) -> ToolResult:
    try:
        return work(stop)
    except PalyraError as refused:
        return failed(refused.code, refused.message)
