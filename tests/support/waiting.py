"""Waits for a condition: asks again until it holds, up to a limit, for tests with and without an event loop.

It is for conditions that can only be polled. A test that can be notified (an event, a frame, a line) waits for that.
"""

import asyncio
import inspect
import time
from collections.abc import Callable

WAIT_S = 120.0  # Far more than it takes on a busy machine.
PAUSE_S = 0.005
_WHAT = "what the test waits for"


def wait_until(is_so: Callable[[], object], what: str = _WHAT, timeout_s: float = WAIT_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline_s, f"{what} did not come within {timeout_s:g} s"
        time.sleep(PAUSE_S)


async def until(
    is_so: Callable[[], object], what: str = _WHAT, timeout_s: float = WAIT_S, pause_s: float = PAUSE_S
) -> None:
    """Polls beside other tasks. `is_so` may be asynchronous; without a pause no state of the loop is missed."""
    deadline_s = time.monotonic() + timeout_s
    while not await _holds(is_so):
        assert time.monotonic() < deadline_s, f"{what} did not come within {timeout_s:g} s"
        await asyncio.sleep(pause_s)


async def _holds(is_so: Callable[[], object]) -> object:
    answer = is_so()
    return await answer if inspect.isawaitable(answer) else answer
