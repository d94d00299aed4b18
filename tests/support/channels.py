"""Channels for tests: a platform in memory, messages, and an engine with one channel."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from palyra.adapters.providers.scripted import Script
from palyra.core.channels.model import ChannelKind, ChannelRules, DirectMessages, InboundMessage
from palyra.core.channels.outbox import OutboxState
from palyra.core.channels.pairing_codes import shown_code
from palyra.core.channels.unread import UnreadMessage
from palyra.core.errors import Unavailable
from palyra.core.events.run import MessageUser
from palyra.core.events.tool import ApprovalStatus, Decision
from palyra.core.ids import EffectId, Principal, SessionId, StreamId
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery
from palyra.engine.channels.directory import ConfiguredChannel
from palyra.engine.channels.pairing_service import CodeWish
from palyra.engine.engine import Engine
from palyra.ports.channels import (
    Arrival,
    ChannelCheck,
    ChannelHistory,
    ChannelTraits,
    Complete,
    ConnectionReport,
    Deliver,
    HttpReply,
    HttpRequestPart,
    MessageAddress,
    MessageWish,
    OutgoingFile,
    OutgoingPart,
    Redelivery,
    SendFailed,
    SentMessage,
)
from tests.support.asking import says
from tests.support.engines import OWNER, Workshop
from tests.support.waiting import until

CHANNEL = "team"
PDF = b"%PDF-1.7\x00\xff of the report"
_numbers = count(1)


@dataclass
class MemoryPlatform:
    """Keeps what it is sent. `failures` are raised by the next sends, in order. Sent keys are known to `find`."""

    length_max: int = 2_000
    redelivery: Redelivery = Redelivery.IDEMPOTENT
    sent: list[OutgoingPart] = field(default_factory=list)
    failures: list[SendFailed] = field(default_factory=list)
    edit_every_s: float | None = None
    file_bytes_max: int = 1_000
    joins_files: bool = False
    edits: list[tuple[str, str]] = field(default_factory=list)
    typed: list[str] = field(default_factory=list)
    hold: asyncio.Event | None = None
    begun: list[str] = field(default_factory=list)
    is_silent: bool = False
    checks_count: int = 0
    after_send: Callable[[], None] = lambda: None

    @property
    def traits(self) -> ChannelTraits:
        return ChannelTraits(
            kind=ChannelKind.DISCORD,
            length_max=self.length_max,
            redelivery=self.redelivery,
            edit_every_s=self.edit_every_s,
            file_bytes_max=self.file_bytes_max,
            joins_files=self.joins_files,
        )

    async def run(self, deliver: Deliver, report: ConnectionReport) -> None:
        report.up()
        await asyncio.Event().wait()

    async def send(self, part: OutgoingPart) -> SentMessage:
        if part.conversation_id not in self.begun:
            self.begun.append(part.conversation_id)
        if self.hold is not None:
            await self.hold.wait()
        if self.failures:
            raise self.failures.pop(0)
        if self.redelivery is not Redelivery.IDEMPOTENT or part.key not in [each.key for each in self.sent]:
            self.sent.append(part)
        self.after_send()
        return SentMessage(f"m{len(self.sent)}")

    async def edit(self, part: OutgoingPart, message_id: str) -> SentMessage:
        if self.failures:
            raise self.failures.pop(0)
        self.edits.append((message_id, part.text))
        return SentMessage(message_id)

    async def show_typing(self, conversation_id: str, thread_id: str | None) -> None:
        self.typed.append(conversation_id)

    async def find(self, part: OutgoingPart) -> SentMessage | None:
        keys = [each.key for each in self.sent]
        return SentMessage(f"m{keys.index(part.key) + 1}") if part.key in keys else None

    async def read_request(self, request: HttpRequestPart) -> tuple[Arrival, ...] | HttpReply:
        return HttpReply(body=request.body)

    async def check(self) -> ChannelCheck:
        self.checks_count += 1
        if self.is_silent:
            raise Unavailable("connect_failed", "the platform is silent")
        return ChannelCheck(known_as="palyra")

    @property
    def texts(self) -> list[str]:
        return [part.text for part in self.sent]


class DroppingInlet:
    """Takes every message and keeps none."""

    async def receive(self, message: InboundMessage | UnreadMessage, complete: Complete | None = None) -> None:
        """Drops the message."""

    def begin(self, history: ChannelHistory) -> None:
        """Reads nothing."""

    def end(self) -> None:
        """Has nothing to stop."""


def report(channel: str, conversation_id: str) -> MessageWish:
    """A message of a tool, with a file."""
    return MessageWish(
        address=MessageAddress(channel, conversation_id),
        text="Here it is.",
        effect_id=EffectId(f"effect-{next(_numbers)}"),
        session_id=SessionId(StreamId("s")),
        files=(OutgoingFile(name="report.pdf", media_type="application/pdf", body=PDF),),
    )


def rules(**fields: object) -> ChannelRules:
    base = {"name": CHANNEL, "kind": ChannelKind.DISCORD, "dm_policy": DirectMessages.ALLOW, "coalesce_ms": 0}
    return ChannelRules(**{**base, **fields})  # type: ignore[arg-type]


def message(text: str = "hello", **fields: object) -> InboundMessage:
    base = {
        "envelope_id": f"e{next(_numbers)}",
        "channel": CHANNEL,
        "conversation_id": "c1",
        "sender_id": "s1",
        "is_direct": True,
    }
    return InboundMessage(text=text, **{**base, **fields})  # type: ignore[arg-type]


def permits(principal: Principal, role: str, owner: Principal) -> bool:
    """As the bundled policies do: users answer for their own things, operators for everyone's."""
    return role in ("operator", "admin") or (role == "user" and principal == owner)


