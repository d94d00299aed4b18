"""Routes of learning.

Owns: listing, showing and deciding candidates over HTTP, and the report.
Does not own: what may be done to a candidate (core.learning.states), whose it is (engine.api.candidates).
A procedure becomes a skill of the home, which every agent is given. So accepting one needs the role that changes skills.
"""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from palyra.core.ids import parse_candidate_id
from palyra.core.learning.lift import LearningReport
from palyra.core.learning.model import CONTENT_CHARS_MAX, REASON_CHARS_MAX, CandidateKind, CandidateStatus
from palyra.core.learning.states import CandidateAction
from palyra.engine.api.candidate_records import CandidateRecord, candidate_record
from palyra.engine.api.candidates import CandidateDecision
from palyra.gateway.access.resources import ResourceKind
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.http.settings import PAGE_DEFAULT
from palyra.gateway.routes.bodies import AfterId, PageLimit, RequestBody, cut_page, page_size
from palyra.ports.learning import CandidateFilter
from palyra.ports.tokens import Role

CHANGES_SKILLS = "skills.change"
READERS_MAX = 1_000

CANDIDATE = ResourceKind(
    "candidate",
    parse_candidate_id,
    lambda owners, principal, candidate_id: owners.of_candidate(principal, candidate_id),
)

Content = Annotated[str, Meta(min_length=1, max_length=CONTENT_CHARS_MAX)]
Reason = Annotated[str, Meta(max_length=REASON_CHARS_MAX)]


class CandidatesQuery(RequestBody, frozen=True, kw_only=True):
    """Without a status, suppressed candidates are left out."""

    status: CandidateStatus | None = None
    kind: CandidateKind | None = None
    everyone: bool = False
    after: AfterId = ""
    limit: PageLimit = PAGE_DEFAULT


class DecisionBody(RequestBody, frozen=True, kw_only=True):
    """`action` is accept, edit, reject, promote, undo or share. `content` belongs to an edit, `readers` to sharing."""

    action: CandidateAction
    content: Content | None = None
    reason: Reason = ""
    readers: Annotated[tuple[str, ...], Meta(max_length=READERS_MAX)] = ()


class CandidatePage(msgspec.Struct, frozen=True):
    items: tuple[CandidateRecord, ...]
    next_after: str | None


async def list_candidates(call: HttpCall[CandidatesQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    wanted = CandidateFilter(status=query.status, kind=query.kind, after=query.after, limit=size + 1)
    found = await call.services.engine.candidates.list(call.reader(query.everyone), wanted)
    records = [candidate_record(candidate) for candidate in found]
    return answer_json(CandidatePage(*cut_page(records, size, lambda record: str(record.id))))


async def show(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(await call.services.engine.candidates.show(call.viewer, call.id_of(CANDIDATE)))


async def decide(call: HttpCall[Empty, DecisionBody]) -> Response:
    service, candidate_id, body = call.services.engine.candidates, call.id_of(CANDIDATE), call.body
    candidate = await service.get(call.viewer, candidate_id)
    is_shared = body.action is CandidateAction.SHARE  # What others are given is an operator's to decide, as a skill is.
    if is_shared or (body.action is not CandidateAction.REJECT and service.changes_skills(candidate)):
        call.require_also(CHANGES_SKILLS)
    decision = CandidateDecision(action=body.action, content=body.content, reason=body.reason, readers=body.readers)
    return answer_json(await service.decide(call.viewer, candidate_id, decision, call.principal))


async def report(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(await call.services.engine.candidates.report(call.principal))


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/learning/candidates",
              "List candidates: what learning proposes, in the order of their ids",
              list_candidates, action="learning.list", others=Role.OPERATOR, answer=CandidatePage),
    HttpRoute("GET", "/api/v1/learning/candidates/{candidate_id}",
              "Show a candidate with its evidence, and what accepting it changes",
              show, action="learning.read", resource=CANDIDATE, others=Role.OPERATOR, answer=CandidateRecord),
    HttpRoute("POST", "/api/v1/learning/candidates/{candidate_id}", "Accept, edit, reject, promote, undo or share a candidate",
              decide, action="learning.decide", resource=CANDIDATE, answer=CandidateRecord, role=Role.USER,
              errors=(409,)),
    HttpRoute("GET", "/api/v1/learning/report", "Tell how learning does: junk, uses, and the trend",
              report, action="learning.report", answer=LearningReport),
)  # fmt: skip
