"""One sandboxed command: reads its output, knows when all of it has ended, and ends it.

Does not own: what the end means for the call (run).
Invariants: `wait` returns only when no process of the command is left. Then bubblewrap has ended, and either so has the
first process of its namespace, with which the kernel ends all others, or it has no child any more. That process is
bubblewrap's own, and unmounting makes it wait for the disk, for which nobody else has to. `end` never blocks and may be
called at any time, also again. Everything happens in the event loop's thread, because bubblewrap would die with any other.
"""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from palyra.adapters.runtimes.shell.groups import NOT_JOINED, ControlGroup, Groups
from palyra.adapters.runtimes.shell.sandbox import Order, Sandbox, Started, spawn
from palyra.adapters.runtimes.shell.text import OutputText
from palyra.adapters.runtimes.shell.watch import LOOK_EVERY_S, Excess, LimitCheck, has_no_child, read_small

PIECE_BYTES = 64 * 1024
STATUS_BYTES_MAX = 4096
START_WAIT_S = 2.0  # By then bubblewrap has named its first process, or never will.
DRAIN_WAIT_S = 1.0
FIRST_LOOK_S = 0.03
LOOK_SHARE = 20  # Looking at a large tree takes a while. At most this part of the loop's time goes into it.

Hear = Callable[[str, str], None]


