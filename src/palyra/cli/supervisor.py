"""The supervisor: runs the daemon as a forked child and starts it again when it was killed or asks for that.

Owns: when to restart and when to give up, passing signals on, the exit code, and that the child never outlives it.
Does not own: the daemon (app).
Invariants: the parent imports nothing heavy and has no threads, so each child is forked from a small, clean process. An
asked-for stop is never answered by a restart.
"""

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple, NoReturn

import typer

RESTART_EXIT_CODE = 70  # engine.healing.loop_watch has the same; importing it here would cost the start too much.
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
# What the parent decided by itself, as a shell counts: anything else is the child's own code.
_GAVE_UP = 1


class RestartPolicy(NamedTuple):
    """How soon and how often a daemon is started again. A life of `steady_s` makes the next delay short again."""

    delay_first_s: float = 0.1
    delay_max_s: float = 30.0
    steady_s: float = 60.0
    restarts_max: int = 20
    within_s: float = 600.0


POLICY = RestartPolicy()


class Restarts:
    """Counts restarts, and says how long to wait before the next one."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._at_s: deque[float] = deque(maxlen=policy.restarts_max)
        self._quick_count = 0

    def next_delay_s(self, now_s: float, lived_s: float) -> float | None:
        """Returns the delay before the next start; None if there were too many of late."""
        policy = self._policy
        is_full = len(self._at_s) == policy.restarts_max
        if is_full and now_s - self._at_s[0] < policy.within_s:
            return None
        self._at_s.append(now_s)
        if lived_s >= policy.steady_s:
            self._quick_count = 0
        delay_s = min(policy.delay_max_s, policy.delay_first_s * 2.0 ** min(self._quick_count, 30))
        self._quick_count += 1
        return delay_s


class ChildEnd(NamedTuple):
    """How a child ended: by its exit code, or by a signal."""

    code: int | None
    signal: int | None

    @property
    def wants_restart(self) -> bool:
        return self.signal is not None or self.code == RESTART_EXIT_CODE

    @property
    def reason(self) -> str:
        if self.signal is None:
            return "it ended itself because it was stuck or could not record"
        return f"it was killed by {_signal_name(self.signal)}"


def is_under_systemd(environ: Mapping[str, str], pid: int) -> bool:
    """Tells whether systemd itself started this process, and so restarts it.

    A terminal may be a unit of systemd too. Its programs inherit the variables, but they have another process id.
    """
    if "NOTIFY_SOCKET" in environ:
        return True
    return "INVOCATION_ID" in environ and environ.get("SYSTEMD_EXEC_PID", str(pid)) == str(pid)


def can_supervise() -> bool:
    """Tells whether this process can be forked safely: it has one thread, and signals can be waited for."""
    return hasattr(signal, "sigtimedwait") and threading.active_count() == 1


def supervise(policy: RestartPolicy | None = None) -> str:
    """Returns in each child only, with the reason of its restart, empty at the first start.

    The parent stays here, and exits with the code of its last child.
    """
    waited = {signal.SIGCHLD, *(each for each in _STOP_SIGNALS if not _is_ignored(each))}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # Whoever started us may ignore it, and children would be lost.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    supervisor = _Supervisor(waited, policy or POLICY)
    parent, reason = os.getpid(), ""
    while True:
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            child = os.fork()
        except OSError:
            if not reason:
                raise
            supervisor.hold(reason, lived_s=0.0)  # Memory may be short for a while.
            continue
        if child == 0:
            _die_with(parent)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return reason
        reason = supervisor.attend(child)


class _Supervisor:
    """The parent's part: waits for its child and for signals."""

    def __init__(self, waited: set[signal.Signals], policy: RestartPolicy) -> None:
        self._waited = waited
        self._policy = policy
        self._restarts = Restarts(policy)
        self._is_stopping = False

    def attend(self, child: int) -> str:
        """Waits for the child's end. Returns the reason if it has to be started again, and exits otherwise."""
        began_s = time.monotonic()
        end = self._wait(child)
        if self._is_stopping or not end.wants_restart:
            _leave(end)
        self.hold(end.reason, time.monotonic() - began_s)
        return end.reason

    def hold(self, reason: str, lived_s: float) -> None:
        """Waits before the next start, or exits if there were too many."""
        delay_s = self._restarts.next_delay_s(time.monotonic(), lived_s)
        if delay_s is None:
            self._give_up(reason)
        self._pause(delay_s)

    def _wait(self, child: int) -> ChildEnd:
        while True:
            received = signal.sigwaitinfo(self._waited)
            if received.si_signo == signal.SIGCHLD:
                end = _reap(child)
                if end is not None:
                    return end
                continue
            self._is_stopping = True
            # A code above zero means the kernel: a terminal sends Ctrl-C to the child as well, which needs it once.
            if received.si_code <= 0:
                with suppress(ProcessLookupError):
                    os.kill(child, received.si_signo)

    def _pause(self, delay_s: float) -> None:
        """Waits before a restart. A stop that is asked for meanwhile ends the supervisor: nothing runs."""
        until_s = time.monotonic() + delay_s
        while (left_s := until_s - time.monotonic()) > 0:
            received = signal.sigtimedwait(self._waited, left_s)
            if received is not None and received.si_signo != signal.SIGCHLD:
                raise SystemExit(0)

    def _give_up(self, reason: str) -> NoReturn:
        limit = f"{self._policy.restarts_max} restarts within {self._policy.within_s / 60:g} minutes"
        _say(f"error: the daemon ended again after {limit}, and is not started any more; {reason}. The log says why")
        raise SystemExit(_GAVE_UP)


def _reap(child: int) -> ChildEnd | None:
    """Reaps whatever ended; returns the child's end, or None while it lives. As process 1 it inherits orphans."""
    found: ChildEnd | None = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                found = _end_of(status)
    return found


def _end_of(status: int) -> ChildEnd:
    if os.WIFSIGNALED(status):
        return ChildEnd(None, os.WTERMSIG(status))
    return ChildEnd(os.WEXITSTATUS(status), None)


def _leave(end: ChildEnd) -> NoReturn:
    """Ends as the child did, by the same signal or with the same code."""
    if end.signal is not None:
        signal.signal(end.signal, signal.SIG_DFL)
        os.kill(os.getpid(), end.signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {end.signal})
        raise SystemExit(128 + end.signal)
    raise SystemExit(end.code)


def _die_with(parent: int) -> None:
    """Makes the kernel kill this process when its parent is gone, however that ended. It exists on Linux only."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # The parent ended before the request was made.
        os._exit(_GAVE_UP)


def _is_ignored(number: signal.Signals) -> bool:
    """Tells whether a hangup is ignored, as `nohup` asks. The daemon itself always obeys the others."""
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _say(words: str) -> None:
    with suppress(OSError):
        typer.echo(words, err=True)
