"""Writes of channels: envelopes, links of accounts, pairing, and the outbox.

Does not own: their SQL (adapters.store), when they happen (engine.channels).
"""

import msgspec

from palyra.core.channels.identity import AccountLink
from palyra.core.channels.missed import ReadPosition
from palyra.core.channels.model import TakenEnvelope
from palyra.core.channels.outbox import OutboxItem
from palyra.core.channels.pairing_codes import PairingAttempts, PairingCode, PairingRequest
from palyra.core.ids import ApprovalId


class RecordEnvelope(msgspec.Struct, frozen=True):
    """A delivery of a channel was taken. Deliveries from before `kept_from_ms` are forgotten.

    A commit that records one for the second time is refused as a whole, with Conflict `envelope_taken`.
    """

    envelope: TakenEnvelope
    kept_from_ms: int


class PutPosition(msgspec.Struct, frozen=True):
    """A conversation was read this far. An earlier position changes nothing; those from before `kept_from_ms` go."""

    position: ReadPosition
    kept_from_ms: int


class SetChannelPaused(msgspec.Struct, frozen=True):
    channel: str
    is_paused: bool
    at_ms: int


class PutLink(msgspec.Struct, frozen=True):
    """Stores a link of an account whole. An earlier link of the account ends."""

    link: AccountLink


class PutPairingCode(msgspec.Struct, frozen=True):
    """Stores a code whole, and forgets those that ended before `kept_from_ms`."""

    code: PairingCode
    kept_from_ms: int


class PutPairingRequest(msgspec.Struct, frozen=True):
    request: PairingRequest


class DropPairingRequest(msgspec.Struct, frozen=True):
    approval_id: ApprovalId


class CountPairingAttempts(msgspec.Struct, frozen=True):
    attempts: PairingAttempts


class QueueOutbox(msgspec.Struct, frozen=True):
    """Adds an item to the outbox. An item that is there already stays as it is."""

    item: OutboxItem


class KeepDeadLetter(msgspec.Struct, frozen=True):
    """Adds a message that came in and could not be read. Of its channel's, those before the newest `kept_max` go."""

    item: OutboxItem
    kept_max: int


class SetOutbox(msgspec.Struct, frozen=True):
    """Replaces an item of the outbox. Items that were sent before `kept_from_ms` are forgotten."""

    item: OutboxItem
    kept_from_ms: int


ChannelWrite = (
    RecordEnvelope | PutPosition | SetChannelPaused | PutLink | PutPairingCode | PutPairingRequest
    | DropPairingRequest | CountPairingAttempts | QueueOutbox | KeepDeadLetter | SetOutbox
)  # fmt: skip
