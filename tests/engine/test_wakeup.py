"""The bell: whoever waits is woken, and a ring that nobody waited for is not lost."""

import asyncio

import pytest

from palyra.engine.wakeup import Wakeup

LIMIT_S = 5.0  # Nothing here takes that long; it only ends a test that would hang.


async def test_a_ring_wakes_who_waits() -> None:
    bell = Wakeup()
    waiting = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    bell.ring()
    bell.ring()
    async with asyncio.timeout(LIMIT_S):
        await waiting


async def test_a_ring_before_anybody_waits_is_heard() -> None:
    bell = Wakeup()
    bell.ring()
    async with asyncio.timeout(LIMIT_S):
        await bell.wait()


async def test_a_stilled_bell_is_waited_for_again() -> None:
    bell = Wakeup()
    bell.ring()
    bell.still()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await bell.wait()


async def test_who_was_cancelled_can_wait_again() -> None:
    bell = Wakeup()
    waiting = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    bell.ring()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(LIMIT_S):
        await bell.wait()
