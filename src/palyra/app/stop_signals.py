"""Signals that stop the daemon: the first asks it to finish its work, a later one not to wait for that.

Owns: telling the two apart. Does not own: what a stop does (daemon).
"""

import asyncio
import signal

SAME_STOP_S = 0.5  # Signals that follow within this time belong to the same request to stop.


class StopSignals:
    """`asked` is set by SIGTERM or SIGINT, `hurried` by a later second one. A third has its usual effect.

    One request may arrive twice: a shell signals the whole process group, and the supervisor passes its own on.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._asked_at_s = 0.0
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._receive)

    def _receive(self) -> None:
        now_s = self._loop.time()
        if not self.asked.is_set():
            self._asked_at_s = now_s
            self.asked.set()
        elif now_s - self._asked_at_s >= SAME_STOP_S:
            self.hurried.set()
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.remove_signal_handler(number)
