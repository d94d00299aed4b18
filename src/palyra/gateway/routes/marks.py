"""Routes of checkpoints and pins.

Owns: making, listing and restoring checkpoints, and adding, listing and removing pins, over HTTP.
Does not own: what they are (engine.api.marks).
"""

from operator import itemgetter
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from palyra.core.projections.rows import SessionRow
from palyra.engine.api.requests import TEXT_LENGTH_MAX, Checkpoint, PinRecord
from palyra.gateway.access.resources import SESSION
from palyra.gateway.http.responses import answer_json, answer_nothing
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.http.settings import CURSOR_MAX, PAGE_DEFAULT
from palyra.gateway.routes.bodies import Cursor, Label, MarkText, PageLimit, RequestBody, cut_page, page_size
from palyra.ports.tokens import Role

Seq = Annotated[int, Meta(ge=1, le=CURSOR_MAX)]


class CheckpointBody(RequestBody, frozen=True, kw_only=True):
    label: Label | None = None
    at_seq: Seq | None = None


class RestoreBody(RequestBody, frozen=True, kw_only=True):
    checkpoint_id: MarkText
    label: Label | None = None


class PinBody(RequestBody, frozen=True, kw_only=True):
    """Without `text`, the text of the event `source_seq` is pinned."""

    text: Annotated[str, Meta(min_length=1, max_length=TEXT_LENGTH_MAX)] | None = None
    source_seq: Seq | None = None


class CheckpointsQuery(RequestBody, frozen=True, kw_only=True):
    after: Cursor = 0
    limit: PageLimit = PAGE_DEFAULT


class CheckpointPage(msgspec.Struct, frozen=True):
    items: tuple[Checkpoint, ...]
    next_after: int | None


class PinPage(msgspec.Struct, frozen=True):
    items: tuple[PinRecord, ...]
    next_after: None = None


async def checkpoint(call: HttpCall[Empty, CheckpointBody]) -> Response:
    body = call.body
    made = await call.services.engine.marks.checkpoint(call.principal, call.id_of(SESSION), body.at_seq, body.label)
    return answer_json(made, 201)


async def list_checkpoints(call: HttpCall[CheckpointsQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    found = await call.services.engine.marks.checkpoints(call.viewer, call.id_of(SESSION), query.after, size + 1)
    page, next_after = cut_page(found, size, itemgetter(0))
    return answer_json(CheckpointPage(tuple(item for _, item in page), next_after))


async def restore(call: HttpCall[Empty, RestoreBody]) -> Response:
    body, session_id = call.body, call.id_of(SESSION)
    row = await call.services.engine.marks.restore(call.principal, session_id, body.checkpoint_id, body.label)
    return answer_json(row, 201, {"location": f"/api/v1/sessions/{row.id}"})


async def pin(call: HttpCall[Empty, PinBody]) -> Response:
    body = call.body
    made = await call.services.engine.marks.pin(call.principal, call.id_of(SESSION), body.text, body.source_seq)
    return answer_json(made, 201)


async def list_pins(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(PinPage(await call.services.engine.marks.pins(call.viewer, call.id_of(SESSION))))


async def unpin(call: HttpCall[Empty, Unread]) -> Response:
    await call.services.engine.marks.unpin(call.principal, call.id_of(SESSION), call.path["pin_id"])
    return answer_nothing()


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("POST", "/api/v1/sessions/{session_id}/checkpoints",
              "Name the state of a session at an event, so that it can be restored",
              checkpoint, action="sessions.checkpoint", resource=SESSION, answer=Checkpoint, status=201, role=Role.USER,
              errors=(409,)),
    HttpRoute("GET", "/api/v1/sessions/{session_id}/checkpoints", "List a session's checkpoints, the oldest first",
              list_checkpoints, action="sessions.read", resource=SESSION, others=Role.OPERATOR, answer=CheckpointPage),
    HttpRoute("POST", "/api/v1/sessions/{session_id}/restore",
              "Make a new session that continues from a checkpoint of this one",
              restore, action="sessions.restore", resource=SESSION, answer=SessionRow, status=201, role=Role.USER,
              errors=(409,)),
    HttpRoute("POST", "/api/v1/sessions/{session_id}/pins", "Keep words in the context of a session",
              pin, action="sessions.pin", resource=SESSION, answer=PinRecord, status=201, role=Role.USER,
              errors=(409,)),
    HttpRoute("GET", "/api/v1/sessions/{session_id}/pins", "List a session's pins, the oldest first",
              list_pins, action="sessions.read", resource=SESSION, others=Role.OPERATOR, answer=PinPage),
    HttpRoute("DELETE", "/api/v1/sessions/{session_id}/pins/{pin_id}", "Remove a pin",
              unpin, action="sessions.pin", resource=SESSION, status=204, role=Role.USER, errors=(409,)),
)  # fmt: skip
