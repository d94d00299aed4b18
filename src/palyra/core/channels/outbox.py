"""The outbox: messages that go out, in order within a conversation, each once as far as that can be known.

Owns: an item's states, when it is tried again, and what a crash between sending and recording makes of it.
Does not own: storing (core.writes), sending (engine.channels.sender, adapters.channels).

An item is `sending` from before the platform is asked until the outcome is recorded. Found in that state after a crash,
it is settled by the platform's own id where the platform has one. Otherwise it is `uncertain`, and a person decides.
"""

import hashlib
from enum import Enum

import msgspec
from msgspec.structs import replace

from palyra.core.channels.identity import channel_principal
from palyra.core.channels.unread import UnreadMessage
from palyra.core.ids import ULID_RANDOM_BYTES, ArtifactId, JobId, SessionId, length_prefixed, make_ulid
from palyra.core.jobs.model import JobKind, NewJob

OUTBOX_KIND = JobKind(
    name="outbox",
    summary="sends a message to a channel's conversation",
    at_once_max=16,
    attempts_max=8,
    timeout_s=180.0,
    backoff_max_s=60.0,
    queued_max=50_000,
    kept_days=1,  # One for every message that goes out; the outbox itself tells more.
)
ATTEMPTS_MAX = 10
BACKOFF_S = 1.0
BACKOFF_MAX_S = 600.0
RETRY_AFTER_MAX_S = 3_600.0
SENT_KEPT_MS = 7 * 86_400_000
ERROR_LENGTH_MAX = 500
FILES_MAX = 10  # Of one message, as many as the strictest platform takes.


class OutboxState(Enum):
    QUEUED = "queued"
    SENDING = "sending"
    SENT = "sent"
    DEAD = "dead"
    UNCERTAIN = "uncertain"
    DISCARDED = "discarded"


class OutboxKind(Enum):
    ANSWER = "answer"
    QUESTION = "question"
    NOTICE = "notice"
    TOOL = "tool"
    PREVIEW = "preview"  # An answer that is still being written; the answer replaces it.
    UNREAD = "unread"  # It came in and could not be read. It is dead from the beginning, and never sent.


OPEN_STATES = frozenset({OutboxState.QUEUED, OutboxState.SENDING})
STUCK_STATES = frozenset({OutboxState.DEAD, OutboxState.UNCERTAIN})


class Button(msgspec.Struct, frozen=True):
    """`value` is the command that pressing it stands for."""

    label: str
    value: str


class OutboxFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that goes out with a message: an artifact, and what people see of it."""

    artifact_id: ArtifactId
    name: str
    media_type: str
    bytes: int


class OutboxItem(msgspec.Struct, frozen=True, kw_only=True):
    """`number` orders the items of a conversation; it is given by the store. `part` counts the parts that were sent.

    `text` and `files` are dropped once they are sent. `session_id` is where it comes from: it goes when that session is erased.
    `message_ids` are the platform's ids of what was sent.
    """

    id: str
    channel: str
    conversation_id: str
    kind: OutboxKind
    text: str
    created_at_ms: int
    thread_id: str | None = None
    reply_to: str | None = None
    session_id: SessionId | None = None
    buttons: tuple[Button, ...] = ()
    files: tuple[OutboxFile, ...] = ()
    state: OutboxState = OutboxState.QUEUED
    attempts: int = 0
    part: int = 0
    not_before_ms: int = 0
    error: str | None = None
    message_ids: tuple[str, ...] = ()
    updated_at_ms: int = 0
    number: int = 0


def item_id(*causes: str) -> str:
    """Derives an item's id from what causes it, so that the same cause makes one item."""
    mark = hashlib.sha256(length_prefixed(b"outbox", *(cause.encode() for cause in causes))).digest()
    return make_ulid(0, mark[:ULID_RANDOM_BYTES])


def answer_id(run_id: str) -> str:
    return item_id(OutboxKind.ANSWER.value, run_id)


def preview_id(answer: str) -> str:
    """Names the preview of an answer by the answer's id."""
    return item_id(OutboxKind.PREVIEW.value, answer)


