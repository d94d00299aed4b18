"""The job that sends what waits in the outbox.

Owns: the order within a conversation, the durable intent before each part, and what follows from an outcome.
Does not own: rules (core.channels.outbox), platforms (adapters.channels).
Invariants: a part is sent only after its intent is recorded, under the job's token. Messages of a conversation leave in
the order in which they were queued. What is found as being sent belongs to an attempt that was cut off.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from palyra.core.channel_writes import SetOutbox
from palyra.core.channels.outbox import (
    OPEN_STATES,
    SENT_KEPT_MS,
    OutboxItem,
    OutboxKind,
    OutboxState,
    after_failure,
    after_part,
    after_refusal,
    as_discarded,
    as_sent,
    as_uncertain,
    begin,
    preview_id,
)
from palyra.core.jobs.model import Job, lease_name
from palyra.core.writes import Fence
from palyra.engine.channels.directory import ChannelDirectory, ConfiguredChannel
from palyra.engine.channels.outgoing_parts import outgoing, parts_of, with_files
from palyra.engine.jobs.handler import JobDone, JobPostponed, JobResult, Report
from palyra.ports.artifacts import Artifacts
from palyra.ports.channels import ChannelViews, OutboxViews, OutgoingPart, Redelivery, SendFailed, SentMessage
from palyra.ports.clock import Clock
from palyra.ports.journal import Journal

SEND_TIMEOUT_S = 30.0
FILE_TIMEOUT_S = 120.0  # Less than a job's, for the slowest line that a platform still takes a file over.
PAUSED_LOOK_MS = 5_000
STEPS_MAX = 200  # Of one job; what is left is sent by the next attempt.

log = structlog.get_logger()


class _Payload(msgspec.Struct, frozen=True):
    item_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSender:
    directory: ChannelDirectory
    views: OutboxViews
    channels: ChannelViews
    journal: Journal
    artifacts: Artifacts
    clock: Clock
    chance: Callable[[], float] = SystemRandom().random
    _locks: dict[tuple[str, str], asyncio.Lock] = field(default_factory=dict)
    _holders: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def perform(self, job: Job, report: Report) -> JobResult:
        """Sends the job's item, after everything of its conversation that waits before it."""
        wanted = await self.views.item(msgspec.convert(job.payload, _Payload).item_id)
        if wanted is None or wanted.state not in OPEN_STATES:
            return JobDone()
        async with self._alone((wanted.channel, wanted.conversation_id)):
            for _ in range(STEPS_MAX):
                first = await self.views.first_open(wanted.channel, wanted.conversation_id)
                if first is None or first.number > wanted.number:
                    return JobDone()
                until_ms = await self._step(job, first)
                if until_ms is not None:
                    return JobPostponed(until_ms=until_ms)
                report(first.id)
        return JobPostponed(until_ms=self.clock.now_ms())

    async def _step(self, job: Job, item: OutboxItem) -> int | None:
        """Gets one item one step further. Returns until when to wait, or None if there may be more to do now."""
        now_ms = self.clock.now_ms()
        channel = self.directory.find(item.channel)
        if channel is None:
            refused = after_refusal(item, "the channel is not in palyra.toml any more", now_ms)
            await self._record(job, refused)
            return None
        if await self.channels.is_paused(item.channel):
            return now_ms + PAUSED_LOOK_MS
        if item.not_before_ms > now_ms:
            return item.not_before_ms
        parts = parts_of(item, channel)
        if item.part >= len(parts):
            await self._record(job, as_sent(item, now_ms))
            return None
        part = outgoing(item, parts)
        if item.state is OutboxState.SENDING and not await self._may_repeat(job, item, channel, part):
            return None
        item = begin(item, now_ms)
        await self._record(job, item)
        files = parts[item.part].files
        until_ms = await self._send(job, item, channel, await with_files(part, files, self.artifacts))
        # An upload may take long, so the next part has a job's whole time again.
        return self.clock.now_ms() if files and until_ms is None else until_ms

    async def _may_repeat(self, job: Job, item: OutboxItem, channel: ConfiguredChannel, part: OutgoingPart) -> bool:
        """Settles a part whose sending was cut off. Returns whether it is to be sent again."""
        now_ms = self.clock.now_ms()
        traits = channel.adapter.traits
        is_old = traits.repeat_within_ms is not None and now_ms - item.updated_at_ms > traits.repeat_within_ms
        match traits.redelivery:
            case Redelivery.IDEMPOTENT if not is_old:
                return True
            case Redelivery.UNKNOWN | Redelivery.IDEMPOTENT:
                log.warning("outbox_uncertain", channel=item.channel, item_id=item.id)
                is_preview = item.kind is OutboxKind.PREVIEW
                await self._record(job, as_discarded(item, now_ms) if is_preview else as_uncertain(item, now_ms))
                return False
            case Redelivery.FINDABLE:
                return await self._is_missing(job, item, channel, part)

    async def _is_missing(self, job: Job, item: OutboxItem, channel: ConfiguredChannel, part: OutgoingPart) -> bool:
        """Asks the platform whether it has the part, and records it if so."""
        now_ms = self.clock.now_ms()
        asking = asyncio.ensure_future(channel.adapter.find(part))
        await _finished(asking, SEND_TIMEOUT_S)
        error = asking.exception() if not asking.cancelled() else None
        if asking.cancelled() or error is not None:
            await self._record(
                job, self._failed(begin(item, now_ms), SendFailed("the platform could not be asked", is_unknown=True))
            )
            return False
        found = asking.result()
        if found is None:
            return True
        await self._record(job, after_part(item, found.id, len(parts_of(item, channel)), now_ms))
        return False

    async def _send(self, job: Job, item: OutboxItem, channel: ConfiguredChannel, part: OutgoingPart) -> int | None:
        timeout_s = FILE_TIMEOUT_S if part.files else SEND_TIMEOUT_S
        outcome = await self._replaced(item, channel, part) or await _outcome(channel.adapter.send(part), timeout_s)
        if isinstance(outcome, SentMessage):
            count = len(parts_of(item, channel))
            await self._record(job, after_part(item, outcome.id, count, self.clock.now_ms()))
            return None
        error = outcome
        log.info("outbox_not_sent", channel=item.channel, item_id=item.id, attempts=item.attempts, why=error.message)
        failed = self._failed(item, error, channel.adapter.traits.redelivery)
        await self._record(job, failed)
        return failed.not_before_ms if failed.state in OPEN_STATES else None

    async def _replaced(
        self, item: OutboxItem, channel: ConfiguredChannel, part: OutgoingPart
    ) -> SentMessage | SendFailed | None:
        """Puts an answer in the place of its preview. Returns None where there is none, or none any more."""
        if channel.adapter.traits.edit_every_s is None or item.kind is not OutboxKind.ANSWER or item.part > 0:
            return None
        if part.files:
            return None
        preview = await self.views.item(preview_id(item.id))
        if preview is None or preview.state is not OutboxState.SENT or not preview.message_ids:
            return None
        outcome = await _outcome(channel.adapter.edit(part, preview.message_ids[0]), SEND_TIMEOUT_S)
        if isinstance(outcome, SentMessage):
            return outcome
        # An edit that may have arrived is simply made again.
        return None if outcome.is_final else SendFailed(outcome.message, retry_after_s=outcome.retry_after_s)

    def _failed(self, item: OutboxItem, error: SendFailed, redelivery: Redelivery = Redelivery.FINDABLE) -> OutboxItem:
        now_ms = self.clock.now_ms()
        if item.kind is OutboxKind.PREVIEW:
            return as_discarded(item, now_ms)
        if error.is_final:
            return after_refusal(item, error.message, now_ms)
        if error.is_unknown and redelivery is Redelivery.UNKNOWN:
            return as_uncertain(item, now_ms)
        failed = after_failure(item, error.message, error.retry_after_s, now_ms, self.chance())
        # What may have arrived is looked for before it is sent again.
        is_doubted = error.is_unknown and failed.state is OutboxState.QUEUED
        return replace(failed, state=OutboxState.SENDING) if is_doubted else failed

    async def _record(self, job: Job, item: OutboxItem) -> None:
        kept_from_ms = self.clock.now_ms() - SENT_KEPT_MS
        await self.journal.commit((), (SetOutbox(item, kept_from_ms),), Fence(lease_name(job.id), job.token))

    @asynccontextmanager
    async def _alone(self, conversation: tuple[str, str]) -> AsyncIterator[None]:
        """One job of a conversation at a time. A lock goes when nobody holds or awaits it."""
        self._holders[conversation] += 1
        try:
            async with self._locks.setdefault(conversation, asyncio.Lock()):
                yield
        finally:
            self._holders[conversation] -= 1
            if not self._holders[conversation]:
                del self._holders[conversation], self._locks[conversation]


async def _finished(task: "asyncio.Future[SentMessage] | asyncio.Future[SentMessage | None]", timeout_s: float) -> None:
    """Waits for the platform, but not for ever. If this is cancelled, so is the task."""
    try:
        await asyncio.wait({task}, timeout=timeout_s)
    finally:
        if not task.done():
            task.cancel()
    if not task.done():
        await asyncio.wait({task}, timeout=1.0)


async def _outcome(work: Coroutine[Any, Any, SentMessage], timeout_s: float) -> SentMessage | SendFailed:
    """Returns what came of it. What an adapter did not foresee may have happened after the message arrived."""
    sending = asyncio.ensure_future(work)
    await _finished(sending, timeout_s)
    if not sending.done() or sending.cancelled():
        return SendFailed(f"the platform took longer than {timeout_s:.0f} s", is_unknown=True)
    error = sending.exception()
    if error is None:
        return sending.result()
    if isinstance(error, SendFailed):
        return error
    return SendFailed(f"{type(error).__name__}: {error}", is_unknown=True)
