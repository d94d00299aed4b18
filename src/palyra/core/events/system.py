"""Events of a node's system tape: signed checkpoints, erasures and administrative actions.

Does not own: sessions (session).
"""

from typing import ClassVar

import msgspec

from palyra.core.events.base import Count, EventData, Identifier, Text
from palyra.core.ids import NodeId, StreamId


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last event of a tape when a checkpoint was made."""

    stream: StreamId
    seq: Count
    hash: Identifier


class CheckpointSigned(EventData, frozen=True, kw_only=True):
    """Heads of the tapes changed since the previous checkpoint, signed. See core.checkpoint for the bytes."""

    TYPE: ClassVar[str] = "checkpoint.signed"
    node: NodeId
    key_id: Identifier
    previous: Identifier
    position: Count
    heads: tuple[Head, ...]
    signature: Identifier


class SeqRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    first: Count
    last: Count


class Erased(EventData, frozen=True, kw_only=True):
    """Names what was erased, so that a missing text is a recorded decision and not damage."""

    TYPE: ClassVar[str] = "erased"
    stream: StreamId
    ranges: tuple[SeqRange, ...]
    reason: Text


class AdminActed(EventData, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "admin.acted"
    action: Identifier
    target: Identifier = ""
    detail: Text = ""
