"""Stand-ins that live on in a thread of their own while a daemon is killed and started again."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Generic, TypeVar

from tests.support.waiting import WAIT_S

Server = TypeVar("Server")
Result = TypeVar("Result")


class Lasting(Generic[Server]):
    """`server` may be read from here; what it awaits runs in its own thread."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.server, self._loop = server, loop

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)


@contextmanager
def lasting(make: Callable[[], AbstractAsyncContextManager[Server]]) -> Iterator[Lasting[Server]]:
    ready, loop, found = threading.Event(), asyncio.new_event_loop(), list[Server]()
    ending = asyncio.Event()

    async def serve() -> None:
        async with make() as server:
            found.append(server)
            ready.set()
            await ending.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    ready.wait(WAIT_S)
    try:
        yield Lasting(found[0], loop)
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()
        loop.close()
