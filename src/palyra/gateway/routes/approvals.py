"""Routes of approvals, grants and refusals.

Owns: listing and answering approvals, listing and revoking grants and refusals over HTTP.
Does not own: which calls an answer covers (core.grants).
"""

from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from palyra.core.events.tool import ApprovalStatus, Decision, Scope
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery, FullPreview, GrantRecord
from palyra.gateway.access.caller import Caller
from palyra.gateway.access.resources import APPROVAL, GRANT
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.routes.bodies import REASON_LENGTH_MAX, PageQuery, RequestBody, cut_page, page_size
from palyra.ports.tokens import Role

OPTION_MAX = 63
OFFSET_MAX = 1 << 40
TTL_S_MAX = 30 * 24 * 3600  # A month; what should last longer is a policy and no grant.

WITHOUT_MAX = 1000  # Paths of a draft that are not to be applied; whoever wants more discards it.


class AnswerBody(RequestBody, frozen=True, kw_only=True):
    """`principal` and `role` belong to kind `pairing`: whom the account is linked to, and what they may do from it."""

    decision: Decision
    scope: Scope = Scope.ONCE
    option: Annotated[int, Meta(ge=0, le=OPTION_MAX)] | None = None
    ttl_s: Annotated[int, Meta(ge=1, le=TTL_S_MAX)] | None = None
    reason: Annotated[str, Meta(max_length=REASON_LENGTH_MAX)] = ""
    end_run: bool = False
    principal: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    role: Role | None = None
    without: Annotated[tuple[Annotated[str, Meta(max_length=4096)], ...], Meta(max_length=WITHOUT_MAX)] = ()


class ApprovalsPageQuery(PageQuery, frozen=True, kw_only=True):
    status: ApprovalStatus | None = None


class FullQuery(RequestBody, frozen=True, kw_only=True):
    offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX)] = 0


class ApprovalPage(msgspec.Struct, frozen=True):
    items: tuple[ApprovalRecord, ...]
    next_after: str | None


class GrantPage(msgspec.Struct, frozen=True):
    items: tuple[GrantRecord, ...]
    next_after: str | None


async def list_approvals(call: HttpCall[ApprovalsPageQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    has_system = query.everyone or call.may_oversee()
    asked = ApprovalsQuery(status=query.status, after=query.after, limit=size + 1, has_system=has_system)
    found = await call.services.engine.approvals.list(call.reader(query.everyone), asked)
    return answer_json(ApprovalPage(*cut_page(found, size, attrgetter("id"))))


async def show(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(await call.services.engine.approvals.get(call.viewer, call.id_of(APPROVAL)))


async def show_full(call: HttpCall[FullQuery, Unread]) -> Response:
    approvals = call.services.engine.approvals
    by, client = call.principal, call.caller.client
    full = await approvals.full(call.viewer, call.id_of(APPROVAL), call.query.offset, by=by, client=client)
    return answer_json(full)


async def answer(call: HttpCall[Empty, AnswerBody]) -> Response:
    may_trust = call.services.viewers.may_trust(call.caller)
    given = make_answer(call.body, call.caller, may_trust=may_trust)
    approvals = call.services.engine.approvals
    return answer_json(await approvals.answer(call.viewer, call.id_of(APPROVAL), given, by=call.principal))


def make_answer(body: AnswerBody, caller: Caller, *, may_trust: bool) -> ApprovalAnswer:
    """What the engine is asked for, whichever protocol carried the body."""
    return ApprovalAnswer(
        decision=body.decision,
        scope=body.scope,
        option=body.option,
        ttl_s=body.ttl_s,
        reason=body.reason,
        end_run=body.end_run,
        principal=body.principal,
        role=None if body.role is None else body.role.value,
        role_max=caller.role.value,
        client=caller.client,
        without=body.without,
        may_trust=may_trust,
    )


async def list_grants(call: HttpCall[PageQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    found = await call.services.engine.approvals.grants(call.reader(query.everyone), query.after, size + 1)
    return answer_json(GrantPage(*cut_page(found, size, attrgetter("id"))))


async def revoke(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(await call.services.engine.approvals.revoke(call.viewer, call.id_of(GRANT), by=call.principal))


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/approvals", "List approvals, in one status if asked",
              list_approvals, action="approvals.list", others=Role.OPERATOR, answer=ApprovalPage),
    HttpRoute("GET", "/api/v1/approvals/{approval_id}", "Show an approval",
              show, action="approvals.read", resource=APPROVAL, others=Role.OPERATOR, answer=ApprovalRecord),
    HttpRoute("GET", "/api/v1/approvals/{approval_id}/full", "Show all that an approval would allow, page by page",
              show_full, action="approvals.read", resource=APPROVAL, others=Role.OPERATOR, answer=FullPreview),
    HttpRoute("POST", "/api/v1/approvals/{approval_id}", "Answer an approval; an answer is given once",
              answer, action="approvals.answer", resource=APPROVAL, others=Role.OPERATOR, answer=ApprovalRecord,
              role=Role.USER, errors=(409,)),
    HttpRoute("GET", "/api/v1/grants", "List grants and refusals",
              list_grants, action="grants.list", others=Role.OPERATOR, answer=GrantPage),
    HttpRoute("DELETE", "/api/v1/grants/{grant_id}", "Revoke a grant or a refusal",
              revoke, action="grants.revoke", resource=GRANT, others=Role.OPERATOR, answer=GrantRecord, role=Role.USER,
              errors=(409,)),
)  # fmt: skip
