"""The loop watch: notices from a thread of its own that the event loop is blocked, and keeps where.

Owns: telling a blocked loop from a stopped process or a suspended machine, the stack, and ending the process.
Does not own: where a block is written (app), incidents, starting the process again (the supervisor).
Invariant: only time in which this thread itself ran counts as blocked. A call that never gives up Python's global lock
stops this thread too, so it is noticed only once it is over.
"""

import asyncio
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable

import msgspec
import structlog
from msgspec.structs import replace

log = structlog.get_logger()

RESTART_EXIT_CODE = 70  # The supervisor starts a daemon again that exits with this code.
NOTICE_S = 5.0
END_S = 30.0
TICK_S = 0.5
BLOCKS_MAX = 16
FRAMES_MAX = 40
STACK_LENGTH_MAX = 8_000
SAVE_S = 5.0  # A disk that hangs may be what blocks the loop; the process ends all the same.


class LoopBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which the loop did not run. `stack` is that of its thread when the block was noticed."""

    at_ms: int
    blocked_s: float
    stack: str
    is_from_before: bool = False


class LoopWatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Without `end_s` a block is only reported. With it the process ends after so many seconds of blocking."""

    notice_s: float = NOTICE_S
    end_s: float | None = None
    tick_s: float = TICK_S


class BlockMeter:
    """Adds up how long the loop has not answered.

    A tick counts as twice its length at most. So a process that was stopped, and a machine that was suspended, add
    next to nothing, whatever the clock says.
    """

    def __init__(self, tick_s: float) -> None:
        self._tick_s_max = 2 * tick_s
        self._last_s: float | None = None
        self.blocked_s = 0.0

    def tick(self, now_s: float, has_answered: bool) -> float:
        """Returns for how many seconds the loop has not answered."""
        passed_s = 0.0 if self._last_s is None else min(max(0.0, now_s - self._last_s), self._tick_s_max)
        self._last_s = now_s
        self.blocked_s = 0.0 if has_answered else self.blocked_s + passed_s
        return self.blocked_s


class LoopWatch:
    """`save` writes a block before the process ends. `before` are blocks that an earlier process wrote."""

    def __init__(
        self,
        settings: LoopWatchSettings,
        now_ms: Callable[[], int],
        save: Callable[[LoopBlock], None],
        before: tuple[LoopBlock, ...] = (),
    ) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._save = save
        self._over = deque((replace(block, is_from_before=True) for block in before), maxlen=BLOCKS_MAX)
        self._current: LoopBlock | None = None
        self._has_answered = True
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to watch the running loop. Its thread is the one that calls this."""
        loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(
            target=self._watch, args=(loop, loop_thread), name="palyra-loop-watch", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends the watch; a second call does nothing."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def take(self) -> tuple[LoopBlock, ...]:
        """Returns the blocks that are over, each once. If there are too many, the oldest are dropped."""
        taken: list[LoopBlock] = []
        while self._over:
            taken.append(self._over.popleft())
        return tuple(taken)

    def _watch(self, loop: asyncio.AbstractEventLoop, loop_thread: int) -> None:
        # Unlike CLOCK_BOOTTIME, this clock stands still while the machine is suspended.
        meter = BlockMeter(self._settings.tick_s)
        while not self._stopped.wait(self._settings.tick_s):
            has_answered = self._has_answered
            blocked_s = meter.tick(time.monotonic(), has_answered)
            if not has_answered:
                self._note(blocked_s, loop_thread)
                continue
            self._finish()
            self._has_answered = False
            try:
                loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # The loop is closed.
                return

    def _answer(self) -> None:
        self._has_answered = True

    def _note(self, blocked_s: float, loop_thread: int) -> None:
        if blocked_s < self._settings.notice_s:
            return
        if self._current is None:
            self._current = LoopBlock(at_ms=self._now_ms(), blocked_s=blocked_s, stack=_stack_of(loop_thread))
        self._current = replace(self._current, blocked_s=round(blocked_s, 1))
        if self._settings.end_s is not None and blocked_s >= self._settings.end_s:
            self._end(self._current)

    def _finish(self) -> None:
        block, self._current = self._current, None
        if block is not None:
            log.warning("loop_blocked", blocked_s=block.blocked_s, stack=block.stack)
            self._over.append(block)

    def _end(self, block: LoopBlock) -> None:
        """Ends the process at once: whatever waits for the loop would wait for ever, and the tapes are safe."""
        saving = threading.Thread(target=self._save, args=(block,), name="palyra-loop-block", daemon=True)
        saving.start()
        saving.join(SAVE_S)
        os._exit(RESTART_EXIT_CODE)


def _stack_of(thread_id: int) -> str:
    """Returns the thread's innermost frames, the innermost last."""
    frame = sys._current_frames().get(thread_id)
    if frame is None:
        return ""
    frames = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=FRAMES_MAX)
    frames.reverse()
    return "".join(frames.format())[-STACK_LENGTH_MAX:]
