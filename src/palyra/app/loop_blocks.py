"""Wires the loop watch, and keeps the block that ended a process in a file of the home until the next start.

Does not own: noticing blocks (engine.healing.loop_watch).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import structlog

from palyra.adapters.clock import SystemClock
from palyra.adapters.files.durable import clear_partials, replace_whole
from palyra.adapters.files.regular import UnfitFile, read_regular
from palyra.app import Home
from palyra.config.choices import HealingMode
from palyra.engine.healing import loop_watch
from palyra.engine.healing.loop_watch import LoopBlock, LoopWatch, LoopWatchSettings

FILE = "loop-block.json"
BYTES_MAX = 64 * 1024

log = structlog.get_logger()


def make_loop_watch(home: Home, mode: HealingMode) -> LoopWatch | None:
    """Returns the watch, with what an earlier process left; None if watching is switched off."""
    if mode is HealingMode.DISABLED:
        return None
    end_s = loop_watch.END_S if mode is HealingMode.AUTO else None
    path = home.root / FILE
    settings = LoopWatchSettings(end_s=end_s)
    return LoopWatch(settings, SystemClock().now_ms, partial(save_block, path), take_saved(path))


@asynccontextmanager
async def watched(watch: LoopWatch | None) -> AsyncIterator[None]:
    """Watches the loop within. Opening a journal may take long, so a watch begins only when the daemon serves."""
    if watch is None:
        yield
        return
    watch.start()
    try:
        yield
    finally:
        watch.stop()


def save_block(path: Path, block: LoopBlock) -> None:
    try:
        replace_whole(path, msgspec.json.encode(block))
    except OSError as cause:
        log.error("loop_block_unsaved", reason=cause.strerror)


def take_saved(path: Path) -> tuple[LoopBlock, ...]:
    """Reads the block that ended an earlier process, logs it, and removes the file. An unreadable file is removed too."""
    try:
        data = read_regular(path, BYTES_MAX).data
        block = msgspec.json.decode(data, type=LoopBlock)
    except FileNotFoundError:
        return ()
    except (OSError, UnfitFile, msgspec.MsgspecError) as cause:
        log.warning("loop_block_unreadable", reason=type(cause).__name__)
        _remove(path)
        return ()
    _remove(path)
    log.warning("loop_blocked_before", blocked_s=block.blocked_s, at_ms=block.at_ms, stack=block.stack)
    return (block,)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
        clear_partials(path)
    except OSError as cause:
        log.warning("loop_block_stays", reason=cause.strerror)
