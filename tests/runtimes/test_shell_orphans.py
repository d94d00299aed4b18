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
from palyra.adapters.runtimes.shell.sandbox import Order, Sandbox, find_sandbox, let_begin, spawn
from tests.support.examples import examples
from tests.support.waiting import wait_until

WAIT_S = 20.0
KILLS_COUNT = examples(10)
WITHIN_S = 0.02  # A sandbox starts within about this time.
# It is a daemon that answers at the gate, and is killed meanwhile.
KILLED = """
import os, signal, sys, time
from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.adapters.runtimes.shell.sandbox import Order, find_sandbox, let_begin, spawn
root, sandbox = sys.argv[1], find_sandbox()
order = Order(command="sleep 60", cwd=root, roots=(root,), limits=CommandLimits(), is_direct=True, hidden=root + "/home")
started = spawn(sandbox, order)
os.set_blocking(started.gate, False)
end_s = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end_s:
    try:
        if os.read(started.gate, 1):
            let_begin(started)
    except BlockingIOError:
        pass
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
        wait_until(lambda: not is_orphan_running(root), "the command to end", WAIT_S)  # noqa: B023 - in this round
        # What may be left runs nothing, and the next start ends it.
        end_left(str(root / "home"))
        wait_until(lambda: not sandboxes_of(root), "bubblewrap to end", WAIT_S)  # noqa: B023 - in this round


def test_only_the_sandboxes_of_the_own_home_are_ended(tmp_path: Path) -> None:
    sandbox = find_sandbox()
    assert isinstance(sandbox, Sandbox)
    waiting = {}
    for name in ("own", "other"):
        root = os.path.realpath(tmp_path / name)
        os.makedirs(f"{root}/home")
        order = Order(command="true", cwd=root, roots=(root,), limits=CommandLimits(), hidden=f"{root}/home")
        waiting[name] = spawn(sandbox, order)
        assert os.read(waiting[name].gate, 1) == b"."
    assert end_left(os.path.realpath(tmp_path / "own/home")) >= 1
    assert waiting["own"].process.wait(WAIT_S) != 0
    assert waiting["other"].process.poll() is None
    let_begin(waiting["other"])
    assert waiting["other"].process.wait(WAIT_S) == 0
    for started in waiting.values():
        for file in (started.stdout, started.stderr, started.status, started.gate):
            os.close(file)


def test_a_command_begins_once_it_is_answered_at_its_gate_and_not_before(tmp_path: Path) -> None:
    sandbox = find_sandbox()
    assert isinstance(sandbox, Sandbox)
    root = os.path.realpath(tmp_path)
    command = "echo ran > ran"
    started = spawn(sandbox, Order(command=command, cwd=root, roots=(root,), limits=CommandLimits(), is_direct=True))
    assert os.read(started.gate, 1) == b"."
    assert started.process.poll() is None
    assert list(tmp_path.iterdir()) == []
    let_begin(started)
    assert started.process.wait(WAIT_S) == 0
    assert (tmp_path / "ran").exists()
    for file in (started.stdout, started.stderr, started.status, started.gate):
        os.close(file)