@dataclass
class ChannelScene:
    engine: Engine
    platform: MemoryPlatform
    workshop: Workshop

    async def say(self, text: str = "hello", **fields: object) -> object:
        return await self.engine.channels.intake.receive(message(text, **fields))

    async def heard(self, count: int) -> list[str]:
        """Waits until the platform has so many messages."""
        await until(lambda: len(self.platform.sent) >= count)
        return self.platform.texts

    async def link(self, sender_id: str, principal: str, role: str = "user", **fields: object) -> None:
        """Pairs an account as people do."""
        _, letters = await self.engine.pairing.issue(OWNER, CodeWish())
        given = message(shown_code(letters), sender_id=sender_id, **{"conversation_id": f"dm-{sender_id}", **fields})
        assert (await self.engine.pairing.consume(given, letters, lambda is_right: ())) is True
        card = (await self.questions())[-1]
        answer = ApprovalAnswer(decision=Decision.ALLOW, principal=principal, role=role, role_max="admin")
        owner = Principal(card.session_id)
        await self.engine.approvals.answer(owner, card.id, answer, by=OWNER)

    async def questions(self) -> Sequence[ApprovalRecord]:
        return await self.engine.approvals.list(None, ApprovalsQuery(status=ApprovalStatus.PENDING))

    async def states(self) -> list[OutboxState]:
        return [OutboxState(item.state) for item in await self.engine.outbox.list(None, (), 0, 1_000)]


async def attached(scene: ChannelScene, owner: str) -> tuple[str, list[tuple[str, str, int]]]:
    """Returns the text and the attachments of the only message that an owner's only session holds."""
    (session,) = await scene.engine.sessions.list(Principal(owner), "", 10)
    events = await scene.engine.sessions.tape(Principal(owner), session.id, 0, 100)
    (said,) = [event.data for event in events if isinstance(event.data, MessageUser)]
    return said.text, [(each.name, each.media_type, each.bytes) for each in said.attachments]


def channel_workshop(
    root: Path,
    scripts: Sequence[Script],
    channel_rules: ChannelRules | None = None,
    platform: MemoryPlatform | None = None,
) -> Workshop:
    workshop = Workshop(root, scripts)
    workshop.may_answer = permits
    workshop.channels = (ConfiguredChannel(channel_rules or rules(), platform or MemoryPlatform()),)
    return workshop


@asynccontextmanager
async def channel_scene(
    root: Path,
    scripts: Sequence[Script] = (),
    channel_rules: ChannelRules | None = None,
    platform: MemoryPlatform | None = None,
) -> AsyncIterator[ChannelScene]:
    """Opens an engine with one channel. A `platform` of an earlier scene is the same one, met again after a restart."""
    workshop = channel_workshop(root, scripts or [Script(turns=(says("Hi there."),))], channel_rules, platform)
    async with workshop.open() as engine:
        adapter = workshop.channels[0].adapter
        assert isinstance(adapter, MemoryPlatform)
        yield ChannelScene(engine, adapter, workshop)
