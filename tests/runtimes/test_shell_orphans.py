"""No command outlives the process that started it, however early that process ends."""

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from palyra.adapters.runtimes.shell.leftovers import end_left
from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.adapters.runtimes.shell.sandbox import Order, Sandbox, Started, find_sandbox, spawn
from tests.support.examples import examples
from tests.support.waiting import WAIT_S, wait_until

KILLS_COUNT = examples(10)
WITHIN_S = 0.02  # A sandbox starts within about this time.
# It is a daemon that is killed while its command starts.
KILLED = """
import os, signal, sys, time
from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.adapters.runtimes.shell.sandbox import Order, find_sandbox, spawn
root, sandbox = sys.argv[1], find_sandbox()
order = Order(command="sleep 60", cwd=root, roots=(root,), limits=CommandLimits(), is_direct=True, hidden=root + "/home")
started = spawn(sandbox, order)
time.sleep(float(sys.argv[2]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def sandboxes_of(root: Path) -> list[Path]:
    """Returns the processes of bubblewrap for this root."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(root).encode() in (place / "cmdline").read_bytes():
                found.append(place)
    return found


def is_orphan_running(root: Path) -> bool:
    """Tells whether a sandbox of this root has a process in it."""
    for place in sandboxes_of(root):
        with suppress(OSError):
            if (place / "task" / place.name / "children").read_text():
                return True
    return False


def test_a_command_whose_daemon_is_killed_while_it_starts_never_goes_on(tmp_path: Path) -> None:
    luck = random.Random(4)
    for number in range(KILLS_COUNT):
        root = tmp_path / str(number)
        (root / "home").mkdir(parents=True)
        told = subprocess.run(
            [sys.executable, "-c", KILLED, str(root), str(luck.uniform(0.0, WITHIN_S))],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert told.returncode == -signal.SIGKILL, told.stderr
        wait_until(lambda: not is_orphan_running(root), "the command to end")  # noqa: B023 - in this round
        # What may be left runs nothing, and the next start ends it.
        end_left(str(root / "home"))
        wait_until(lambda: not sandboxes_of(root), "bubblewrap to end")  # noqa: B023 - in this round


def test_only_the_sandboxes_of_the_own_home_are_ended(tmp_path: Path) -> None:
    sandbox = find_sandbox()
    assert isinstance(sandbox, Sandbox)
    running = {}
    for name in ("own", "other"):
        root = os.path.realpath(tmp_path / name)
        os.makedirs(f"{root}/home")
        order = Order(command="sleep 60", cwd=root, roots=(root,), limits=CommandLimits(), hidden=f"{root}/home")
        running[name] = spawn(sandbox, order)
    assert end_left(os.path.realpath(tmp_path / "own/home")) >= 1
    assert running["own"].process.wait(WAIT_S) != 0
    assert running["other"].process.poll() is None
    assert end_left(os.path.realpath(tmp_path / "other/home")) >= 1
    assert running["other"].process.wait(WAIT_S) != 0
    for started in running.values():
        close_all(started)


def test_a_command_begins_only_while_its_gate_is_open(tmp_path: Path) -> None:
    sandbox = find_sandbox()
    assert isinstance(sandbox, Sandbox)
    for name, is_shut in (("open", False), ("shut", True)):
        root = os.path.realpath(tmp_path / name)
        os.mkdir(root)
        order = Order(command="echo ran > ran", cwd=root, roots=(root,), limits=CommandLimits(), is_direct=True)
        started = spawn(sandbox, order)
        if is_shut:
            # A sandbox takes milliseconds until it is finished.
            os.close(started.gate)
        assert started.process.wait(WAIT_S) == (125 if is_shut else 0)
        assert os.listdir(root) == ([] if is_shut else ["ran"])
        close_all(started, but=(started.gate,) if is_shut else ())


def test_a_command_does_not_get_its_gate(tmp_path: Path) -> None:
    sandbox = find_sandbox()
    assert isinstance(sandbox, Sandbox)
    root = os.path.realpath(tmp_path)
    order = Order(command="ls /proc/$$/fd", cwd=root, roots=(root,), limits=CommandLimits())
    started = spawn(sandbox, order)
    assert started.process.wait(WAIT_S) == 0
    assert os.read(started.stdout, 4096).split() == [b"0", b"1", b"2", b"255"]
    close_all(started)


def close_all(started: Started, but: tuple[int, ...] = ()) -> None:
    for file in {started.stdout, started.stderr, started.status, started.gate} - {*but}:
        os.close(file)
