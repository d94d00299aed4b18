"""The job that sends what waits in the outbox.

Owns: the order within a conversation, the durable intent before each part, and what follows from an outcome.
Does not own: rules (core.channels.outbox), platforms (adapters.channels).
Invariants: a part is sent only after its intent is recorded, under the job's token. Messages of a conversation leave in
the order in which they were queued. What is found as being sent belongs to an attempt that was cut off.
"""

import asyncio
from collections.abc import Callable, Coroutine
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
BUSY_LOOK_MS = 1_000
BEGIN_WITHIN_S = 20.0  # Of a job's time. What begins last still has the time that the slowest upload takes.

log = structlog.get_logger()


class _Payload(msgspec.Struct, frozen=True):
    item_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSender:
    """`_busy` are the conversations that a job is at, each with whether another job came meanwhile."""

    directory: ChannelDirectory
    views: OutboxViews
    channels: ChannelViews
    journal: Journal
    artifacts: Artifacts
    clock: Clock
    chance: Callable[[], float] = SystemRandom().random
    _busy: dict[tuple[str, str], bool] = field(default_factory=dict)

    async def perform(self, job: Job, report: Report) -> JobResult:
        """Sends the job's item, after everything of its conversation that waits before it.

        A job that finds its conversation busy does not wait for it: a platform that hangs would hold every place of the
        queue. It comes again, and finds that the other job has sent its item too.
        """
        wanted = await self.views.item(msgspec.convert(job.payload, _Payload).item_id)
        if wanted is None or wanted.state not in OPEN_STATES:
            return JobDone()
        conversation = (wanted.channel, wanted.conversation_id)
        if conversation in self._busy:
            self._busy[conversation] = True
            return JobPostponed(until_ms=self.clock.now_ms() + BUSY_LOOK_MS)
        try:
            return await self._empty(job, report, wanted)
        finally:
            del self._busy[conversation]

    async def _empty(self, job: Job, report: Report, wanted: OutboxItem) -> JobResult:
        """Sends what waits in a conversation: to the wanted item, and further if other jobs came meanwhile."""
        conversation, clock = (wanted.channel, wanted.conversation_id), asyncio.get_running_loop().time
        until_s = clock() + BEGIN_WITHIN_S
        while clock() < until_s:
            self._busy[conversation] = False
            first = await self.views.first_open(*conversation)
            if first is None:
                return JobDone()
            done = await self._step(job, first)
            if isinstance(done, int):
                return JobPostponed(until_ms=done)
            report(first.id)
            # Items behind it have jobs of their own, which either came meanwhile or begin after this one.
            if done.number >= wanted.number and done.state not in OPEN_STATES and not self._busy[conversation]:
                return JobDone()
        return JobPostponed(until_ms=self.clock.now_ms())

    async def _step(self, job: Job, item: OutboxItem) -> OutboxItem | int:
        """Gets one item one step further. Returns it as it is then, or until when to wait."""
        now_ms = self.clock.now_ms()
        channel = self.directory.find(item.channel)
        if channel is None:
            return await self._record(job, after_refusal(item, "the channel is not in palyra.toml any more", now_ms))
        if await self.channels.is_paused(item.channel):
            return now_ms + PAUSED_LOOK_MS
        if item.not_before_ms > now_ms:
            return item.not_before_ms
        if self._is_late(item):
            return await self._record(job, as_discarded(item, now_ms))
        parts = parts_of(item, channel)
        if item.part >= len(parts):
            return await self._record(job, as_sent(item, now_ms))
        part = outgoing(item, parts)
        if item.state is OutboxState.SENDING:
            settled = await self._settled(job, item, channel, part)
            if settled is not None:
                return settled
        elif not await self._answers(channel):
            return await self._fail(job, begin(item, now_ms), channel, SendFailed("the platform does not answer"))
        item = await self._record(job, begin(item, now_ms))
        return await self._send(job, item, channel, await with_files(part, parts[item.part].files, self.artifacts))

    def _is_late(self, item: OutboxItem) -> bool:
        """Tells whether a preview comes too late: its commit was under way when the run ended, or the daemon."""
        is_waiting = item.kind is OutboxKind.PREVIEW and item.state is not OutboxState.SENDING
        return is_waiting and item.id not in self.directory.previews

    async def _answers(self, channel: ConfiguredChannel) -> bool:
        """Asks a platform that was silent before it is given what nobody could find again. Others are not asked."""
        name = channel.rules.name
        if channel.adapter.traits.redelivery is not Redelivery.UNKNOWN:
            return True
        if not self.directory.send_errors.current(name, self.clock.now_ms()):
            return True
        asking = asyncio.ensure_future(channel.adapter.check())
        await _finished(asking, SEND_TIMEOUT_S)
        return asking.done() and not asking.cancelled() and asking.exception() is None

    async def _settled(
        self, job: Job, item: OutboxItem, channel: ConfiguredChannel, part: OutgoingPart
    ) -> OutboxItem | int | None:
        """Settles a part whose sending was cut off. Returns None if it is to be sent again."""
        now_ms = self.clock.now_ms()
        traits = channel.adapter.traits
        is_old = traits.repeat_within_ms is not None and now_ms - item.updated_at_ms > traits.repeat_within_ms
        match traits.redelivery:
            case Redelivery.IDEMPOTENT if not is_old:
                return None
            case Redelivery.UNKNOWN | Redelivery.IDEMPOTENT:
                log.warning("outbox_uncertain", channel=item.channel, item_id=item.id)
                is_preview = item.kind is OutboxKind.PREVIEW
                return await self._record(job, as_discarded(item, now_ms) if is_preview else as_uncertain(item, now_ms))
            case Redelivery.FINDABLE:
                return await self._found(job, item, channel, part)

    async def _found(
        self, job: Job, item: OutboxItem, channel: ConfiguredChannel, part: OutgoingPart
    ) -> OutboxItem | int | None:
        """Asks the platform whether it has the part, and records it if so. Returns None if it does not have it."""
        now_ms = self.clock.now_ms()
        asking = asyncio.ensure_future(channel.adapter.find(part))
        await _finished(asking, SEND_TIMEOUT_S)
        if not asking.done() or asking.cancelled() or asking.exception() is not None:
            unasked = SendFailed("the platform could not be asked", is_unknown=True)
            return await self._fail(job, begin(item, now_ms), channel, unasked)
        found = asking.result()
        if found is None:
            return None
        return await self._record(job, after_part(item, found.id, len(parts_of(item, channel)), now_ms))

    async def _send(
        self, job: Job, item: OutboxItem, channel: ConfiguredChannel, part: OutgoingPart
    ) -> OutboxItem | int:
        timeout_s = FILE_TIMEOUT_S if part.files else SEND_TIMEOUT_S
        outcome = await self._replaced(item, channel, part) or await _outcome(channel.adapter.send(part), timeout_s)
        if isinstance(outcome, SendFailed):
            return await self._fail(job, item, channel, outcome)
        self.directory.send_errors.clear(item.channel)
        count = len(parts_of(item, channel))
        return await self._record(job, after_part(item, outcome.id, count, self.clock.now_ms()))

    async def _fail(
        self, job: Job, item: OutboxItem, channel: ConfiguredChannel, error: SendFailed
    ) -> OutboxItem | int:
        """Records a failure. Returns until when to wait if the item is to be tried again."""
        log.info("outbox_not_sent", channel=item.channel, item_id=item.id, attempts=item.attempts, why=error.message)
        failed = await self._record(job, self._failed(item, error, channel.adapter.traits.redelivery))
        if error.is_final:
            self.directory.send_errors.clear(item.channel)
        elif error.is_unknown or item.attempts > 1:
            self.directory.send_errors.put(item.channel, error.message, max(failed.not_before_ms, failed.updated_at_ms))
        return failed.not_before_ms if failed.state in OPEN_STATES else failed

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

    def _failed(self, item: OutboxItem, error: SendFailed, redelivery: Redelivery) -> OutboxItem:
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

    async def _record(self, job: Job, item: OutboxItem) -> OutboxItem:
        kept_from_ms = self.clock.now_ms() - SENT_KEPT_MS
        await self.journal.commit((), (SetOutbox(item, kept_from_ms),), Fence(lease_name(job.id), job.token))
        return item


async def _finished(task: "asyncio.Future[Any]", timeout_s: float) -> None:
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
