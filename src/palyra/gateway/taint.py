"""Routes of taint. Owns: showing a session's sources and a person's word for one over HTTP. Not: what taints (core.taint)."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from palyra.core.taint import LABEL_LENGTH_MAX
from palyra.engine.requests import TaintRecord
from palyra.gateway.answers import answer_json
from palyra.gateway.reading import session_in
from palyra.gateway.routes import AnyRoute, Call, Empty, Route, Unread
from palyra.gateway.shapes import REASON_LENGTH_MAX, Shape
from palyra.ports.tokens import Role

Source = Annotated[str, Meta(min_length=1, max_length=LABEL_LENGTH_MAX)]


class TrustBody(Shape, frozen=True, kw_only=True):
    source: Source
    reason: Annotated[str, Meta(max_length=REASON_LENGTH_MAX)] = ""


class SourceQuery(Shape, frozen=True, kw_only=True):
    source: Source


class TaintPage(msgspec.Struct, frozen=True):
    items: tuple[TaintRecord, ...]
    next_after: None = None


async def show(call: Call[Empty, Unread]) -> Response:
    return answer_json(TaintPage(await call.desk.engine.taint.show(call.eyes, session_in(call.path))))


async def trust(call: Call[Empty, TrustBody]) -> Response:
    body = call.body
    found = await call.desk.engine.taint.trust(call.principal, session_in(call.path), body.source, body.reason)
    return answer_json(TaintPage(found))


async def distrust(call: Call[SourceQuery, Unread]) -> Response:
    found = await call.desk.engine.taint.distrust(call.principal, session_in(call.path), call.query.source, "")
    return answer_json(TaintPage(found))


ROUTES: tuple[AnyRoute, ...] = (
    Route(
        method="GET",
        path="/api/v1/sessions/{session_id}/taint",
        summary="Show where a session's taint came from",
        endpoint=show,
        action="sessions.read",
        others=Role.OPERATOR,
        query=Empty,
        body=Unread,
        answer=TaintPage,
    ),
    Route(
        method="POST",
        path="/api/v1/sessions/{session_id}/trust",
        summary="Vouch for a source of the session's taint, until its reset",
        endpoint=trust,
        action="sessions.trust",
        query=Empty,
        body=TrustBody,
        answer=TaintPage,
        role=Role.USER,
        errors=(409,),
    ),
    Route(
        method="DELETE",
        path="/api/v1/sessions/{session_id}/trust",
        summary="No longer vouch for a source",
        endpoint=distrust,
        action="sessions.trust",
        query=SourceQuery,
        body=Unread,
        answer=TaintPage,
        role=Role.USER,
        errors=(409,),
    ),
)
