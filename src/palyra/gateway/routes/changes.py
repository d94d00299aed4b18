"""Routes of what runs changed in the workspace.

Owns: showing and undoing it over HTTP. Does not own: what can be undone (engine.api.run_changes).
"""

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from palyra.engine.api.run_changes import RunChanges
from palyra.gateway.access.resources import RUN
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.routes.bodies import RequestBody
from palyra.ports.tokens import Role

PATH_LENGTH_MAX = 4096
ChangedPath = Annotated[str, Meta(min_length=1, max_length=PATH_LENGTH_MAX)]


class ChangesQuery(RequestBody, frozen=True, kw_only=True):
    path: ChangedPath | None = None


class UndoBody(RequestBody, frozen=True, kw_only=True):
    path: ChangedPath | None = None


async def show(call: HttpCall[ChangesQuery, Unread]) -> Response:
    changes = call.services.engine.runs.changes
    return answer_json(await changes.show(call.viewer, call.id_of(RUN), call.query.path))


async def undo(call: HttpCall[Empty, UndoBody]) -> Response:
    changes = call.services.engine.runs.changes
    return answer_json(await changes.undo(call.viewer, call.id_of(RUN), call.body.path, by=call.principal))


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/runs/{run_id}/changes", "Show what a run changed in the workspace, as one difference",
              show, action="runs.read", resource=RUN, others=Role.OPERATOR, answer=RunChanges),
    HttpRoute("POST", "/api/v1/runs/{run_id}/undo", "Put files back as they were before a run",
              undo, action="runs.undo", resource=RUN, answer=RunChanges, role=Role.USER, errors=(409,)),
)  # fmt: skip
