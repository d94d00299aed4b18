"""The Channel ports: a platform's adapter, and reading what commits wrote about channels.

Does not own: what becomes of a message (core.channels), writing (core.writes).
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Protocol

import msgspec

from palyra.core.channels.identity import AccountLink
from palyra.core.channels.missed import ReadPosition
from palyra.core.channels.model import ChannelKind, InboundMessage, TakenEnvelope
from palyra.core.channels.outbox import Button, OutboxItem, OutboxState
from palyra.core.channels.pairing_codes import PairingAttempts, PairingCode, PairingRequest
from palyra.core.channels.unread import UnreadMessage
from palyra.core.ids import ApprovalId, EffectId, SessionId


class Redelivery(Enum):
    """What happens if a part is sent again under the same key."""

    IDEMPOTENT = "idempotent"  # The platform, or the receiver by contract, takes it once.
    FINDABLE = "findable"  # The platform can be asked whether it has it.
    UNKNOWN = "unknown"  # Nobody can tell.


class ChannelTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What a platform can do. `length_max` is how many characters one message may have.

    `can_send` is false where there is no way back, such as a webhook without an address for answers.
    `repeat_within_ms` is how long an IDEMPOTENT platform remembers keys; None is for ever. `edit_every_s` is how often a
    message may be edited while it is written; None where that cannot be done. `file_bytes_max` is how large a file may
    be; 0 where files cannot be sent. With `joins_files` the files of an answer go with its last message, and the limit is
    for all of them together; otherwise each file is a message of its own.
    """

    kind: ChannelKind
    length_max: int
    redelivery: Redelivery
    can_send: bool = True
    repeat_within_ms: int | None = None
    edit_every_s: float | None = None
    file_bytes_max: int = 0
    joins_files: bool = False


class SentMessage(msgspec.Struct, frozen=True):
    """A part that the platform has. `id` is the platform's own."""

    id: str


class OutgoingFile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    media_type: str
    body: bytes

    def __repr__(self) -> str:
        return f"OutgoingFile({self.media_type!r}, {len(self.body)} bytes)"


class OutgoingPart(msgspec.Struct, frozen=True, kw_only=True):
    """One message as a platform is given it. `key` is the same for every attempt at this part.

    `began_at_ms` is when sending was first recorded, for platforms that are asked for messages since then.
    """

    key: str
    conversation_id: str
    text: str
    thread_id: str | None = None
    reply_to: str | None = None
    buttons: tuple[Button, ...] = ()
    files: tuple[OutgoingFile, ...] = ()
    began_at_ms: int = 0


class SendFailed(Exception):
    """The platform did not take the message, or nobody knows whether it did.

    `is_final` says that it never will. `is_unknown` says that it may have arrived.
    """

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, is_final: bool = False, is_unknown: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        self.is_final = is_final
        self.is_unknown = is_unknown


class HttpRequestPart(msgspec.Struct, frozen=True, kw_only=True):
    """What a signed request consists of. Names of headers are lower case."""

    headers: Mapping[str, str]
    body: bytes
    now_s: int


