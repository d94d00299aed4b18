"""Rows of remembered items: their columns, and the item of a row.

Does not own: queries (views_memory, memory_search), writes (memory_writes).
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from palyra.core.errors import Corrupt
from palyra.core.memory.model import MemoryItem

COLUMNS = """
    items.id, items.owner, items.scope, items.scope_id, items.kind, items.content, items.content_hash, items.trust,
    items.taint, items.confidence_bps, items.source, items.metadata, items.created_at_ms, items.updated_at_ms,
    items.expires_at_ms, items.status, items.superseded_by, items.candidate_id
"""
_TEXTS = frozenset({"taint", "source", "metadata"})


def read_item(cells: Sequence[Any]) -> MemoryItem:
    """Returns the item of a row that was selected by `COLUMNS`."""
    named = dict(zip(MemoryItem.__struct_fields__, cells, strict=True))
    try:
        named |= {name: msgspec.json.decode(named[name]) for name in _TEXTS}
        return msgspec.convert(named, MemoryItem)
    except (msgspec.DecodeError, msgspec.ValidationError) as cause:
        raise Corrupt(
            "row_unreadable", f"memory item {named['id']} is damaged; forget it, or restore a backup"
        ) from cause
