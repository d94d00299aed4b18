"""One thread that stops calls which run too long.

Does not own: how a call is stopped (module_call).
It is a thread, and not the event loop, so that a busy loop lets no plugin run on.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

IDLE_S = 60.0  # The thread ends when nothing was watched for so long.


class Deadlines:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[object, tuple[float, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def watch(self, timeout_s: float, stop: Callable[[], None]) -> Iterator[None]:
        """Calls `stop` once if the block takes longer."""
        key = object()
        with self._changed:
            self._due[key] = (time.monotonic() + timeout_s, stop)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="wasm-deadlines", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._due.pop(key, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                soonest = min((due for due, _ in self._due.values()), default=None)
                wait_s = IDLE_S if soonest is None else soonest - time.monotonic()
                has_news = wait_s > 0 and self._changed.wait(wait_s)
                if not has_news and soonest is None and not self._due:
                    self._thread = None
                    return
                self._stop_late()

    def _stop_late(self) -> None:
        now_s = time.monotonic()
        for key, (due, stop) in list(self._due.items()):
            if due <= now_s:
                del self._due[key]
                stop()