class HttpReply(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered to a request that carries no message, such as a platform's check of the address."""

    body: bytes = b""
    media_type: str = "text/plain; charset=utf-8"


Complete = Callable[[], Awaitable[InboundMessage]]


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a request brought, or that it could not be read. `complete` returns it with its files."""

    message: InboundMessage | UnreadMessage
    complete: Complete | None = None


class PastMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a conversation's history. `arrival` is None if nobody said it to us, as with our own messages."""

    message_id: str
    at_ms: int
    arrival: Arrival | None = None


class ChannelHistory(Protocol):
    """Reads what was written while nothing was connected. Only a platform that lists its messages has one."""

    async def page(self, conversation_id: str, before: str | None) -> tuple[PastMessage, ...]:
        """Returns the messages before that one, or the newest ones: the latest first, and none at the beginning.

        Raises NotFound if the conversation is gone or closed to us, and Unavailable if it cannot be read now.
        """
        ...


class Deliver(Protocol):
    """Takes a message. It has its place in the conversation before anything is awaited.

    `complete` returns the message with its files. It is called once the message is known to be wanted. A message that
    could not be read is handed over too, and kept as a dead letter. So is one that is refused: whoever delivers goes on
    with the next. Raises only Unavailable, which asks for the same message again.
    """

    def __call__(
        self, message: InboundMessage | UnreadMessage, complete: Complete | None = None, /
    ) -> Awaitable[object]: ...


class ConnectionReport(Protocol):
    """Where an adapter says how its connection is. Health and incidents follow from it."""

    def up(self) -> None: ...

    async def identified(self, workspace: str) -> None:
        """The adapter knows its workspace, before its first message. Senders are named `WORKSPACE:ID` from now on.

        Accounts that were stored without a workspace are of this one.
        """
        ...

    def fresh(self, history: ChannelHistory) -> None:
        """The connection begins anew, before its first message: what was written until now does not come by itself."""
        ...

    def down(self, reason: str) -> None:
        """The connection is lost, and the adapter is getting it back by itself. Otherwise it raises Unavailable."""
        ...


class ChannelCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What trying a channel found: our name on the platform, or a note where there is no platform that knows us."""

    known_as: str | None = None
    note: str = ""


class ChannelAdapter(Protocol):
    """One platform behind our words. Everything of the platform's library ends here."""

    @property
    def traits(self) -> ChannelTraits: ...

    async def run(self, deliver: Deliver, report: ConnectionReport) -> None:
        """Receives until it is cancelled, and reports whenever the connection stands.

        Raises Unavailable when the connection is lost; whoever called waits and calls again. An adapter that is only
        called over HTTP waits for its cancellation.
        """
        ...

    async def send(self, part: OutgoingPart) -> SentMessage:
        """Sends one part. Raises SendFailed."""
        ...

    async def edit(self, part: OutgoingPart, message_id: str) -> SentMessage:
        """Replaces a message that was sent. Doing it twice is the same as once. Raises SendFailed."""
        ...

    async def show_typing(self, conversation_id: str, thread_id: str | None) -> None:
        """Shows for some seconds that an answer is being written, where the platform has a sign for it."""
        ...

    async def find(self, part: OutgoingPart) -> SentMessage | None:
        """Returns a part that was sent before under this key. Only a FINDABLE platform is asked."""
        ...

    async def read_request(self, request: HttpRequestPart) -> tuple[Arrival, ...] | HttpReply:
        """Reads a request of the platform. Unauthorized unless it proves itself; Invalid if it cannot be read."""
        ...

    async def check(self) -> ChannelCheck:
        """Tries the token, or the address. Raises Unavailable with what to do."""
        ...


class MessageAddress(msgspec.Struct, frozen=True):
    channel: str
    conversation_id: str


class MessageWish(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool sends. The same effect sends it once."""

    address: MessageAddress
    text: str
    effect_id: EffectId
    session_id: SessionId
    files: tuple[OutgoingFile, ...] = ()


class MessageQueue(Protocol):
    """What the tool that sends messages needs."""

    async def send(self, message: MessageWish) -> str:
        """Queues a message and returns its id. NotFound if there is no such channel."""
        ...


class ChannelViews(Protocol):
    async def envelope(self, channel: str, envelope_id: str) -> TakenEnvelope | None: ...

    async def is_paused(self, channel: str) -> bool: ...


class PositionViews(Protocol):
    """How far conversations were read."""

    async def position(self, channel: str, conversation_id: str) -> ReadPosition | None: ...

    async def positions(self, channel: str, limit: int) -> tuple[ReadPosition, ...]:
        """Lists the conversations of a channel, the one that changed last first."""
        ...


class PairingViews(Protocol):
    async def link(self, channel: str, sender_id: str) -> AccountLink | None:
        """Returns the link of an account that is not revoked, also an expired one."""
        ...

    async def link_by_id(self, link_id: str) -> AccountLink | None: ...

    async def links(self, channel: str | None, after: str, limit: int) -> tuple[AccountLink, ...]:
        """Lists links that are not revoked, by id."""
        ...

    async def code(self, code_hash: str) -> PairingCode | None: ...

    async def codes(self, now_ms: int) -> tuple[PairingCode, ...]:
        """Lists codes that can still be used."""
        ...

    async def attempts(self, channel: str, sender_id: str) -> PairingAttempts | None: ...

    async def request(self, approval_id: ApprovalId) -> PairingRequest | None: ...

    async def requests(self, limit: int) -> tuple[PairingRequest, ...]: ...


class OutboxViews(Protocol):
    async def item(self, item_id: str) -> OutboxItem | None: ...

    async def first_open(self, channel: str, conversation_id: str) -> OutboxItem | None:
        """Returns the first item of a conversation that is queued or being sent."""
        ...

    async def items(
        self, channel: str | None, states: tuple[OutboxState, ...], after: int, limit: int
    ) -> tuple[OutboxItem, ...]:
        """Lists items by number, after that number."""
        ...

    async def count(self, channel: str, states: tuple[OutboxState, ...]) -> int: ...
