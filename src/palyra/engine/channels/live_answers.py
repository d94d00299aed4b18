"""Shows an answer in its conversation while it is written: a typing sign first, then a message that is edited.

Owns: when the sign is shown, when the message is queued, and how often it is edited.
Does not own: the answer itself (core.channels.replies, sender), platforms (adapters.channels).
Invariants: the message goes through the outbox, so that it stands once and in order, also after a crash. The answer
then replaces it (sender). Nothing here is needed for the answer to arrive: every failure only ends the show.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from palyra.core.channel_writes import QueueOutbox
from palyra.core.channels.outbox import OutboxItem, OutboxKind, OutboxState, answer_id, job_of, preview_id
from palyra.core.events import Event
from palyra.core.events.run import (
    MessageAssistant,
    ReplyAddress,
    RunAccepted,
    RunCancelled,
    RunDone,
    RunFailed,
    RunStarted,
)
from palyra.core.ids import RunId, SessionId
from palyra.core.writes import EnqueueJob
from palyra.engine.channels.directory import ChannelDirectory, ConfiguredChannel
from palyra.engine.channels.outgoing_parts import parts_of
from palyra.engine.hub import Hub
from palyra.engine.tasks import TaskSupervisor
from palyra.ports.channels import ChannelViews, OutboxViews, OutgoingPart, SendFailed
from palyra.ports.clock import Clock
from palyra.ports.journal import Journal

MORE = " …"  # Ends a text that is still being written.
CUT_OFF = "(The answer was cut off.)"
FIRST_LOOK_S = 1.0
SHOWN_MAX = 10_000  # Runs that are waited for at once.
EDIT_TIMEOUT_S = 10.0

log = structlog.get_logger()


class _Shown(NamedTuple):
    run_id: RunId
    session_id: SessionId
    reply: ReplyAddress


@dataclass(slots=True, kw_only=True)
class LiveAnswers:
    directory: ChannelDirectory
    hub: Hub
    outbox: OutboxViews
    channels: ChannelViews
    journal: Journal
    tasks: TaskSupervisor
    clock: Clock
    wake_jobs: asyncio.Event
    _accepted: dict[RunId, _Shown] = field(default_factory=dict)
    _showing: dict[RunId, "asyncio.Task[None]"] = field(default_factory=dict)
    _texts: dict[RunId, str] = field(default_factory=dict)  # What was shown last of each that is shown.

    def recorded(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.run_id is None:
                continue
            match event.data:
                case RunAccepted(reply=ReplyAddress() as reply, lineage=()) if len(self._accepted) < SHOWN_MAX:
                    self._accepted[event.run_id] = _Shown(event.run_id, SessionId(event.stream), reply)
                case RunStarted():
                    self._begin(event.run_id)
                case MessageAssistant() | RunDone():
                    self._end(event.run_id)
                case RunFailed() | RunCancelled():
                    self._leave(event.run_id)
                case _:
                    pass

    def first_text(self, run_id: RunId, turn: int) -> None:
        """The text is looked at as often as it may be shown."""

    def _begin(self, run_id: RunId) -> None:
        shown = self._accepted.get(run_id)
        channel = self.directory.find(shown.reply.channel) if shown is not None else None
        if shown is not None and channel is not None and channel.adapter.traits.edit_every_s is not None:
            self.directory.previews.add(preview_id(answer_id(run_id)))
            self._showing[run_id] = self.tasks.spawn(self._show(shown, channel), f"live answer {run_id}")

    def _end(self, run_id: RunId) -> None:
        self.directory.previews.discard(preview_id(answer_id(run_id)))
        self._accepted.pop(run_id, None)
        self._texts.pop(run_id, None)
        task = self._showing.pop(run_id, None)
        if task is not None:
            task.cancel()

    def _leave(self, run_id: RunId) -> None:
        """Nothing replaces the message any more, so it must not look as if more came."""
        shown, text = self._accepted.get(run_id), self._texts.get(run_id)
        self._end(run_id)
        channel = self.directory.find(shown.reply.channel) if shown is not None else None
        if shown is not None and channel is not None and text is not None:
            self.tasks.spawn(self._finish(shown, channel, text), f"live answer {run_id}")
        elif text is None:
            self.tasks.spawn(self._cut_off(run_id), f"live answer {run_id}")

    async def _cut_off(self, run_id: RunId) -> None:
        """Ends what an earlier process showed, unless the answer stands there. Nobody knows its words any more."""
        answer = answer_id(run_id)
        item = await self.outbox.item(preview_id(answer))
        channel = self.directory.find(item.channel) if item is not None else None
        is_shown = item is not None and item.state is OutboxState.SENT and item.message_ids
        if item is None or channel is None or not is_shown or await self.outbox.item(answer) is not None:
            return
        try:
            async with asyncio.timeout(EDIT_TIMEOUT_S):
                await channel.adapter.edit(_part(replace(item, text=CUT_OFF), channel), item.message_ids[0])
        except (SendFailed, TimeoutError) as error:
            log.info("live_answer_ended", channel=item.channel, run_id=run_id, why=str(error))

    async def _finish(self, shown: _Shown, channel: ConfiguredChannel, text: str) -> None:
        try:
            await self._put(shown, channel, text, ending="")
        except (SendFailed, TimeoutError) as error:
            log.info("live_answer_ended", channel=shown.reply.channel, run_id=shown.run_id, why=str(error))

    async def _show(self, shown: _Shown, channel: ConfiguredChannel) -> None:
        every_s, last = channel.adapter.traits.edit_every_s or 1.0, ""
        try:
            # A quick answer is better shown at once and whole.
            await asyncio.sleep(min(every_s, FIRST_LOOK_S))
            while not await self.channels.is_paused(shown.reply.channel):
                text = self.hub.live_text(shown.session_id, shown.run_id)
                if not text:
                    await self._sign(shown, channel)
                elif text != last:
                    self._texts[shown.run_id] = last = text
                    await self._put(shown, channel, text)
                await asyncio.sleep(every_s)
        except (SendFailed, TimeoutError) as error:
            log.info("live_answer_ended", channel=shown.reply.channel, run_id=shown.run_id, why=str(error))

    async def _sign(self, shown: _Shown, channel: ConfiguredChannel) -> None:
        async with asyncio.timeout(EDIT_TIMEOUT_S):
            await channel.adapter.show_typing(shown.reply.conversation_id, shown.reply.thread_id)

    async def _put(self, shown: _Shown, channel: ConfiguredChannel, text: str, ending: str = MORE) -> None:
        """Queues the message at first, and edits it once the platform has it."""
        item = _preview(shown, text.rstrip() + ending, self.clock.now_ms())
        known = await self.outbox.item(item.id)
        if known is None:
            await self.journal.commit((), (QueueOutbox(item), EnqueueJob(job_of(item, item.created_at_ms))))
            self.wake_jobs.set()
        elif known.state is OutboxState.SENT and known.message_ids:
            async with asyncio.timeout(EDIT_TIMEOUT_S):
                await channel.adapter.edit(_part(item, channel), known.message_ids[0])


def _preview(shown: _Shown, text: str, now_ms: int) -> OutboxItem:
    reply = shown.reply
    return OutboxItem(
        id=preview_id(answer_id(shown.run_id)),
        channel=reply.channel,
        conversation_id=reply.conversation_id,
        thread_id=reply.thread_id,
        reply_to=reply.reply_to,
        kind=OutboxKind.PREVIEW,
        text=text,
        session_id=shown.session_id,
        created_at_ms=now_ms,
        not_before_ms=now_ms,
        updated_at_ms=now_ms,
    )


def _part(item: OutboxItem, channel: ConfiguredChannel) -> OutgoingPart:
    """Only the beginning of a long answer is shown; its further parts follow when it is complete."""
    first = parts_of(item, channel)[0].text
    return OutgoingPart(
        key=item.id, conversation_id=item.conversation_id, text=first, thread_id=item.thread_id, reply_to=item.reply_to
    )
