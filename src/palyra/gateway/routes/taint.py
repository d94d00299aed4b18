"""Routes of taint.

Owns: showing the sources of a session's taint, and trusting one of them, over HTTP.
Does not own: what taints a session (core.taint).
"""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from palyra.core.taint import LABEL_LENGTH_MAX
from palyra.engine.api.requests import TaintRecord
from palyra.gateway.access.resources import SESSION
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.routes.bodies import REASON_LENGTH_MAX, RequestBody
from palyra.ports.tokens import Role

Source = Annotated[str, Meta(min_length=1, max_length=LABEL_LENGTH_MAX)]


class TrustBody(RequestBody, frozen=True, kw_only=True):
    source: Source
    reason: Annotated[str, Meta(max_length=REASON_LENGTH_MAX)] = ""


class SourceQuery(RequestBody, frozen=True, kw_only=True):
    source: Source


class TaintPage(msgspec.Struct, frozen=True):
    items: tuple[TaintRecord, ...]
    next_after: None = None


async def show(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(TaintPage(await call.services.engine.taint.show(call.viewer, call.id_of(SESSION))))


async def trust(call: HttpCall[Empty, TrustBody]) -> Response:
    body = call.body
    found = await call.services.engine.taint.trust(call.principal, call.id_of(SESSION), body.source, body.reason)
    return answer_json(TaintPage(found))


async def distrust(call: HttpCall[SourceQuery, Unread]) -> Response:
    found = await call.services.engine.taint.distrust(call.principal, call.id_of(SESSION), call.query.source, "")
    return answer_json(TaintPage(found))


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/sessions/{session_id}/taint", "Show where a session's taint came from",
              show, action="sessions.read", resource=SESSION, others=Role.OPERATOR, answer=TaintPage),
    HttpRoute("POST", "/api/v1/sessions/{session_id}/trust",
              "Vouch for a source of the session's taint, until its reset",
              trust, action="sessions.trust", resource=SESSION, answer=TaintPage, role=Role.USER, errors=(409,)),
    HttpRoute("DELETE", "/api/v1/sessions/{session_id}/trust", "No longer vouch for a source",
              distrust, action="sessions.trust", resource=SESSION, answer=TaintPage, role=Role.USER, errors=(409,)),
)  # fmt: skip
