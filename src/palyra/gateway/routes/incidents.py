"""Routes of incidents.

Owns: listing and showing them over HTTP, acting on one and resolving one by hand.
Does not own: finding and acting (engine.healing). Every route is for operators: incidents name everyone's runs.
"""

from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from palyra.core.errors import Invalid, NotFound
from palyra.core.healing.model import IncidentStatus
from palyra.core.ids import IncidentId, parse_incident_id
from palyra.engine.api.incidents import ActedRecord, IncidentRecord
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.http.settings import PAGE_DEFAULT
from palyra.gateway.routes.bodies import REASON_LENGTH_MAX, AfterId, PageLimit, RequestBody, cut_page, page_size
from palyra.ports.tokens import Role


class IncidentQuery(RequestBody, frozen=True, kw_only=True):
    status: IncidentStatus | None = None
    after: AfterId = ""
    limit: PageLimit = PAGE_DEFAULT


class ResolveBody(RequestBody, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=REASON_LENGTH_MAX)] = ""


class IncidentPage(msgspec.Struct, frozen=True):
    items: tuple[IncidentRecord, ...]
    next_after: str | None


async def list_incidents(call: HttpCall[IncidentQuery, Unread]) -> Response:
    size = page_size(call.query.limit)
    found = await call.services.engine.incidents.list(call.query.status, call.query.after, size + 1)
    return answer_json(IncidentPage(*cut_page(found, size, attrgetter("id"))))


async def show(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(await call.services.engine.incidents.get(_incident_id(call.path)))


async def act(call: HttpCall[Empty, Empty]) -> Response:
    return answer_json(await call.services.engine.incidents.act(call.principal, _incident_id(call.path)))


async def resolve(call: HttpCall[Empty, ResolveBody]) -> Response:
    incidents, incident_id = call.services.engine.incidents, _incident_id(call.path)
    return answer_json(await incidents.resolve(call.principal, incident_id, call.body.reason))


def _incident_id(path: dict[str, str]) -> IncidentId:
    try:
        return parse_incident_id(path["incident_id"])
    except Invalid as cause:
        raise NotFound("incident_unknown", "there is no such incident") from cause


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/incidents", "List what the watchdog found stuck or degraded, the newest first",
              list_incidents, action="incidents.list", answer=IncidentPage, role=Role.OPERATOR),
    HttpRoute("GET", "/api/v1/incidents/{incident_id}", "Show one incident: evidence, what to do, and what was done",
              show, action="incidents.read", answer=IncidentRecord, role=Role.OPERATOR, errors=(404,)),
    HttpRoute("POST", "/api/v1/incidents/{incident_id}/act",
              "Do the remedy on offer now, in any mode; the act is recorded first",
              act, action="incidents.act", answer=ActedRecord, role=Role.OPERATOR, errors=(404, 409)),
    HttpRoute("POST", "/api/v1/incidents/{incident_id}/resolve",
              "Resolve an incident by hand; the same finding stays quiet for an hour",
              resolve, action="incidents.resolve", answer=IncidentRecord, role=Role.OPERATOR, errors=(404, 409)),
)  # fmt: skip
