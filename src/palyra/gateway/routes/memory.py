"""Routes of remembered items.

Owns: adding, finding, listing, editing and forgetting one's own items over HTTP.
Does not own: what is worth keeping (core.memory), whose it is (engine.api.memory).
Nobody sees another's items here, whatever their role (L11).
"""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from palyra.core.caller_trust import trust_of_caller
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.ids import parse_memory_id
from palyra.core.memory.model import (
    BATCH_MAX,
    CONTENT_LENGTH_MAX,
    HITS_MAX,
    QUERY_LENGTH_MAX,
    SCOPE_ID_LENGTH_MAX,
    SOURCE_LENGTH_MAX,
    TTL_S_MAX,
    MemoryKind,
    MemoryScope,
    MemorySource,
    ScopeFilter,
)
from palyra.core.memory.wish import MemoryAdded, MemoryOrigin, NewMemory
from palyra.core.taint import LABEL_LENGTH_MAX, SOURCES_MAX
from palyra.core.trust import Trust
from palyra.engine.api.memory_records import MemoryEdit, MemoryHitRecord, MemoryRecord, hit_record, memory_record
from palyra.gateway.access.resources import ResourceKind
from palyra.gateway.http.responses import answer_json, answer_nothing
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.http.settings import CURSOR_MAX, MEMORY_BYTES_MAX, PAGE_DEFAULT
from palyra.gateway.routes.bodies import AfterId, PageLimit, RequestBody, cut_page, page_size
from palyra.ports.memory import MemoryPage
from palyra.ports.tokens import Role

HITS_DEFAULT = 10

MEMORY = ResourceKind("memory", parse_memory_id)

Content = Annotated[str, Meta(min_length=1, max_length=CONTENT_LENGTH_MAX)]
SourceText = Annotated[str, Meta(max_length=SOURCE_LENGTH_MAX)]
ScopeId = Annotated[str, Meta(min_length=1, max_length=SCOPE_ID_LENGTH_MAX)]
Ttl = Annotated[int, Meta(ge=1, le=TTL_S_MAX)]
Position = Annotated[int, Meta(ge=-CURSOR_MAX, le=CURSOR_MAX)]
HitsCount = Annotated[int, Meta(ge=1, le=HITS_MAX)]
Sources = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=LABEL_LENGTH_MAX)], ...], Meta(max_length=SOURCES_MAX)
]
Question = Annotated[str, Meta(min_length=1, max_length=QUERY_LENGTH_MAX)]


class MemorySourceBody(RequestBody, frozen=True, kw_only=True):
    """Where an item was said. Items of one conversation are each other's context, in the order of `position`."""

    conversation: SourceText = ""
    position: Position | None = None
    speaker: SourceText = ""
    at: SourceText = ""


class MemoryItemBody(RequestBody, frozen=True, kw_only=True):
    """`trust` and `taint` are those that an export tells. They only lower the trust that the item gets."""

    content: Content
    kind: MemoryKind = MemoryKind.FACT
    scope: MemoryScope = MemoryScope.PRINCIPAL
    scope_id: ScopeId | None = None
    source: MemorySourceBody = MemorySourceBody()
    metadata: JsonObject = msgspec.field(default_factory=dict)
    ttl_s: Ttl | None = None
    trust: Trust | None = None
    taint: Sources = ()


class MemoryBody(RequestBody, frozen=True, kw_only=True):
    """One item, or up to a thousand in `items`."""

    items: Annotated[tuple[MemoryItemBody, ...], Meta(min_length=1, max_length=BATCH_MAX)] | UnsetType = UNSET
    content: Content | UnsetType = UNSET
    kind: MemoryKind = MemoryKind.FACT
    scope: MemoryScope = MemoryScope.PRINCIPAL
    scope_id: ScopeId | None = None
    source: MemorySourceBody = MemorySourceBody()
    metadata: JsonObject = msgspec.field(default_factory=dict)
    ttl_s: Ttl | None = None
    trust: Trust | None = None
    taint: Sources = ()


class MemoryEditBody(RequestBody, frozen=True, kw_only=True):
    """What is not given stays. `ttl_s` null lets the item live without end."""

    content: Content | UnsetType = UNSET
    kind: MemoryKind | UnsetType = UNSET
    metadata: JsonObject | UnsetType = UNSET
    ttl_s: Ttl | UnsetType | None = UNSET


class MemorySearchQuery(RequestBody, frozen=True, kw_only=True):
    q: Question
    k: HitsCount = HITS_DEFAULT


class MemoryListQuery(RequestBody, frozen=True, kw_only=True):
    """`superseded` lists the history too. A `scope` other than principal needs its `scope_id`."""

    after: AfterId = ""
    limit: PageLimit = PAGE_DEFAULT
    kind: MemoryKind | None = None
    scope: MemoryScope | None = None
    scope_id: ScopeId | None = None
    superseded: bool = False


