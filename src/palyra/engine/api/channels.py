"""Channels as people see and change them, and the way in that the gateway uses.

Owns: listing, testing, pausing and resuming channels; requests of platforms.
Does not own: taking messages (engine.channels.intake), the outbox (api.outbox).
"""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from palyra.core.channel_writes import SetChannelPaused
from palyra.core.channels.model import ChannelKind, InboundMessage
from palyra.core.channels.outbox import OPEN_STATES, STUCK_STATES
from palyra.core.channels.signatures import refusal
from palyra.core.channels.unread import require_plain, unread
from palyra.core.errors import Invalid, Unavailable
from palyra.core.events.system import AdminActed
from palyra.core.ids import Principal
from palyra.engine.api.admin_log import AdminLog
from palyra.engine.channels.catch_up import CatchUp
from palyra.engine.channels.connection import ChannelConnection
from palyra.engine.channels.dead_letters import UNREAD, DeadLetters
from palyra.engine.channels.directory import ChannelDirectory, ConfiguredChannel
from palyra.engine.channels.intake import ChannelIntake, Receipt
from palyra.ports.channels import Arrival, ChannelCheck, ChannelViews, HttpReply, HttpRequestPart, OutboxViews
from palyra.ports.clock import Clock
from palyra.ports.journal import Journal
from palyra.ports.services import ServiceState

CHECK_S = 20.0


class ChannelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A channel as people see it. `error` says why it is not connected.

    `left_count` is how many messages at least were left unread when it last connected: too old, or too many.
    """

    id: str
    name: str
    kind: str
    state: str
    error: str
    dm_policy: str
    waiting_count: int
    stuck_count: int
    left_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelService:
    directory: ChannelDirectory
    connections: Mapping[str, ChannelConnection]
    catch_ups: Mapping[str, CatchUp]
    intake: ChannelIntake
    letters: DeadLetters
    views: ChannelViews
    outbox: OutboxViews
    journal: Journal
    acts: AdminLog
    clock: Clock
    wake_jobs: asyncio.Event

    async def start(self) -> None:
        for channel in self.directory:
            if not await self.views.is_paused(channel.rules.name):
                await self.connections[channel.rules.name].start()

    async def close(self) -> None:
        for connection in self.connections.values():
            await connection.close()

    async def list(self) -> tuple[ChannelRecord, ...]:
        return tuple([await self._record(channel) for channel in self.directory])

    async def get(self, name: str) -> ChannelRecord:
        return await self._record(self.directory.get(name))

    async def pause(self, principal: Principal, name: str) -> ChannelRecord:
        """Takes nothing in and sends nothing until the channel is resumed. What waits in the outbox stays there."""
        await self._set_paused(principal, name, True)
        await self.connections[name].close()
        return await self.get(name)

    async def resume(self, principal: Principal, name: str) -> ChannelRecord:
        await self._set_paused(principal, name, False)
        await self.connections[name].start()
        return await self.get(name)

    async def check(self, name: str) -> ChannelCheck:
        """Tries the channel's token, or its address."""
        channel = self.directory.get(name)
        try:
            async with asyncio.timeout(CHECK_S):
                return await channel.adapter.check()
        except TimeoutError as cause:
            raise Unavailable("channel_silent", f"the platform of {name} did not answer in {CHECK_S:.0f} s") from cause

    async def receive_request(self, name: str, request: HttpRequestPart) -> tuple[Receipt, ...] | HttpReply:
        """Takes a request of a platform. An unknown channel is refused like a forged request.

        What cannot be read or taken is kept as a dead letter. A webhook's system is told, for it can send another one; a
        platform is told that it was taken, or it would deliver the same for hours.
        """
        channel = self.directory.find(name)
        if channel is None:
            raise refusal()
        try:
            read = await channel.adapter.read_request(request)
        except Invalid as error:
            digest = hashlib.sha256(request.body).hexdigest()
            await self.letters.keep(unread(name, (f"sha256:{digest}",), error))
            if channel.rules.kind is ChannelKind.WEBHOOK:
                raise
            return (UNREAD,)
        if isinstance(read, HttpReply):
            return read
        return tuple(await asyncio.gather(*(self._take(channel, each) for each in read)))

    async def _take(self, channel: ConfiguredChannel, arrival: Arrival) -> Receipt:
        message = arrival.message
        receipt = await self.letters.settled(message, lambda plain: self.intake.receive(plain, arrival.complete))
        if receipt is UNREAD and channel.rules.kind is ChannelKind.WEBHOOK:
            if isinstance(message, InboundMessage):
                require_plain(message)
            raise Invalid("message_unread", "the message cannot be taken; palyra channels dead-letters says why")
        return receipt

    async def _set_paused(self, principal: Principal, name: str, is_paused: bool) -> None:
        self.directory.get(name)
        action = "channels.pause" if is_paused else "channels.resume"
        await self.acts.record(principal, AdminActed(action=action, target=name))
        await self.journal.commit((), (SetChannelPaused(name, is_paused, self.clock.now_ms()),))
        self.wake_jobs.set()

    async def _record(self, channel: ConfiguredChannel) -> ChannelRecord:
        name = channel.rules.name
        connection = self.connections[name]
        is_paused = await self.views.is_paused(name)
        health = await connection.health()
        return ChannelRecord(
            id=name,
            name=name,
            kind=channel.rules.kind.value,
            state="paused" if is_paused else health.state.value,
            error="" if is_paused or health.state is not ServiceState.FAILED else health.reason,
            dm_policy=channel.rules.dm_policy.value,
            waiting_count=await self.outbox.count(name, tuple(OPEN_STATES)),
            stuck_count=await self.outbox.count(name, tuple(STUCK_STATES)),
            left_count=self.catch_ups[name].left_count,
        )
