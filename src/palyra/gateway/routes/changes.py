"""Routes of what runs changed in the workspace.

Owns: showing, keeping and undoing it over HTTP. Does not own: what can be
undone (engine.api.run_changes) or kept (engine.api.kept_changes).
"""

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from palyra.engine.api.kept_changes import KeptChanges
from palyra.engine.api.run_changes import RunChanges
from palyra.gateway.access.resources import RUN
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.routes.bodies import RequestBody
from palyra.ports.tokens import Role

PATH_LENGTH_MAX = 4096
PATHS_MAX = 256
ChangedPath = Annotated[str, Meta(min_length=1, max_length=PATH_LENGTH_MAX)]


class ChangesQuery(RequestBody, frozen=True, kw_only=True):
    path: ChangedPath | None = None


class KeepBody(RequestBody, frozen=True, kw_only=True):
    paths: Annotated[tuple[ChangedPath, ...], Meta(max_length=PATHS_MAX)] = ()
    digest: Annotated[str, Meta(min_length=64, max_length=64)] | None = None


class UndoBody(RequestBody, frozen=True, kw_only=True):
    path: ChangedPath | None = None


async def show(call: HttpCall[ChangesQuery, Unread]) -> Response:
    changes = call.services.engine.runs.changes
    return answer_json(await changes.show(call.viewer, call.id_of(RUN), call.query.path))


async def show_kept(call: HttpCall[ChangesQuery, Unread]) -> Response:
    paths = () if call.query.path is None else (call.query.path,)
    return answer_json(await call.services.engine.runs.kept.show(call.viewer, call.id_of(RUN), paths))


async def keep(call: HttpCall[Empty, KeepBody]) -> Response:
    kept = call.services.engine.runs.kept
    wish = call.body
    return answer_json(await kept.keep(call.viewer, call.id_of(RUN), wish.paths, digest=wish.digest, by=call.principal))


async def undo(call: HttpCall[Empty, UndoBody]) -> Response:
    changes = call.services.engine.runs.changes
    return answer_json(await changes.undo(call.viewer, call.id_of(RUN), call.body.path, by=call.principal))


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/runs/{run_id}/changes", "Show what a run changed in the workspace, as one difference",
              show, action="runs.read", resource=RUN, others=Role.OPERATOR, answer=RunChanges),
    HttpRoute("POST", "/api/v1/runs/{run_id}/undo", "Put files back as they were before a run",
              undo, action="runs.undo", resource=RUN, answer=RunChanges, role=Role.USER, errors=(409,)),
    HttpRoute("GET", "/api/v1/runs/{run_id}/kept", "Show what the layer of the run's session would change in the workspace",
              show_kept, action="runs.read", resource=RUN, others=Role.OPERATOR, answer=KeptChanges),
    HttpRoute("POST", "/api/v1/runs/{run_id}/keep", "Apply what the layer of the run's session holds to the workspace",
              keep, action="runs.keep", resource=RUN, answer=KeptChanges, role=Role.USER, errors=(409,)),
)  # fmt: skip