class MemoryAddedPage(msgspec.Struct, frozen=True):
    items: tuple[MemoryAdded, ...]


class MemoryHitPage(msgspec.Struct, frozen=True):
    items: tuple[MemoryHitRecord, ...]


class MemoryListPage(msgspec.Struct, frozen=True):
    items: tuple[MemoryRecord, ...]
    next_after: str | None


async def add(call: HttpCall[Empty, MemoryBody]) -> Response:
    origin = MemoryOrigin(name="api", actor=call.principal, trust=trust_of_caller(call.principal))
    added = await call.services.engine.memory.add(call.principal, _wishes(call.body), origin)
    return answer_json(MemoryAddedPage(added))


async def search(call: HttpCall[MemorySearchQuery, Unread]) -> Response:
    hits = await call.services.engine.memory.search(call.principal, call.query.q, call.query.k)
    return answer_json(MemoryHitPage(tuple(hit_record(hit) for hit in hits)))


async def list_items(call: HttpCall[MemoryListQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    page = MemoryPage(
        scopes=_scopes(query, call.principal),
        kinds=() if query.kind is None else (query.kind,),
        has_superseded=query.superseded,
        after=query.after,
        limit=size + 1,
    )
    found = await call.services.engine.memory.list(call.principal, page)
    records = [memory_record(item) for item in found]
    return answer_json(MemoryListPage(*cut_page(records, size, lambda record: str(record.id))))


async def show(call: HttpCall[Empty, Unread]) -> Response:
    service, memory_id = call.services.engine.memory, call.id_of(MEMORY)
    item = await service.get(call.viewer, memory_id)
    return answer_json(memory_record(item, await service.uses(call.viewer, memory_id)))


async def edit(call: HttpCall[Empty, MemoryEditBody]) -> Response:
    wish = MemoryEdit(**msgspec.structs.asdict(call.body))
    if not wish.given():
        raise Invalid("body_invalid", "there is nothing to change; give content, kind, metadata or ttl_s")
    edited = await call.services.engine.memory.edit(call.viewer, call.id_of(MEMORY), wish, call.principal)
    return answer_json(memory_record(edited))


async def forget(call: HttpCall[Empty, Unread]) -> Response:
    await call.services.engine.memory.forget(call.viewer, call.id_of(MEMORY), call.principal)
    return answer_nothing()


def _wishes(body: MemoryBody) -> list[NewMemory]:
    """Returns the items of a body, which has either `items` or the members of one item."""
    if not isinstance(body.items, UnsetType):
        if body != MemoryBody(items=body.items):
            raise Invalid("body_invalid", "give either items, or the members of one item")
        return [_wish(item) for item in body.items]
    if isinstance(body.content, UnsetType):
        raise Invalid("body_invalid", "the body has neither content nor items")
    members = {name: getattr(body, name) for name in MemoryItemBody.__struct_fields__}
    return [_wish(MemoryItemBody(**members))]


def _wish(item: MemoryItemBody) -> NewMemory:
    source = MemorySource(**msgspec.structs.asdict(item.source))
    return NewMemory(**{**msgspec.structs.asdict(item), "source": source})


def _scopes(query: MemoryListQuery, owner: str) -> tuple[ScopeFilter, ...]:
    if query.scope is None:
        return ()
    if query.scope is MemoryScope.PRINCIPAL:
        return (ScopeFilter(query.scope, owner),)
    if query.scope_id is None:
        raise Invalid("scope_id_missing", f"items of scope {query.scope.value} are listed with their scope_id")
    return (ScopeFilter(query.scope, query.scope_id),)


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("POST", "/api/v1/memory", "Remember one item, or up to a thousand at once",
              add, action="memory.add", answer=MemoryAddedPage, role=Role.USER, body_bytes_max=MEMORY_BYTES_MAX,
              errors=(404,)),
    HttpRoute("GET", "/api/v1/memory/search", "Find your items, the best match first",
              search, action="memory.search", answer=MemoryHitPage),
    HttpRoute("GET", "/api/v1/memory", "List your items, in the order of their creation",
              list_items, action="memory.list", answer=MemoryListPage),
    HttpRoute("GET", "/api/v1/memory/{memory_id}", "Show an item",
              show, action="memory.read", resource=MEMORY, answer=MemoryRecord),
    HttpRoute("PATCH", "/api/v1/memory/{memory_id}",
              "Change an item; the answer has a new id, and the earlier form stays as history",
              edit, action="memory.edit", resource=MEMORY, answer=MemoryRecord, role=Role.USER, errors=(409,)),
    HttpRoute("DELETE", "/api/v1/memory/{memory_id}",
              "Forget an item with its history, also where sessions were shown it",
              forget, action="memory.forget", resource=MEMORY, status=204, role=Role.USER),
)  # fmt: skip
