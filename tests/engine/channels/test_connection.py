"""The connection of a channel: it comes back by itself, and the watchdog hears when it does not."""

import asyncio

import pytest

from palyra.core.errors import Unavailable
from palyra.engine.channels import connection as module
from palyra.engine.channels.connection import ChannelConnection
from palyra.engine.channels.directory import ConfiguredChannel
from palyra.ports.channels import ConnectionReport, Deliver
from palyra.ports.services import DOMAINS, ServiceState
from tests.support.channels import DroppingInlet, MemoryPlatform, rules
from tests.support.waiting import until


class FailingPlatform(MemoryPlatform):
    """Fails as often as `failures_count` says, then stays."""

    failures_count = 3
    begun_count = 0

    async def run(self, deliver: Deliver, report: ConnectionReport) -> None:
        self.begun_count += 1
        if self.begun_count <= self.failures_count:
            raise (Unavailable("down", "the platform is down") if self.begun_count % 2 else ValueError("odd"))
        report.up()
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEGIN_AFTER_S", 0.0)


async def test_a_lost_connection_is_tried_again_with_growing_waits() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    platform = FailingPlatform()
    connection = ChannelConnection(channel=ConfiguredChannel(rules(), platform), inlet=DroppingInlet(), sleep=sleep)
    assert (await connection.health()).state is ServiceState.IDLE
    await connection.start()
    await until(lambda: connection.is_connected)
    assert [0.5 <= wait / longest <= 1 for wait, longest in zip(waits, (1, 2, 4), strict=True)] == [True] * 3
    assert (await connection.health()).state is ServiceState.OK
    assert connection.domain in DOMAINS
    await connection.close()
    assert (await connection.health()).state is ServiceState.IDLE


async def test_a_connection_that_stays_lost_is_failed_with_the_reason() -> None:
    platform = FailingPlatform()
    platform.failures_count = 1_000
    connection = ChannelConnection(channel=ConfiguredChannel(rules(), platform), inlet=DroppingInlet(), sleep=_hold)
    await connection.start()
    await until(lambda: platform.begun_count == 1 and connection.error)
    health = await connection.health()
    assert (health.state, health.reason) == (ServiceState.FAILED, "the platform is down")
    await connection.close()
    # What is started again has not failed yet.
    await connection.start()
    assert (await connection.health()).state is ServiceState.IDLE
    await connection.close()


async def test_a_connection_that_the_adapter_is_getting_back_is_failed_meanwhile() -> None:
    platform = FailingPlatform()
    platform.failures_count = 0
    connection = ChannelConnection(channel=ConfiguredChannel(rules(), platform), inlet=DroppingInlet(), sleep=_hold)
    await connection.start()
    await until(lambda: connection.is_connected)
    connection.down("the line is cut")
    health = await connection.health()
    assert (health.state, health.reason) == (ServiceState.FAILED, "the line is cut")
    connection.up()
    assert (await connection.health()).state is ServiceState.OK
    await connection.close()


async def _hold(seconds: float) -> None:
    await asyncio.Event().wait()
