"""The connection of one channel, as a service that the watchdog looks at.

Owns: running the adapter, connecting again after a failure with growing waits, and its health.
Does not own: what the adapter does, what becomes of messages (intake), those that were missed (catch_up).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Protocol

import structlog

from palyra.core.channels.model import InboundMessage
from palyra.core.channels.unread import UnreadMessage
from palyra.core.errors import PalyraError
from palyra.engine.channels.directory import ConfiguredChannel
from palyra.ports.channels import ChannelHistory, Complete
from palyra.ports.services import ServiceHealth, ServiceState

BACKOFF_S = 1.0
BACKOFF_MAX_S = 60.0
STEADY_S = 30.0  # A connection that held this long failed for a new reason: the waits begin anew.
CLOSE_S = 5.0
BEGIN_AFTER_S = 0.15  # Platforms' libraries take long to import; the daemon is ready first.

_random = SystemRandom()
log = structlog.get_logger()


class Inlet(Protocol):
    """Where messages go, live ones and those that were missed."""

    async def receive(self, message: InboundMessage | UnreadMessage, complete: Complete | None = None, /) -> object: ...

    def begin(self, history: ChannelHistory) -> None: ...

    def end(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class ChannelConnection:
    channel: ConfiguredChannel
    inlet: Inlet
    send_error: Callable[[], str] = lambda: ""
    carry_over: Callable[[str], Awaitable[None]] | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    restarts_itself: bool = True
    is_connected: bool = False
    error: str = ""
    _task: "asyncio.Task[None] | None" = None
    _failures: int = field(default=0)

    @property
    def name(self) -> str:
        return f"channel {self.channel.rules.name}"

    @property
    def domain(self) -> str:
        return "channel"

    async def start(self) -> None:
        if self._task is None:
            self.error = ""
            self._task = asyncio.create_task(self._keep(), name=self.name)

    async def close(self) -> None:
        task, self._task = self._task, None
        self.is_connected = False
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSE_S)
        self.inlet.end()

    async def health(self) -> ServiceHealth:
        if self._task is None:
            return ServiceHealth(state=ServiceState.IDLE, reason="it is paused or not started")
        if self.is_connected and (error := self.send_error()):
            return ServiceHealth(state=ServiceState.FAILED, reason=f"messages wait: {error}")
        if self.is_connected:
            return ServiceHealth(state=ServiceState.OK)
        if self.error:
            return ServiceHealth(state=ServiceState.FAILED, reason=self.error)
        return ServiceHealth(state=ServiceState.IDLE, reason="it is connecting")

    def up(self) -> None:
        self.is_connected = True
        self.error = ""
        self._failures = 0

    async def identified(self, workspace: str) -> None:
        if self.carry_over is not None:
            await self.carry_over(workspace)

    def fresh(self, history: ChannelHistory) -> None:
        self.inlet.begin(history)

    def down(self, reason: str) -> None:
        self.is_connected = False
        self.error = reason

    async def restart(self) -> None:
        await self.close()
        await self.start()

    async def _keep(self) -> None:
        """Runs the adapter until this is cancelled. Whatever the adapter raises ends one connection only."""
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(BEGIN_AFTER_S)
        while True:
            began_s = clock()
            running = asyncio.ensure_future(self.channel.adapter.run(self.inlet.receive, self))
            try:
                await asyncio.wait({running})
            finally:
                running.cancel()
                self.is_connected = False
                self.inlet.end()
            error = running.exception() if running.done() and not running.cancelled() else None
            self._failures = 1 if clock() - began_s > STEADY_S else self._failures + 1
            self.error = error.message if isinstance(error, PalyraError) else type(error).__name__
            log.warning("channel_lost", channel=self.channel.rules.name, why=self.error, failures=self._failures)
            longest = min(BACKOFF_S * 2 ** min(self._failures - 1, 10), BACKOFF_MAX_S)
            await self.sleep(longest * (0.5 + _random.random() / 2))
