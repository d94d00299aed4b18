"""How much a command may take, how it ends, and that nothing of it is left."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.runtimes.shell import run as calls
from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.adapters.runtimes.shell.output_buffer import KEPT_LENGTH_MAX, HeadAndTail, OutputWindow
from palyra.adapters.runtimes.shell.run import DROPPED, LIVE_LENGTH_MAX, ShellRun
from palyra.adapters.runtimes.shell.sandbox import find_sandbox
from palyra.adapters.runtimes.shell.watch import processes_below
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Outcome
from tests.runtimes.shells import USERS, House, attempt, found_sandbox, make_context, make_setup, open_house, run
from tests.support.waiting import WAIT_S, until, wait_until

pytestmark = pytest.mark.anyio
MIB = 1024 * 1024
# No small disk: other tests fill the same one meanwhile.
SMALL = CommandLimits(memory_bytes=256 * MIB, processes_count=60, file_bytes=8 * MIB, output_bytes=4 * MIB)
# A child that leaves its session and its parents, closes what it has, and would live on.
DAEMON = "setsid bash -c '(trap \"\" HUP TERM INT; exec -a {name} sleep 300) >/dev/null 2>&1 </dev/null &' ; "


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def house(user: str) -> Iterator[House]:
    with open_house(user) as made:
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call waits for the end of what it ended, however long that takes a busy machine."""
    monkeypatch.setattr(calls, "CANCEL_WAIT_S", WAIT_S)


def named(name: str) -> list[int]:
    """Processes of the machine whose command line begins with this name."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].decode(errors="replace") == name:
                found.append(int(entry))
    return found


def test_fork_bomb_is_bounded_and_leaves_nothing(user: str, house: House) -> None:
    name = f"bomb{os.getpid()}"
    done = attempt(
        user, f"bomb() {{ (exec -a {name} sleep 60) & bomb & bomb & }}; bomb; sleep 60", house, SMALL, timeout_s=4
    )
    # Which bound it meets first is the machine's affair: others take of its memory, disk and time too.
    assert done.outcome in ("failed", "timeout"), done
    assert done.code in ("process_limit", "memory_limit", "disk_limit", "exit_status", "timeout"), done
    assert named(name) == []


def test_memory_bomb_of_one_process_fails_alone(user: str, house: House) -> None:
    done = attempt(user, "python3 -c 'bytearray(1 << 30)'; echo went on", house, SMALL)
    assert "MemoryError" in done.output
    assert "went on" in done.output


def test_memory_bomb_of_many_processes_is_ended(user: str, house: House) -> None:
    one = "python3 -c 'import time; kept = bytearray(100 << 20); time.sleep(60)'"
    done = attempt(user, f"for i in 1 2 3 4 5; do {one} & done; wait", house, SMALL)
    assert (done.outcome, done.code) == ("failed", "memory_limit")


def test_a_file_private_memory_and_the_disk_have_a_largest_size(user: str, house: House) -> None:
    small = CommandLimits(file_bytes=8 * MIB, temporary_bytes=4 * MIB, shared_memory_bytes=2 * MIB)
    done = attempt(
        user,
        "for f in big /tmp/big ~/big /dev/shm/big; do head -c 64M /dev/zero > $f; stat -c %s $f; done",
        house,
        small,
    )
    sizes = [int(line) for line in done.output.splitlines() if line.isdigit()]
    assert sizes == [8 * MIB, 4 * MIB, 4 * MIB, 2 * MIB]
    assert (house.workspace / "big").stat().st_size == 8 * MIB


def test_filling_the_disk_with_many_files_is_ended(user: str, house: House) -> None:
    command = "i=0; while :; do head -c 4M /dev/zero > f$i; sync f$i; i=$((i+1)); done"
    done = attempt(user, command, house, replace(SMALL, disk_bytes=64 * MIB))
    assert (done.outcome, done.code) == ("failed", "disk_limit")
    written = sum(path.stat().st_size for path in house.workspace.iterdir())
    assert written < 4096 * MIB


def test_endless_output_is_ended_and_costs_neither_memory_nor_the_live_stream(root: Path) -> None:
    live: list[str] = []
    tool = ShellRun(found_sandbox(), make_setup(SMALL))
    asked: JsonObject = {"command": "echo first; yes"}
    result = asyncio.run(tool.execute(asked, make_context(root, emit=lambda _stream, text: live.append(text))))
    assert (result.outcome, result.error and result.error.code) == (Outcome.FAILED, "output_limit")
    assert result.output.startswith("first\ny\n")
    assert "characters are left out here" in result.output
    assert len(result.output) <= KEPT_LENGTH_MAX + 200
    assert LIVE_LENGTH_MAX <= sum(map(len, live)) <= LIVE_LENGTH_MAX + 100


async def test_timeout_ends_everything_and_keeps_what_was_printed(root: Path) -> None:
    name = f"left{os.getpid()}"
    command = f"{DAEMON.format(name=name)} echo begun; sleep 300"
    result = await run(command, root, timeout_s=1)
    for timeout_s in (10, 60):  # A sandbox that did not start in time on a busy machine printed nothing.
        if "begun" not in result.output:
            result = await run(command, root, timeout_s=timeout_s)
    assert (result.outcome, result.error and result.error.code) == (Outcome.TIMEOUT, "timeout")
    assert result.output == f"begun\n[{DROPPED}]"
    assert named(name) == []


async def test_a_daemon_left_behind_by_a_command_that_ended_is_gone(root: Path) -> None:
    name = f"behind{os.getpid()}"
    result = await run(f"{DAEMON.format(name=name)} sleep 0.2; pgrep -f {name} | wc -l", root)
    assert result.outcome is Outcome.OK
    assert int(result.output) >= 1
    assert named(name) == []


async def test_cancel_in_the_midst_of_output_ends_everything(root: Path) -> None:
    name = f"cancelled{os.getpid()}"
    heard: list[str] = []
    tool = ShellRun(found_sandbox(), make_setup())
    asked: JsonObject = {"command": f"{DAEMON.format(name=name)} while :; do echo on; sleep 0.01; done"}
    task = asyncio.create_task(tool.execute(asked, make_context(root, emit=lambda _, text: heard.append(text))))
    await until(lambda: heard and named(name))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert named(name) == []


async def test_cancel_at_once_leaves_nothing(root: Path) -> None:
    before = set(processes_below(os.getpid(), 10_000))
    for pause_s in (0.0, 0.001, 0.002, 0.004, 0.008):
        tool = ShellRun(found_sandbox(), make_setup())
        task = asyncio.create_task(tool.execute({"command": "sleep 60"}, make_context(root)))
        await asyncio.sleep(pause_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert set(processes_below(os.getpid(), 10_000)) <= before


@pytest.mark.parametrize("background", [False, True])
def test_killing_the_daemon_leaves_nothing(root: Path, background: bool) -> None:
    name = f"orphan{os.getpid()}{background}"
    script = f"""
