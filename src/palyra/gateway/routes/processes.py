"""Routes of background processes. Owns: showing and stopping those of a run over HTTP. Not: whose they are (engine)."""

import msgspec
from starlette.responses import Response

from palyra.gateway.http.request_reader import run_in
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import AnyHttpRoute, Empty, HttpCall, HttpRoute, Unread
from palyra.ports.processes import ProcessRecord
from palyra.ports.tokens import Role


class ProcessPage(msgspec.Struct, frozen=True):
    items: tuple[ProcessRecord, ...]
    next_after: str | None


async def list_processes(call: HttpCall[Empty, Unread]) -> Response:
    found = await call.desk.engine.runs.processes.list(call.eyes, run_in(call.path))
    return answer_json(ProcessPage(found, None))


async def stop(call: HttpCall[Empty, Empty]) -> Response:
    stopped = await call.desk.engine.runs.processes.stop(call.eyes, run_in(call.path), call.path["process_id"])
    return answer_json(stopped)


ROUTES: tuple[AnyHttpRoute, ...] = (
    HttpRoute(
        method="GET",
        path="/api/v1/runs/{run_id}/processes",
        summary="List the background processes of a run",
        endpoint=list_processes,
        action="processes.list",
        others=Role.OPERATOR,
        query=Empty,
        body=Unread,
        answer=ProcessPage,
    ),
    HttpRoute(
        method="POST",
        path="/api/v1/runs/{run_id}/processes/{process_id}/stop",
        summary="Stop a background process and everything it started",
        endpoint=stop,
        action="processes.stop",
        others=Role.OPERATOR,
        query=Empty,
        body=Empty,
        answer=ProcessRecord,
        role=Role.USER,
    ),
)
