"""The Search port. Owns: asking for what was said, by its words. Not: what the words mean (memory)."""

from typing import Protocol

import msgspec

from palyra.core.ids import Principal, SessionId
from palyra.core.trust import Trust


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`match` is an expression that core.search made; `principal` is whose sessions are looked through (L11)."""

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
        """The best matches first; of equal ones the newest."""
        ...


class NoSearch:
    """Where there is no journal to look through."""

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        return ()
