"""Routes of background jobs.

Owns: listing, cancelling and retrying them over HTTP. Does not own: whose they are (engine.api.jobs).
"""

from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from palyra.core.events.base import JsonObject
from palyra.core.ids import parse_job_id
from palyra.core.jobs.model import Job, JobState
from palyra.gateway.access.resources import ResourceKind
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.http.settings import PAGE_DEFAULT
from palyra.gateway.routes.bodies import PageLimit, RequestBody, cut_page, page_size
from palyra.ports.jobs import JobFilter
from palyra.ports.tokens import Role

KIND_LENGTH_MAX = 64
ID_LENGTH_MAX = 64

JOB = ResourceKind("job", parse_job_id, lambda owners, principal, job_id: owners.of_job(principal, job_id))


class JobsQuery(RequestBody, frozen=True, kw_only=True):
    kind: Annotated[str, Meta(max_length=KIND_LENGTH_MAX)] | None = None
    state: JobState | None = None
    everyone: bool = False
    after: Annotated[str, Meta(max_length=ID_LENGTH_MAX)] = ""
    limit: PageLimit = PAGE_DEFAULT


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`attempts` counts those that began and were not lost; `error` tells why the last one failed."""

    id: str
    kind: str
    principal: str
    state: JobState
    session_id: str | None
    payload: JsonObject
    priority: int
    attempts: int
    losses: int
    progress: str
    progress_at_ms: int
    error: str | None
    not_before_ms: int
    expires_at_ms: int | None
    created_at_ms: int
    updated_at_ms: int


class JobPage(msgspec.Struct, frozen=True):
    items: tuple[JobRecord, ...]
    next_after: str | None


async def list_jobs(call: HttpCall[JobsQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    wanted = JobFilter(kind=query.kind, state=query.state, after=query.after, limit=size + 1)
    found = await call.services.engine.jobs.list(call.reader(query.everyone), wanted)
    page, next_after = cut_page(found, size, attrgetter("id"))
    return answer_json(JobPage(tuple(map(_record, page)), next_after))


async def read(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(_record(await call.services.engine.jobs.get(call.viewer, call.id_of(JOB))))


async def cancel(call: HttpCall[Empty, Empty]) -> Response:
    return answer_json(_record(await call.services.engine.jobs.cancel(call.viewer, call.id_of(JOB))))


async def retry(call: HttpCall[Empty, Empty]) -> Response:
    return answer_json(_record(await call.services.engine.jobs.retry(call.viewer, call.id_of(JOB))))


def _record(job: Job) -> JobRecord:
    return JobRecord(**{name: getattr(job, name) for name in JobRecord.__struct_fields__})


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/jobs", "List background jobs, the newest first",
              list_jobs, action="jobs.list", others=Role.OPERATOR, answer=JobPage),
    HttpRoute("GET", "/api/v1/jobs/{job_id}", "A background job",
              read, action="jobs.read", resource=JOB, others=Role.OPERATOR, answer=JobRecord),
    HttpRoute("POST", "/api/v1/jobs/{job_id}/cancel", "Cancel a background job, whether it waits or runs",
              cancel, action="jobs.cancel", resource=JOB, others=Role.OPERATOR, answer=JobRecord, role=Role.USER,
              errors=(409,)),
    HttpRoute("POST", "/api/v1/jobs/{job_id}/retry",
              "Try a dead, expired or cancelled job again, or begin a waiting one now",
              retry, action="jobs.retry", resource=JOB, others=Role.OPERATOR, answer=JobRecord, role=Role.USER,
              errors=(409,)),
)  # fmt: skip
