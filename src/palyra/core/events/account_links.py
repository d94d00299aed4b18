"""Events of pairing, on a node's system tape. The question itself is an approval of kind `pairing` there.

Does not own: accounts and names of people. They are in the rows of links and requests, where they can be erased.
"""

from typing import ClassVar

from palyra.core.events.base import Count, EventData, Identifier
from palyra.core.ids import ApprovalId, Principal


class PairingIssued(EventData, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "pairing.issued"
    code_id: Identifier
    expires_at_ms: Count


class PairingLocked(EventData, frozen=True, kw_only=True):
    """Too many wrong codes: a sender, or with `is_channel` every stranger of the channel, is locked out for a time."""

    TYPE: ClassVar[str] = "pairing.locked"
    channel: Identifier
    until_ms: Count
    is_channel: bool = False


class PairingLinked(EventData, frozen=True, kw_only=True):
    """A person linked an account of a channel to a principal."""

    TYPE: ClassVar[str] = "pairing.linked"
    link_id: Identifier
    approval_id: ApprovalId
    channel: Identifier
    principal: Principal
    role: Identifier
    expires_at_ms: Count


class PairingRevoked(EventData, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "pairing.revoked"
    link_id: Identifier
    principal: Principal


class PairingCarriedOver(EventData, frozen=True, kw_only=True):
    """Accounts of a channel that were stored without their workspace are of this one: so many links and questions."""

    TYPE: ClassVar[str] = "pairing.carried_over"
    channel: Identifier
    workspace: Identifier
    links_count: Count = 0
    requests_count: Count = 0
