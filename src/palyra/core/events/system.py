"""Events of a node's system tape: signed checkpoints, erasures, administrative actions and incidents.

Does not own: sessions (session).
"""

from typing import ClassVar

import msgspec

from palyra.core.events.base import Count, EventData, Identifier, Text
from palyra.core.healing.model import ActOutcome, HealingDomain, Resolution, Severity
from palyra.core.ids import IncidentId, NodeId, StreamId


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last event of a tape when a checkpoint was made."""

    stream: StreamId
    seq: Count
    hash: Identifier


class CheckpointSigned(EventData, frozen=True, kw_only=True):
    """Heads of the tapes changed since the previous checkpoint, signed. See core.checkpoint for the bytes.

    `attests_all` says that after this checkpoint every outcome of a call has an attestation. Older releases attested
    only what they executed.
    """

    TYPE: ClassVar[str] = "checkpoint.signed"
    node: NodeId
    key_id: Identifier
    previous: Identifier
    position: Count
    heads: tuple[Head, ...]
    signature: Identifier
    attests_all: bool = False


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


class IncidentOpened(EventData, frozen=True, kw_only=True):
    """The watchdog found something stuck or degraded.

    The same id again means that the finding came back soon after it was gone, or that it became worse. `remedies` are
    the actions on offer (core.healing.model.Remedy), in the order in which they are tried.
    """

    TYPE: ClassVar[str] = "incident.opened"
    incident_id: IncidentId
    domain: HealingDomain
    subject: Identifier
    severity: Severity
    evidence: Text
    remediation: Text
    first_seen_ms: Count
    remedies: tuple[Identifier, ...] = ()


class IncidentActed(EventData, frozen=True, kw_only=True):
    """An action on an incident: first that it begins, then what came of it if the finding is still there."""

    TYPE: ClassVar[str] = "incident.acted"
    incident_id: IncidentId
    action: Identifier
    number: Count
    reason: Text
    outcome: ActOutcome = ActOutcome.BEGUN


class IncidentResolved(EventData, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "incident.resolved"
    incident_id: IncidentId
    resolution: Resolution
    first_seen_ms: Count
    last_seen_ms: Count
    actions_count: Count = 0
    reason: Text = ""
