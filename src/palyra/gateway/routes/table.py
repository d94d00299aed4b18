"""The route table: every route there is.

Owns: the list, and the route of the OpenAPI document.
Does not own: what the routes do.
A new noun is one module with `ROUTES`, and its name here. The dispatcher, the OpenAPI document and the access matrix
follow. An action that the Cedar schema does not name is refused for everyone.
"""

from functools import cache

from starlette.responses import Response

from palyra import __version__
from palyra.gateway.http.openapi import JsonDocument, describe
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.mcp import route as mcp
from palyra.gateway.openai import chat as openai_chat
from palyra.gateway.openai import embeddings as openai_embeddings
from palyra.gateway.openai import models as openai_models
from palyra.gateway.openai import responses as openai_responses
from palyra.gateway.routes import (
    approvals,
    artifacts,
    caller_tools,
    changes,
    channels,
    compaction,
    context,
    incidents,
    jobs,
    learning,
    login,
    marks,
    memory,
    models,
    policy,
    processes,
    routines,
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


ROUTES: tuple[HttpRoute, ...] = (
    *status.ROUTES,
    *sessions.ROUTES,
    *marks.ROUTES,
    *taint.ROUTES,
    *compaction.ROUTES,
    *runs.ROUTES,
    *caller_tools.ROUTES,
    *processes.ROUTES,
    *changes.ROUTES,
    *routines.ROUTES,
    *memory.ROUTES,
    *channels.ROUTES,
    *approvals.ROUTES,
    *jobs.ROUTES,
    *learning.ROUTES,
    *artifacts.ROUTES,
    *models.ROUTES,
    *skills.ROUTES,
    *usage.ROUTES,
    *incidents.ROUTES,
    *policy.ROUTES,
    *context.ROUTES,
    *tokens.ROUTES,
    *login.ROUTES,
    *openai_models.ROUTES,
    *openai_chat.ROUTES,
    *openai_responses.ROUTES,
    *openai_embeddings.ROUTES,
    *mcp.ROUTES,
    HttpRoute("GET", "/api/v1/openapi.json", "This description", openapi, action="api.describe"),
)
