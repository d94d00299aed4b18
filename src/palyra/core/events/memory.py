"""Events of remembered items, on a node's system tape.

Does not own: what an item says. Its content is in its row alone, where it can be forgotten.
"""

from typing import ClassVar

from palyra.core.events.base import EventData, Identifier
from palyra.core.ids import MemoryId, Principal


class MemoryStored(EventData, frozen=True, kw_only=True):
    """`origin` tells who wanted them kept: `api`, `tool`, `learning`."""

    TYPE: ClassVar[str] = "memory.stored"
    owner: Principal
    memory_ids: tuple[MemoryId, ...]
    origin: Identifier


class MemorySuperseded(EventData, frozen=True, kw_only=True):
    """An item took the place of an earlier one, which stays as its history. `reason` is `edit` or `contradiction`."""

    TYPE: ClassVar[str] = "memory.superseded"
    owner: Principal
    memory_id: MemoryId
    superseded_by: MemoryId
    reason: Identifier


class MemoryForgotten(EventData, frozen=True, kw_only=True):
    """Items were removed for good, together with their history. `reason` is `asked`, `expired` or `undone`."""

    TYPE: ClassVar[str] = "memory.forgotten"
    owner: Principal
    memory_ids: tuple[MemoryId, ...]
    reason: Identifier
