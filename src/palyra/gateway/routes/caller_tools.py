"""Routes of calls that the caller of a run executes itself.

Owns: showing the calls whose results are owed, and taking those results over HTTP.
Does not own: what they do to a run (engine).
"""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from palyra.core.ids import CallId
from palyra.engine.api.caller_tools import OwedCall
from palyra.engine.api.requests import TEXT_LENGTH_MAX, RunRecord
from palyra.engine.session.commands import CallerResult
from palyra.gateway.access.resources import RUN
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.routes.bodies import Name, RequestBody
from palyra.ports.tokens import Role

RESULTS_MAX = 64  # A turn has no more calls than that.


class ResultBody(RequestBody, frozen=True, kw_only=True):
    call_id: Name
    output: Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
    is_error: bool = False


class ResultsBody(RequestBody, frozen=True, kw_only=True):
    results: Annotated[tuple[ResultBody, ...], Meta(min_length=1, max_length=RESULTS_MAX)]


class OwedCalls(msgspec.Struct, frozen=True):
    items: tuple[OwedCall, ...]


async def owed(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(OwedCalls(await call.services.engine.caller_tools.owed(call.principal, call.id_of(RUN))))


async def give(call: HttpCall[Empty, ResultsBody]) -> Response:
    call.services.require_open()
    run_id = call.id_of(RUN)
    results = tuple(
        CallerResult(call_id=CallId(each.call_id), output=each.output, is_error=each.is_error)
        for each in call.body.results
    )
    await call.services.engine.caller_tools.give(call.principal, run_id, results)
    return answer_json(await call.services.engine.runs.get(call.principal, run_id), 202)


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/runs/{run_id}/calls", "List the calls that the caller of a run is to execute",
              owed, action="runs.input", resource=RUN, answer=OwedCalls, role=Role.USER),
    HttpRoute("POST", "/api/v1/runs/{run_id}/results", "Give a run the results of calls that its caller executed",
              give, action="runs.input", resource=RUN, answer=RunRecord, status=202, role=Role.USER, errors=(409,)),
)  # fmt: skip
