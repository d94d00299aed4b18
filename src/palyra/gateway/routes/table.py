"""The route table. Owns: which routes there are. Not: what they do.

A new group of routes is one module with `ROUTES` and one name here; the dispatcher and the OpenAPI document follow.
"""

from functools import cache

from starlette.responses import Response

from palyra import __version__
from palyra.gateway.http.openapi import JsonDocument, describe
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import AnyHttpRoute, Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.routes import (
    approvals,
    artifacts,
    login,
    models,
    policy,
    processes,
    runs,
    sessions,
    skills,
    status,
    taint,
    tokens,
    usage,
)


async def openapi(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(document())


@cache
def document() -> JsonDocument:
    return describe(ROUTES, __version__)


ROUTES: tuple[AnyHttpRoute, ...] = (
    *status.ROUTES,
    *sessions.ROUTES,
    *taint.ROUTES,
    *runs.ROUTES,
    *processes.ROUTES,
    *approvals.ROUTES,
    *artifacts.ROUTES,
    *models.ROUTES,
    *skills.ROUTES,
    *usage.ROUTES,
    *policy.ROUTES,
    *tokens.ROUTES,
    *login.ROUTES,
    HttpRoute(
        method="GET",
        path="/api/v1/openapi.json",
        summary="This description",
        endpoint=openapi,
        action="api.describe",
        query=Empty,
        body=Unread,
    ),
)
