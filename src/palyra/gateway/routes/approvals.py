"""Routes of approvals and grants.

Owns: listing and answering approvals, listing and revoking grants over HTTP.
Does not own: which calls an answer covers (core.grants).
"""

from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from palyra.core.events.tool import ApprovalStatus, Decision, Scope
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery, GrantRecord
from palyra.gateway.access.resources import APPROVAL, GRANT
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import AnyHttpRoute, Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.routes.bodies import (
    REASON_LENGTH_MAX,
    PageQuery,
    RequestBody,
    cut_page,
    page_size,
)
from palyra.ports.tokens import Role

OPTION_MAX = 63
TTL_S_MAX = 30 * 24 * 3600  # A month; what should last longer is a policy and no grant.


class AnswerBody(RequestBody, frozen=True, kw_only=True):
    decision: Decision
    scope: Scope = Scope.ONCE
    option: Annotated[int, Meta(ge=0, le=OPTION_MAX)] | None = None
    ttl_s: Annotated[int, Meta(ge=1, le=TTL_S_MAX)] | None = None
    reason: Annotated[str, Meta(max_length=REASON_LENGTH_MAX)] = ""
    end_run: bool = False


class ApprovalsPageQuery(PageQuery, frozen=True, kw_only=True):
    status: ApprovalStatus | None = None


class ApprovalPage(msgspec.Struct, frozen=True):
    items: tuple[ApprovalRecord, ...]
    next_after: str | None


class GrantPage(msgspec.Struct, frozen=True):
    items: tuple[GrantRecord, ...]
    next_after: str | None


async def list_approvals(call: HttpCall[ApprovalsPageQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    asked = ApprovalsQuery(status=query.status, after=query.after, limit=size + 1)
    found = await call.services.engine.approvals.list(call.reader(query.everyone), asked)
    return answer_json(ApprovalPage(*cut_page(found, size, attrgetter("id"))))


async def show(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(await call.services.engine.approvals.get(call.viewer, call.id_of(APPROVAL)))


async def answer(call: HttpCall[Empty, AnswerBody]) -> Response:
    body = call.body
    given = ApprovalAnswer(
        decision=body.decision,
        scope=body.scope,
        option=body.option,
        ttl_s=body.ttl_s,
        reason=body.reason,
        end_run=body.end_run,
    )
    approvals = call.services.engine.approvals
    return answer_json(await approvals.answer(call.viewer, call.id_of(APPROVAL), given, by=call.principal))


async def list_grants(call: HttpCall[PageQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    found = await call.services.engine.approvals.grants(call.reader(query.everyone), query.after, size + 1)
    return answer_json(GrantPage(*cut_page(found, size, attrgetter("id"))))


async def revoke(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(await call.services.engine.approvals.revoke(call.viewer, call.id_of(GRANT), by=call.principal))


ROUTES: tuple[AnyHttpRoute, ...] = (
    HttpRoute(
        method="GET",
        path="/api/v1/approvals",
        summary="List approvals, in one status if asked",
        endpoint=list_approvals,
        action="approvals.list",
        others=Role.OPERATOR,
        query=ApprovalsPageQuery,
        body=Unread,
        answer=ApprovalPage,
    ),
    HttpRoute(
        method="GET",
        path="/api/v1/approvals/{approval_id}",
        summary="Show an approval",
        endpoint=show,
        action="approvals.read",
        resource=APPROVAL,
        others=Role.OPERATOR,
        query=Empty,
        body=Unread,
        answer=ApprovalRecord,
    ),
    HttpRoute(
        method="POST",
        path="/api/v1/approvals/{approval_id}",
        summary="Answer an approval; an answer is given once",
        endpoint=answer,
        action="approvals.answer",
        resource=APPROVAL,
        others=Role.OPERATOR,
        query=Empty,
        body=AnswerBody,
        answer=ApprovalRecord,
        role=Role.USER,
        errors=(409,),
    ),
    HttpRoute(
        method="GET",
        path="/api/v1/grants",
        summary="List grants",
        endpoint=list_grants,
        action="grants.list",
        others=Role.OPERATOR,
        query=PageQuery,
        body=Unread,
        answer=GrantPage,
    ),
    HttpRoute(
        method="DELETE",
        path="/api/v1/grants/{grant_id}",
        summary="Revoke a grant",
        endpoint=revoke,
        action="grants.revoke",
        resource=GRANT,
        others=Role.OPERATOR,
        query=Empty,
        body=Unread,
        answer=GrantRecord,
        role=Role.USER,
        errors=(409,),
    ),
)
