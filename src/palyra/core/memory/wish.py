"""What somebody wants remembered, and what becomes of it.

Does not own: the rules (judge), storing (engine.api.memory).
"""

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.ids import MemoryId, Principal
from palyra.core.memory.judge import MemoryOutcome
from palyra.core.memory.model import MemoryKind, MemoryScope, MemorySource
from palyra.core.trust import Trust


class NewMemory(msgspec.Struct, frozen=True, kw_only=True):
    """An item that somebody wants kept. `scope_id` names the session, agent or channel of its scope.

    `trust` and `taint` say where its words are from, as an export tells. They only lower the trust of the item (L8).
    """

    content: str
    kind: MemoryKind = MemoryKind.FACT
    scope: MemoryScope = MemoryScope.PRINCIPAL
    scope_id: str | None = None
    source: MemorySource = MemorySource()
    metadata: JsonObject = {}
    ttl_s: int | None = None
    trust: Trust | None = None
    taint: tuple[str, ...] = ()


class MemoryOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants an item kept, and how far its content is trusted (L8)."""

    name: str
    actor: Principal
    trust: Trust = Trust.OPERATOR
    taint: tuple[str, ...] = ()


class MemoryAdded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of an item. `id` is the new item's, or that of the item which says the same; null if neither is."""

    id: MemoryId | None
    status: MemoryOutcome
    reason: str = ""
