"""Remembered items as people change and see them. Does not own: storing or finding them (engine.api.memory)."""

import msgspec
from msgspec import UNSET, UnsetType

from palyra.core.events.base import JsonObject
from palyra.core.ids import MemoryId, Principal
from palyra.core.memory.model import HitReason, MemoryHit, MemoryItem, MemoryKind, MemoryScope, MemorySource
from palyra.core.trust import Trust


class MemoryEdit(msgspec.Struct, frozen=True, kw_only=True):
    """What is not given stays."""

    content: str | UnsetType = UNSET
    kind: MemoryKind | UnsetType = UNSET
    metadata: JsonObject | UnsetType = UNSET
    ttl_s: int | UnsetType | None = UNSET

    def given(self) -> dict[str, object]:
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}


class MemoryRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: MemoryId
    owner: Principal
    content: str
    kind: MemoryKind
    scope: MemoryScope
    scope_id: str
    trust: Trust
    taint: tuple[str, ...]
    confidence_bps: int
    source: MemorySource
    metadata: JsonObject
    status: str
    superseded_by: MemoryId | None
    uses_count: int | None
    created_at_ms: int
    updated_at_ms: int
    expires_at_ms: int | None


class MemoryHitRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: MemoryId
    content: str
    score: float
    why: HitReason
    metadata: JsonObject
    kind: MemoryKind
    scope: MemoryScope
    scope_id: str
    trust: Trust
    source: MemorySource
    created_at_ms: int


def memory_record(item: MemoryItem, uses_count: int | None = None) -> MemoryRecord:
    shown = {
        name: getattr(item, name) for name in MemoryRecord.__struct_fields__ if name not in ("status", "uses_count")
    }
    return MemoryRecord(**shown, status=item.status.value, uses_count=uses_count)


def hit_record(hit: MemoryHit) -> MemoryHitRecord:
    item = hit.item
    return MemoryHitRecord(
        id=item.id,
        content=item.content,
        score=round(hit.score, 6),
        why=hit.why,
        metadata=item.metadata,
        kind=item.kind,
        scope=item.scope,
        scope_id=item.scope_id,
        trust=item.trust,
        source=item.source,
        created_at_ms=item.created_at_ms,
    )