class Child:
    """`hear` receives clean text of `stdout` or `stderr` as it comes. A Child is made in a running event loop."""

    def __init__(self, sandbox: Sandbox, order: Order, hear: Hear) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = order.limits
        self._devices = sandbox.devices
        self._hear = hear
        self._limit_check = LimitCheck(order.limits, (*order.roots, *(draft.upper for draft in order.overlays)))
        self._groups = sandbox.groups if isinstance(sandbox.groups, Groups) else None
        self._group: ControlGroup | None = self._groups.make(order.limits) if self._groups is not None else None
        self.held_by = sandbox.name_with(self._group)
        try:
            self._started: Started = spawn(sandbox, order, self._group)
        except OSError:
            self._let_go_of_group()
            raise
        self._status = b""
        self._output_bytes = 0
        self._first: int | None = None
        self._first_handle: int | None = None
        self._is_ending = False
        self._has_gate = True
        self._has_joined = self._group is None
        self._has_none_left = False
        self._open: dict[int, OutputText] = {}
        self._handles: set[int] = set()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []
        self.excess: Excess | None = None
        try:
            self._listen()
        except OSError:
            self._forget()
            raise

    async def wait(self) -> None:
        await asyncio.shield(self._done)

    async def wait_at_most(self, timeout_s: float) -> None:
        await asyncio.wait({self._done}, timeout=timeout_s)

    @property
    def is_over(self) -> bool:
        return self._done.done()

    @property
    def exit_code(self) -> int | None:
        """Returns the command's exit code; None while it runs, and if it never began."""
        return None if self.has_not_joined else self._told_code()

    def _told_code(self) -> int | None:
        for line in self._status.splitlines() if b"exit-code" in self._status else ():
            with suppress(ValueError):
                code = json.loads(line).get("exit-code")
                if isinstance(code, int):
                    return code
        return None

    @property
    def was_ended(self) -> bool:
        return self._is_ending

    @property
    def has_not_joined(self) -> bool:
        """Tells whether the command ended because it could not enter its control group. Then nothing of it ran."""
        is_outside = not (self._has_gate or self._has_joined or self._is_ending)
        return is_outside and self._told_code() == NOT_JOINED

    def end(self, excess: Excess | None = None) -> None:
        """Kills the whole command.

        Until its first process is known this is only noted, and done as soon as it is known.
        """
        if self._is_ending or self.is_over:
            return
        self._is_ending = True
        self.excess = excess
        self._shut_gate()
        self._kill_first()
        if self._group is not None:
            self._group.kill()
        self._timers.append(self._loop.call_later(START_WAIT_S, self._kill_outer))

    def _kill_first(self) -> None:
        if self._first_handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first_handle, signal.SIGKILL)

    def _kill_outer(self) -> None:
        """Its whole process group: a sandbox that is just starting has not yet asked to die with its parent."""
        if self._started.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._started.process.pid, signal.SIGKILL)

    def _listen(self) -> None:
        started = self._started
        self._open = {file: OutputText() for file in (started.stdout, started.stderr, started.status)}
        self._loop.add_reader(started.stdout, self._read, "stdout", started.stdout)
        self._loop.add_reader(started.stderr, self._read, "stderr", started.stderr)
        self._loop.add_reader(started.status, self._read_status)
        handle = os.pidfd_open(started.process.pid)
        self._handles.add(handle)
        self._loop.add_reader(handle, self._outer_ended, handle)
        self._timers.append(self._loop.call_later(FIRST_LOOK_S, self._look))

    def _forget(self) -> None:
        """Ends a command that cannot be followed: such a command may not run."""
        self._kill_outer()
        self._shut_gate()
        self._started.process.wait()
        for file in (*self._open, *self._handles):
            self._loop.remove_reader(file)
            os.close(file)
        self._let_go_of_group()

    def _read(self, stream: str, file: int) -> bool:
        """Returns whether there was something to read."""
        try:
            piece = os.read(file, PIECE_BYTES)
        except BlockingIOError:
            return False
        cleaner = self._open[file]
        self._output_bytes += len(piece)
        text = cleaner.feed(piece) if piece else cleaner.finish()
        if text:
            self._hear(stream, text)
        if not piece:
            self._close(file)
        elif self._output_bytes > self._limits.output_bytes:
            self.end(Excess.OUTPUT)
        return bool(piece)

    def _read_status(self) -> None:
        file = self._started.status
        try:
            piece = os.read(file, STATUS_BYTES_MAX)
        except BlockingIOError:
            return
        if not piece or len(self._status) > STATUS_BYTES_MAX:
            self._close(file)
            return
        self._status += piece
        if self._first is None and b"\n" in self._status:
            self._meet_first()

    def _meet_first(self) -> None:
        with suppress(ValueError):
            self._first = json.loads(self._status.splitlines()[0]).get("child-pid")
        if self._first is None:
            return
        try:
            handle = os.pidfd_open(self._first)
        except ProcessLookupError:
            return
        if not _is_bubblewrap(self._first):
            os.close(handle)
            return
        self._first_handle = handle
        self._handles.add(handle)
        self._loop.add_reader(handle, self._first_ended, handle)
        if self._is_ending:
            self._kill_first()

    def _shut_gate(self) -> None:
        """Keeps a command that has not begun from beginning, and hears whether it entered its group."""
        if self._has_gate:
            self._has_gate = False
            with suppress(BlockingIOError):
                self._has_joined = self._has_joined or bool(os.read(self._started.gate, 1))
            os.close(self._started.gate)

    def _first_ended(self, handle: int) -> None:
        self._first_handle = None
        self._let_go(handle)

    def _outer_ended(self, handle: int) -> None:
        if self._started.process.poll() is None:
            return
        if self._started.status in self._open:
            self._read_status()
        self._shut_gate()
        self._timers.append(self._loop.call_later(DRAIN_WAIT_S, self._give_up))
        self._let_go(handle)
        is_waiting = self._first_handle is not None and self.exit_code is not None and not self._is_ending
        if is_waiting and self._first is not None and has_no_child(self._first):
            self._read_rest()

    def _read_rest(self) -> None:
        """Stops waiting: none of the command's processes is left, so nothing more comes than what was printed."""
        for file, stream in ((self._started.stdout, "stdout"), (self._started.stderr, "stderr")):
            while file in self._open and self._read(stream, file):
                pass
        self._has_none_left = True
        for file in list(self._open):
            self._close(file)
        self._settle()

    def _let_go(self, handle: int) -> None:
        self._loop.remove_reader(handle)
        os.close(handle)
        self._handles.discard(handle)
        self._settle()

    def _close(self, file: int) -> None:
        self._loop.remove_reader(file)
        del self._open[file]
        os.close(file)
        self._settle()

    def _give_up(self) -> None:
        """Stops reading.

        All processes have ended, so nobody can write any more; no process of ours holds the open descriptor.
        """
        self._kill_first()
        for file in list(self._open):
            self._close(file)

    def _settle(self) -> None:
        if self._open or (self._handles and not self._has_none_left) or self._done.done():
            return
        for timer in self._timers:
            timer.cancel()
        self._devices.put_back()
        if self._group is not None and not self._is_ending:
            self.excess = self._group.excess()
        if self._groups is not None and self.has_not_joined:
            self._groups.give_up("a command could not enter its group")
        self._let_go_of_group()
        self._done.set_result(None)

    def _let_go_of_group(self) -> None:
        if self._groups is not None and self._group is not None:
            self._groups.let_go(self._group, self._loop)

    def _look(self) -> None:
        began = self._loop.time()
        self._devices.put_back()
        if self._first is not None and self._first_handle is not None and not self._is_ending:
            excess = (self._group.excess() if self._group is not None else None) or self._limit_check.look(self._first)
            if excess is not None:
                self.end(excess)
        if self.is_over:
            return
        now = self._loop.time()
        self._timers = [timer for timer in self._timers if not timer.cancelled() and timer.when() > now]
        pause_s = max(LOOK_EVERY_S, (now - began) * LOOK_SHARE)
        self._timers.append(self._loop.call_later(pause_s, self._look))


def _is_bubblewrap(pid: int) -> bool:
    """Tells whether the process is still bubblewrap, and not another one that has got its number."""
    return read_small(f"/proc/{pid}/comm").strip() == b"bwrap"
