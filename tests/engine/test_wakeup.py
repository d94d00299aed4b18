"""The wakeup: whoever waits is woken, and a set flag that nobody waited for is not lost."""

import asyncio

import pytest

from palyra.engine.wakeup import Wakeup
from tests.support.waiting import WAIT_S


async def test_setting_wakes_the_waiting_task() -> None:
    wakeup = Wakeup()
    waiting = asyncio.create_task(wakeup.wait())
    await asyncio.sleep(0)
    wakeup.set()
    wakeup.set()
    async with asyncio.timeout(WAIT_S):
        await waiting


async def test_setting_before_anybody_waits_is_not_lost() -> None:
    wakeup = Wakeup()
    wakeup.set()
    async with asyncio.timeout(WAIT_S):
        await wakeup.wait()


async def test_a_cleared_wakeup_is_waited_for_again() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await wakeup.wait()


async def test_a_cancelled_task_can_wait_again() -> None:
    wakeup = Wakeup()
    waiting = asyncio.create_task(wakeup.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    wakeup.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(WAIT_S):
        await wakeup.wait()
