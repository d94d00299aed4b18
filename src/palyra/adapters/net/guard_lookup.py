"""Looking up names. Owns: asking the system's resolver without holding anything else up. Not: judging the answers.

The system's resolver blocks and cannot be stopped, so each question has a thread of its own that ends with the process, and
only so many are asked at once: a server of names that never answers cannot use up the threads that tools work in.
"""

import asyncio
import socket
import threading
from collections.abc import Sequence

LOOKUPS_MAX = 16


class SystemLookup:
    """`resolve(name)` gives all addresses of a name, as text; OSError where there are none."""

    def __init__(self, lookups_max: int = LOOKUPS_MAX) -> None:
        self._free = threading.BoundedSemaphore(lookups_max)

    async def __call__(self, name: str) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()
        if not self._free.acquire(blocking=False):
            raise OSError("too many names are being looked up; try again later")
        threading.Thread(target=self._ask, args=(name, loop, found), name="lookup", daemon=True).start()
        return await found

    def _ask(self, name: str, loop: asyncio.AbstractEventLoop, found: "asyncio.Future[list[str]]") -> None:
        try:
            answers = _addresses(name)
        except (OSError, UnicodeError) as cause:
            _tell(loop, found, OSError(str(cause)))
        else:
            _tell(loop, found, answers)
        finally:
            self._free.release()


def _addresses(name: str) -> list[str]:
    answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(answer[4][0]) for answer in answers]


def _tell(loop: asyncio.AbstractEventLoop, found: "asyncio.Future[list[str]]", answer: list[str] | OSError) -> None:
    def settle() -> None:
        if found.done():
            return
        if isinstance(answer, OSError):
            found.set_exception(answer)
        else:
            found.set_result(answer)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        return  # The loop has ended, and with it whoever asked.
