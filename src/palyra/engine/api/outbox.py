"""The outbox as people see it, and queueing messages that no run's event causes.

Owns: listing it, sending stuck messages again or giving them up, and messages of tools and of pairing.
Does not own: sending (engine.channels.sender), answers of runs (core.channels.replies).
"""

import asyncio
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from palyra.core.channel_writes import QueueOutbox, SetOutbox
from palyra.core.channels.model import ID_LENGTH_MAX, TEXT_LENGTH_MAX
from palyra.core.channels.outbox import (
    FILES_MAX,
    SENT_KEPT_MS,
    STUCK_STATES,
    OutboxFile,
    OutboxItem,
    OutboxKind,
    OutboxState,
    again,
    as_discarded,
    item_id,
    job_of,
)
from palyra.core.channels.pairing_codes import PairingRequest
from palyra.core.errors import Conflict, Invalid, NotFound
from palyra.core.events.system import AdminActed
from palyra.core.ids import Principal, SessionId
from palyra.core.redaction import Redactor
from palyra.core.taint import label
from palyra.core.writes import EnqueueJob, LinkArtifact, Write
from palyra.engine.api.admin_log import AdminLog
from palyra.engine.channels.directory import ChannelDirectory
from palyra.engine.session.long_texts import redact_text
from palyra.engine.tasks import TaskSupervisor
from palyra.ports.artifacts import Artifacts
from palyra.ports.channels import MessageAddress, MessageWish, OutboxViews, OutgoingFile
from palyra.ports.clock import Clock
from palyra.ports.journal import Journal

LINKED = "Your account is linked now. Say /whoami to see as whom, or just ask."
NOT_LINKED = "The operator did not link your account."
SCANNED_BYTES_MAX = 4 * 1024 * 1024  # Of a text; scanning one takes about a tenth of a microsecond a character.
BINARY_LOOK_BYTES = 8 * 1024


class OutboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A message that goes out. `text` and `files`, the names of its files, are empty once it was sent."""

    id: str
    number: int
    channel: str
    conversation_id: str
    kind: str
    state: str
    text: str
    files: tuple[str, ...]
    attempts: int
    error: str | None
    message_ids: tuple[str, ...]
    session_id: str | None
    created_at_ms: int
    updated_at_ms: int
    not_before_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxService:
    directory: ChannelDirectory
    views: OutboxViews
    journal: Journal
    acts: AdminLog
    tasks: TaskSupervisor
    clock: Clock
    wake_jobs: asyncio.Event
    redactor: Redactor
    artifacts: Artifacts

    async def list(
        self, channel: str | None, states: tuple[OutboxState, ...], after: int, limit: int
    ) -> tuple[OutboxRecord, ...]:
        found = await self.views.items(channel, states or tuple(OutboxState), after, limit)
        return tuple(_record(item) for item in found)

    async def replay(self, principal: Principal, wanted: str) -> OutboxRecord:
        """Sends a dead or uncertain message again."""
        found = await self.views.item(wanted)
        if found is not None and found.kind is OutboxKind.UNREAD:
            raise Conflict(
                "outbox_came_in",
                f"message {wanted} came in and could not be read; look at it where it was sent, then discard it here",
                is_retryable=False,
            )
        item, now_ms = await self._stuck(principal, wanted, "outbox.replay"), self.clock.now_ms()
        settled = again(item, now_ms)
        return await self._settle(settled, EnqueueJob(job_of(settled, now_ms)))

    async def discard(self, principal: Principal, wanted: str) -> OutboxRecord:
        """Gives a dead or uncertain message up, and drops its words."""
        item, now_ms = await self._stuck(principal, wanted, "outbox.discard"), self.clock.now_ms()
        return await self._settle(as_discarded(item, now_ms))

    async def send(self, message: MessageWish) -> str:
        """Queues a message for a tool and returns its id; the same effect queues it once."""
        address, text, files = message.address, message.text, message.files
        if not self.directory.get(address.channel).adapter.traits.can_send:
            raise Invalid("channel_silent", f"channel {address.channel} only receives: it has no outbound_url")
        if not 1 <= len(address.conversation_id) <= ID_LENGTH_MAX or not 1 <= len(text.strip()) <= TEXT_LENGTH_MAX:
            raise Invalid("message_invalid", "a message names a conversation and has some text")
        if len(files) > FILES_MAX:
            raise Invalid("message_invalid", f"a message has at most {FILES_MAX} files")
        for file in files:
            await self._require_no_secret(file)
        kept = [await self._keep(file, message.session_id) for file in files]
        clean = (await redact_text(self.redactor, text)).text
        item = self._item(item_id("tool", message.effect_id), OutboxKind.TOOL, address, clean)
        item = replace(item, session_id=message.session_id, files=tuple(file for file, _ in kept))
        await self._queue(item, *(link for _, link in kept))
        return item.id

    async def _require_no_secret(self, file: OutgoingFile) -> None:
        """A text that is shown to the model has its secrets replaced. A file leaves as it is, or not at all (L5)."""
        if b"\x00" in file.body[:BINARY_LOOK_BYTES]:
            return
        try:
            text = file.body.decode()
        except UnicodeDecodeError:
            return
        if len(file.body) > SCANNED_BYTES_MAX:
            raise Invalid("file_too_large", f"{file.name}: a text above {SCANNED_BYTES_MAX} bytes is not sent")
        if (await redact_text(self.redactor, text)).text != text:
            raise Invalid("file_holds_secret", f"{file.name} holds what looks like a secret, so it is not sent")

    async def _keep(self, file: OutgoingFile, session_id: SessionId) -> tuple[OutboxFile, LinkArtifact]:
        """Stores a file as an artifact of the session. Nobody knows who wrote it, so reading it back taints (L8)."""
        artifact_id, size, now_ms = await self.artifacts.put(file.body), len(file.body), self.clock.now_ms()
        kept = OutboxFile(artifact_id=artifact_id, name=file.name, media_type=file.media_type, bytes=size)
        source = label("artifact", artifact_id[:16])
        return kept, LinkArtifact(artifact_id, session_id, size, file.media_type, now_ms, source=source)

    def tell_linked(self, request: PairingRequest, is_linked: bool) -> None:
        """Tells an account what the operator answered, where the channel has a way back."""
        channel = self.directory.find(request.channel)
        if channel is None or not channel.adapter.traits.can_send:
            return
        address = MessageAddress(request.channel, request.conversation_id)
        named = item_id("pairing", request.approval_id)
        item = self._item(named, OutboxKind.NOTICE, address, LINKED if is_linked else NOT_LINKED)
        self.tasks.spawn(self._queue(item), "pairing notice")

    def _item(self, named: str, kind: OutboxKind, address: MessageAddress, text: str) -> OutboxItem:
        now_ms = self.clock.now_ms()
        return OutboxItem(
            id=named,
            channel=address.channel,
            conversation_id=address.conversation_id,
            kind=kind,
            text=text,
            created_at_ms=now_ms,
            not_before_ms=now_ms,
            updated_at_ms=now_ms,
        )

    async def _queue(self, item: OutboxItem, *more: Write) -> None:
        await self.journal.commit((), (*more, QueueOutbox(item), EnqueueJob(job_of(item, self.clock.now_ms()))))
        self.wake_jobs.set()

    async def _stuck(self, principal: Principal, wanted: str, action: str) -> OutboxItem:
        item = await self.views.item(wanted)
        if item is None:
            raise NotFound(
                "outbox_unknown", f"there is no message {wanted} in the outbox; palyra channels dead-letters lists them"
            )
        if item.state not in STUCK_STATES:
            raise Conflict("outbox_not_stuck", f"message {wanted} is {item.state.value}", is_retryable=False)
        await self.acts.record(principal, AdminActed(action=action, target=item.id, detail=item.channel))
        return item

    async def _settle(self, item: OutboxItem, *more: Write) -> OutboxRecord:
        await self.journal.commit((), (SetOutbox(item, self.clock.now_ms() - SENT_KEPT_MS), *more))
        self.wake_jobs.set()
        return _record(item)


def _record(item: OutboxItem) -> OutboxRecord:
    return OutboxRecord(
        id=item.id,
        number=item.number,
        channel=item.channel,
        conversation_id=item.conversation_id,
        kind=item.kind.value,
        state=item.state.value,
        text=item.text,
        files=tuple(file.name for file in item.files),
        attempts=item.attempts,
        error=item.error,
        message_ids=item.message_ids,
        session_id=item.session_id,
        created_at_ms=item.created_at_ms,
        updated_at_ms=item.updated_at_ms,
        not_before_ms=item.not_before_ms,
    )
