"""Routes of sessions.

Owns: sessions, their tapes and their event streams over HTTP.
Does not own: what a session is (engine.api.sessions).
"""

from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response
from starlette.types import ASGIApp

from palyra.core.ids import SessionId, StreamId
from palyra.core.projections.rows import SessionRow
from palyra.engine.api.requests import SessionRequest
from palyra.gateway.access.resources import SESSION
from palyra.gateway.http.frames import WireEvent, wire_event
from palyra.gateway.http.request_reader import read_cursor
from palyra.gateway.http.responses import answer_json, answer_nothing
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.http.settings import CURSOR_MAX, PAGE_DEFAULT
from palyra.gateway.http.sse import EVENT_STREAM_TYPE
from palyra.gateway.routes.bodies import (
    Cursor,
    FeedQuery,
    Key,
    Label,
    Name,
    PageLimit,
    PageQuery,
    RequestBody,
    UlidText,
    cut_page,
    page_size,
)
from palyra.ports.tokens import Role


class SessionBody(RequestBody, frozen=True, kw_only=True):
    """`id` and `session_id` mean the same. A valid id that nobody has yet creates that session."""

    id: UlidText | None = None
    session_id: UlidText | None = None
    key: Key | None = None
    label: Label | None = None
    agent: Name | None = None
    reset: bool = False


class BranchBody(RequestBody, frozen=True, kw_only=True):
    at_seq: Annotated[int, Meta(ge=1, le=CURSOR_MAX)]
    label: Label | None = None


class LabelBody(RequestBody, frozen=True, kw_only=True):
    label: Label | None


class TapeQuery(RequestBody, frozen=True, kw_only=True):
    after: Cursor = 0
    limit: PageLimit = PAGE_DEFAULT


class AllFeedQuery(RequestBody, frozen=True, kw_only=True):
    after: Cursor | None = None
    everyone: bool = False


class SessionsPageQuery(PageQuery, frozen=True, kw_only=True):
    delegated: bool = False


class SessionPage(msgspec.Struct, frozen=True):
    items: tuple[SessionRow, ...]
    next_after: str | None


class TapePage(msgspec.Struct, frozen=True):
    events: tuple[WireEvent, ...]
    next_after: int | None


async def resolve(call: HttpCall[Empty, SessionBody]) -> Response:
    body = call.body
    named = body.id or body.session_id
    request = SessionRequest(
        session_id=SessionId(StreamId(named)) if named is not None else None,
        key=body.key,
        label=body.label,
        agent=body.agent,
        reset=body.reset,
    )
    return answer_json(await call.services.engine.sessions.resolve(call.principal, request))


async def list_sessions(call: HttpCall[SessionsPageQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    found = await call.services.engine.sessions.list(
        call.reader(query.everyone), query.after, size + 1, has_delegated=query.delegated
    )
    return answer_json(SessionPage(*cut_page(found, size, attrgetter("id"))))


async def show(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(await call.services.engine.sessions.get(call.viewer, call.id_of(SESSION)))


async def label(call: HttpCall[Empty, LabelBody]) -> Response:
    row = await call.services.engine.sessions.label(call.principal, call.id_of(SESSION), call.body.label)
    return answer_json(row)


async def reset(call: HttpCall[Empty, Empty]) -> Response:
    return answer_json(await call.services.engine.sessions.reset(call.principal, call.id_of(SESSION)))


async def branch(call: HttpCall[Empty, BranchBody]) -> Response:
    body = call.body
    row = await call.services.engine.sessions.branch(call.principal, call.id_of(SESSION), body.at_seq, body.label)
    return answer_json(row, 201, {"location": f"/api/v1/sessions/{row.id}"})


async def delete(call: HttpCall[Empty, Unread]) -> Response:
    await call.services.engine.sessions.delete(call.principal, call.id_of(SESSION))
    return answer_nothing()


async def tape(call: HttpCall[TapeQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    session_id = call.id_of(SESSION)
    found = await call.services.engine.sessions.tape(call.viewer, session_id, query.after, size + 1)
    events, next_after = cut_page(found, size, attrgetter("seq"))
    return answer_json(TapePage(tuple(wire_event(event) for event in events), next_after))


async def events(call: HttpCall[FeedQuery, Unread]) -> ASGIApp:
    after_seq = read_cursor(call.request, call.query.after)
    services = call.services
    with services.slots.reserved(call.caller.token_id) as slot:
        frames = await services.engine.feed.session(call.viewer, call.id_of(SESSION), after_seq)
        return services.stream(slot, frames, services.frame_bytes.by_seq)


async def all_events(call: HttpCall[AllFeedQuery, Unread]) -> ASGIApp:
    after_position = read_cursor(call.request, call.query.after)
    services = call.services
    with services.slots.reserved(call.caller.token_id) as slot:
        frames = await services.engine.feed.all(call.reader(call.query.everyone), after_position)
        return services.stream(slot, frames, services.frame_bytes.by_position)


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("POST", "/api/v1/sessions", "Find a session by id or key, or create one",
              resolve, action="sessions.resolve", answer=SessionRow, role=Role.USER, errors=(404, 409)),
    HttpRoute("GET", "/api/v1/sessions", "List sessions in the order of creation",
              list_sessions, action="sessions.list", others=Role.OPERATOR, answer=SessionPage),
    HttpRoute("GET", "/api/v1/sessions/{session_id}", "Show a session",
              show, action="sessions.read", resource=SESSION, others=Role.OPERATOR, answer=SessionRow),
    HttpRoute("PATCH", "/api/v1/sessions/{session_id}", "Give a session a label, or take it away with null",
              label, action="sessions.label", resource=SESSION, answer=SessionRow, role=Role.USER, errors=(409,)),
    HttpRoute("DELETE", "/api/v1/sessions/{session_id}", "Erase a session's content; its chain stays",
              delete, action="sessions.delete", resource=SESSION, status=204, role=Role.USER, errors=(409,)),
    HttpRoute("POST", "/api/v1/sessions/{session_id}/reset", "Begin anew: history, session grants and taint end here",
              reset, action="sessions.reset", resource=SESSION, answer=SessionRow, role=Role.USER, errors=(409,)),
    HttpRoute("POST", "/api/v1/sessions/{session_id}/branch",
              "Make a new session that continues from an event of this one",
              branch, action="sessions.branch", resource=SESSION, answer=SessionRow, status=201, role=Role.USER,
              errors=(409,)),
    HttpRoute("GET", "/api/v1/sessions/{session_id}/tape", "Read a session's events after a seq",
              tape, action="sessions.read", resource=SESSION, others=Role.OPERATOR, answer=TapePage),
    HttpRoute("GET", "/api/v1/sessions/{session_id}/events", "Follow a session's events; id is the seq",
              events, action="sessions.read", resource=SESSION, others=Role.OPERATOR, answer=WireEvent,
              media_types=(EVENT_STREAM_TYPE,)),
    HttpRoute("GET", "/api/v1/events", "Follow the events of all tapes you may read; id is the position",
              all_events, action="events.follow", others=Role.OPERATOR, answer=WireEvent,
              media_types=(EVENT_STREAM_TYPE,)),
)  # fmt: skip
