"""The loop watch: a blocked loop is found with its place, a stopped or busy process is not, and `auto` ends the process."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from palyra.app import Home
from palyra.app.loop_blocks import FILE, make_loop_watch, save_block, take_saved
from palyra.core.healing.model import HealingMode
from palyra.engine.healing import loop_watch
from palyra.engine.healing.loop_watch import (
    BLOCKS_MAX,
    RESTART_EXIT_CODE,
    STACK_LENGTH_MAX,
    BlockMeter,
    LoopBlock,
    LoopWatch,
    LoopWatchSettings,
)
from tests.support.daemons import plain_environment
from tests.support.waiting import WAIT_S, until, wait_until

pytestmark = pytest.mark.anyio
QUICK = LoopWatchSettings(notice_s=0.2, tick_s=0.02)
BLOCK = LoopBlock(at_ms=7, blocked_s=31.5, stack="at guilty()")
BLOCKING_DAEMON = """
import sys, time
from pathlib import Path
from palyra.app import Home
from palyra.app.daemon import run_daemon
from palyra.config import read_config
from palyra.engine.healing import loop_watch

home, mode = Path(sys.argv[1]), sys.argv[2]
if not (home / "well").exists():  # The next daemon is well, and may be slow.
    loop_watch.END_S = 1.0

def block_the_loop():
    time.sleep(3600)

def announce(address, link, models):
    print("announced", flush=True)
    if not (home / "well").exists():
        (home / "well").touch()
        block_the_loop()

environment = {"PALYRA_SERVER__HTTP": "127.0.0.1:0", "PALYRA_SERVER__DETECT": "[]", "PALYRA_HEALING__MODE": mode}
run_daemon(Home(home), read_config("", environment, "palyra.toml"), announce)
"""


def watch(settings: LoopWatchSettings = QUICK, before: tuple[LoopBlock, ...] = ()) -> LoopWatch:
    return LoopWatch(settings, lambda: 1_000, lambda block: None, before)


def guilty(made: LoopWatch) -> None:
    """Blocks the loop until that is noticed: the watching thread gets its time late on a busy machine."""
    wait_until(lambda: made._current)


async def test_blocked_loop_is_noticed_with_the_guilty_function() -> None:
    made = watch()
    made.start()
    guilty(made)
    await until(lambda: made._over)
    (block,) = made.take()
    assert (block.at_ms, block.is_from_before) == (1_000, False)
    assert block.blocked_s >= 0.2
    assert "in guilty" in block.stack
    assert len(block.stack) <= STACK_LENGTH_MAX
    assert made.take() == ()
    made.stop()
    made.stop()


async def test_deep_stack_keeps_its_innermost_part_and_is_bounded() -> None:
    def descend(depth: int) -> None:
        if depth == 0:
            guilty(made)
        else:
            descend(depth - 1)

    made = watch()
    made.start()
    descend(300)
    await until(lambda: made._over)
    (block,) = made.take()
    made.stop()
    assert len(block.stack) <= STACK_LENGTH_MAX
    assert "in guilty" in block.stack


async def test_busy_loop_that_goes_on_is_not_blocked() -> None:
    made = watch(LoopWatchSettings(notice_s=1.2, tick_s=0.02))
    made.start()
    until_s = time.monotonic() + 1.5
    while time.monotonic() < until_s:
        sum(range(20_000))
        await asyncio.sleep(0)
    made.stop()
    assert made.take() == ()


def test_only_time_in_which_the_thread_ran_counts() -> None:
    meter = BlockMeter(0.5)
    assert meter.tick(0.0, has_answered=False) == 0.0
    assert meter.tick(0.5, has_answered=False) == 0.5
    assert meter.tick(3600.0, has_answered=False) == 1.5  # Stopped, suspended or starved: one tick, cut.
    assert meter.tick(3500.0, has_answered=False) == 1.5
    assert meter.tick(3500.5, has_answered=True) == 0.0


def test_stopped_process_is_not_taken_for_a_blocked_loop() -> None:
    code = """
import asyncio, sys, time
from palyra.engine.healing.loop_watch import LoopWatch, LoopWatchSettings
async def main():
    made = LoopWatch(LoopWatchSettings(notice_s=1.0, tick_s=0.05), lambda: 0, lambda block: None)
    made.start()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await asyncio.sleep(0.3)
    made.stop()
    print(made.take(), flush=True)
asyncio.run(main())
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert first_line(process) == "ready\n"
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        time.sleep(2.0)  # The stop has to last longer than a block that would be noticed.
        process.send_signal(signal.SIGCONT)
        assert process.communicate("go\n", timeout=WAIT_S)[0] == "()\n"


async def test_blocks_that_nobody_takes_are_bounded_and_old_ones_are_marked() -> None:
    made = watch(before=(BLOCK,) * (BLOCKS_MAX + 4))
    taken = made.take()
    assert len(taken) == BLOCKS_MAX
    assert all(block.is_from_before for block in taken)


def test_saved_block_is_private_and_taken_once(tmp_path: Path) -> None:
    path = tmp_path / FILE
    save_block(path, BLOCK)
    assert path.stat().st_mode & 0o077 == 0
    made = make_loop_watch(Home(tmp_path), HealingMode.OBSERVE_ONLY)
    assert made is not None
    assert [(block.stack, block.is_from_before) for block in made.take()] == [(BLOCK.stack, True)]
    assert list(tmp_path.iterdir()) == []
    assert make_loop_watch(Home(tmp_path), HealingMode.DISABLED) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"at_ms": "x"}', b"x" * 100_000])
def test_damaged_block_is_removed_and_does_not_stop_the_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert take_saved(tmp_path / FILE) == ()
    assert list(tmp_path.iterdir()) == []


def test_block_that_cannot_be_saved_raises_nothing(tmp_path: Path) -> None:
    save_block(tmp_path / "gone" / FILE, BLOCK)


@contextmanager
def blocking_daemon(home: Path, mode: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", BLOCKING_DAEMON, str(home), mode]
    with (
        (home / "daemon.log").open("a") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=plain_environment()) as process,
    ):
        yield process
        process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_auto_ends_a_blocked_daemon_and_the_next_start_reports_it(tmp_path: Path) -> None:
    with blocking_daemon(tmp_path, "auto") as process:
        assert process.wait(WAIT_S) == RESTART_EXIT_CODE
    assert "block_the_loop" in (tmp_path / FILE).read_text()
    with blocking_daemon(tmp_path, "auto") as process:
        assert first_line(process) == "announced\n"
        assert not (tmp_path / FILE).exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    assert "loop_blocked_before" in (tmp_path / "daemon.log").read_text()


def test_observing_leaves_a_blocked_daemon_alive(tmp_path: Path) -> None:
    with blocking_daemon(tmp_path, "observe_only") as process:
        assert first_line(process) == "announced\n"
        wait_until(lambda: (tmp_path / "well").exists())
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(loop_watch.NOTICE_S + 3.0)
    assert not (tmp_path / FILE).exists()
