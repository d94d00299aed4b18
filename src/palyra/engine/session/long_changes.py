"""Work on the changes of a draft that may be many. Owns: that it does not hold the event loop.

Does not own: the work itself (core.drafts).
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

ON_LOOP_MAX = 1_000  # So many are worked on in about 2 ms; a thread costs less than that only for more of them.

Item = TypeVar("Item")
Value = TypeVar("Value")


async def beside_loop(work: Callable[[tuple[Item, ...]], Value], changes: tuple[Item, ...]) -> Value:
    """Returns what the work makes of the changes. Many are worked on in a thread."""
    if len(changes) <= ON_LOOP_MAX:
        return work(changes)
    return await asyncio.to_thread(work, changes)