def dead_letter(unread: UnreadMessage, now_ms: int) -> OutboxItem:
    """Returns what is kept of a message that could not be read: where it is found, and why, none of its words."""
    return OutboxItem(
        id=item_id(OutboxKind.UNREAD.value, unread.channel, *unread.message_ids),
        channel=unread.channel,
        conversation_id=unread.conversation_id,
        kind=OutboxKind.UNREAD,
        text="",
        created_at_ms=now_ms,
        state=OutboxState.DEAD,
        error=unread.reason[:ERROR_LENGTH_MAX],
        message_ids=unread.message_ids,
        updated_at_ms=now_ms,
    )


def part_key(item: OutboxItem) -> str:
    """Names one part of an item towards the platform: the same for every attempt at sending it."""
    return f"{item.id}-{item.part}"


def job_of(item: OutboxItem, now_ms: int) -> NewJob:
    """The job that sends an item, and whatever of its conversation still waits before it."""
    mark = hashlib.sha256(length_prefixed(b"outbox job", item.id.encode(), str(now_ms).encode())).digest()
    return NewJob(
        id=JobId(make_ulid(now_ms, mark[:ULID_RANDOM_BYTES])),
        kind=OUTBOX_KIND.name,
        principal=channel_principal(item.channel),
        payload={"item_id": item.id},
        dedupe_key=item.id,
        session_id=item.session_id,
        not_before_ms=now_ms,
        created_at_ms=now_ms,
    )


def begin(item: OutboxItem, now_ms: int) -> OutboxItem:
    """The durable intent: the platform is asked only after this is recorded."""
    return replace(item, state=OutboxState.SENDING, attempts=item.attempts + 1, updated_at_ms=now_ms)


def after_part(item: OutboxItem, message_id: str, parts_count: int, now_ms: int) -> OutboxItem:
    sent = replace(
        item,
        part=item.part + 1,
        message_ids=(*item.message_ids, message_id),
        attempts=0,
        error=None,
        updated_at_ms=now_ms,
    )
    if sent.part < parts_count:
        return replace(sent, state=OutboxState.QUEUED)
    return as_sent(sent, now_ms)


def as_sent(item: OutboxItem, now_ms: int) -> OutboxItem:
    return replace(item, state=OutboxState.SENT, text="", buttons=(), files=(), updated_at_ms=now_ms)


def after_failure(item: OutboxItem, error: str, retry_after_s: float | None, now_ms: int, random: float) -> OutboxItem:
    """Waits longer after each failure, or as long as the platform asks for. After the last attempt the item is dead."""
    failed = replace(item, error=error[:ERROR_LENGTH_MAX], updated_at_ms=now_ms)
    if item.attempts >= ATTEMPTS_MAX:
        return replace(failed, state=OutboxState.DEAD)
    longest = min(BACKOFF_S * 2 ** min(item.attempts - 1, 20), BACKOFF_MAX_S)
    wait_s = longest * (0.5 + random / 2)
    if retry_after_s is not None:
        wait_s = max(wait_s, min(retry_after_s, RETRY_AFTER_MAX_S))
    return replace(failed, state=OutboxState.QUEUED, not_before_ms=now_ms + int(1000 * wait_s))


def after_refusal(item: OutboxItem, error: str, now_ms: int) -> OutboxItem:
    """The platform will never accept it."""
    return replace(item, state=OutboxState.DEAD, error=error[:ERROR_LENGTH_MAX], updated_at_ms=now_ms)


def as_uncertain(item: OutboxItem, now_ms: int) -> OutboxItem:
    error = "the daemon stopped while it was sent, and the platform cannot tell whether it arrived"
    return replace(item, state=OutboxState.UNCERTAIN, error=error, updated_at_ms=now_ms)


def as_discarded(item: OutboxItem, now_ms: int) -> OutboxItem:
    return replace(item, state=OutboxState.DISCARDED, text="", buttons=(), files=(), updated_at_ms=now_ms)


def again(item: OutboxItem, now_ms: int) -> OutboxItem:
    """A person wants it sent again: from its first part that is not known to be sent."""
    return replace(item, state=OutboxState.QUEUED, attempts=0, not_before_ms=now_ms, error=None, updated_at_ms=now_ms)