import asyncio
from pathlib import Path
from tests.runtimes.shells import *
async def main():
    tool = ShellRun(found_sandbox(), make_setup())
    asked = {{"command": {DAEMON.format(name=name) + "sleep 300"!r}, "background": {background}}}
    await tool.execute(asked, make_context(Path({str(root)!r})))
    await asyncio.sleep(300)
asyncio.run(main())
"""
    package = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{package}:{package / 'src'}"}
    daemon = subprocess.Popen([sys.executable, "-c", script], env=environment)
    try:
        wait_until(lambda: named(name))
    finally:
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
    wait_until(lambda: named(name) == [], "the end of what the killed daemon ran")
    find_sandbox()  # As the next daemon does, which removes the control group of the one that was killed.


async def test_no_descriptor_or_process_is_left_by_many_commands(root: Path) -> None:
    await run("true", root)
    files, processes = len(os.listdir("/proc/self/fd")), processes_below(os.getpid(), 10_000)
    await asyncio.gather(*(run("echo one; exit 3", root) for _ in range(8)))
    await until(lambda: len(os.listdir("/proc/self/fd")) <= files)  # The sandboxes are unmounted after the results.
    assert set(processes_below(os.getpid(), 10_000)) <= set(processes)


async def test_command_that_cannot_be_followed_is_not_left_running(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await run("true", root)
    files, processes = len(os.listdir("/proc/self/fd")), processes_below(os.getpid(), 10_000)

    started: set[int] = set()

    def refuse(pid: int) -> int:
        started.add(pid)
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    for _ in range(30):
        result = await run("sleep 60", root)
        assert result.error is not None
        assert result.error.code == "sandbox_failed"
    await until(lambda: len(os.listdir("/proc/self/fd")) <= files)  # The first sandbox may have been unmounted later.
    assert set(processes_below(os.getpid(), 10_000)) <= set(processes)
    await until(lambda: not started & process_groups(), "the end of every sandbox that had just begun")


def process_groups() -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, group, *_ = stat.read_text("utf-8").rpartition(")")[2].split()
            found |= {int(group)} if state != "Z" else set()
    return found


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 30])
@pytest.mark.parametrize("piece", [1, 3, 50])
def test_kept_text_is_the_beginning_and_the_end(length: int, piece: int) -> None:
    text = "".join(chr(ord("a") + number % 26) for number in range(length))
    kept, window = HeadAndTail(10), OutputWindow(7)
    for start in range(0, length, piece):
        kept.add(text[start : start + piece])
        window.add(text[start : start + piece])
    expected = text if length <= 10 else f"{text[:5]}\n[{length - 10} characters are left out here]\n{text[-5:]}"
    assert kept.text() == expected
    assert (window.read(0), window.start, window.end) == (text[-7:], max(0, length - 7), length)
    assert window.read(length - 2) == text[max(0, length - 2) :][-7:]
