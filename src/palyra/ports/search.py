"""The Search port: finds what was said, by its words. Does not own: what the words mean (memory)."""

from typing import Protocol

import msgspec

from palyra.core.ids import Principal, SessionId
from palyra.core.trust import Trust


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`match` is an expression that core.search made; `principal` is the owner of the searched sessions (L11)."""

    match: str
    principal: Principal
    limit: int


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """One message. `excerpt` is its text around the words; `type` and `actor` say who said it."""

    session_id: SessionId
    label: str | None
    seq: int
    type: str
    actor: Principal
    at_ms: int
    trust: Trust
    excerpt: str


class MessageSearch(Protocol):
    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """Returns the best matches first, and among equal ones the newest first."""
        ...


class NoSearch:
    """Used where there is no journal to search."""

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        return ()
