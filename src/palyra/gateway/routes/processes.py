"""Routes of background processes.

Owns: listing and stopping the processes of a run over HTTP.
Does not own: whose they are (engine.api.processes).
"""

import msgspec
from starlette.responses import Response

from palyra.gateway.access.resources import RUN
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.ports.processes import ProcessRecord
from palyra.ports.tokens import Role


class ProcessPage(msgspec.Struct, frozen=True):
    items: tuple[ProcessRecord, ...]
    next_after: str | None


async def list_processes(call: HttpCall[Empty, Unread]) -> Response:
    found = await call.services.engine.runs.processes.list(call.viewer, call.id_of(RUN))
    return answer_json(ProcessPage(found, None))


async def stop(call: HttpCall[Empty, Empty]) -> Response:
    stopped = await call.services.engine.runs.processes.stop(call.viewer, call.id_of(RUN), call.path["process_id"])
    return answer_json(stopped)


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/runs/{run_id}/processes", "List the background processes of a run",
              list_processes, action="processes.list", resource=RUN, others=Role.OPERATOR, answer=ProcessPage),
    HttpRoute("POST", "/api/v1/runs/{run_id}/processes/{process_id}/stop",
              "Stop a background process and everything it started",
              stop, action="processes.stop", resource=RUN, others=Role.OPERATOR, answer=ProcessRecord, role=Role.USER),
)  # fmt: skip
