"""Routes of approvals and grants. Owns: listing, answering and revoking over HTTP. Not: what an answer covers (core.grants)."""

from operator import attrgetter

from starlette.responses import Response

from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery, GrantRecord
from palyra.gateway.access.viewer import reader_of
from palyra.gateway.http.request_reader import approval_in, grant_in
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import AnyHttpRoute, Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.routes.bodies import (
    AnswerBody,
    ApprovalPage,
    ApprovalsPageQuery,
    GrantPage,
    PageQuery,
    cut_page,
    page_size,
)
from palyra.ports.tokens import Role


async def list_approvals(call: HttpCall[ApprovalsPageQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    asked = ApprovalsQuery(status=query.status, after=query.after, limit=size + 1)
    found = await call.desk.engine.approvals.list(reader_of(call, query.everyone), asked)
    return answer_json(ApprovalPage(*cut_page(found, size, attrgetter("id"))))


async def show(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(await call.desk.engine.approvals.get(call.eyes, approval_in(call.path)))


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
    approvals = call.desk.engine.approvals
    return answer_json(await approvals.answer(call.eyes, approval_in(call.path), given, by=call.principal))


async def list_grants(call: HttpCall[PageQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    found = await call.desk.engine.approvals.grants(reader_of(call, query.everyone), query.after, size + 1)
    return answer_json(GrantPage(*cut_page(found, size, attrgetter("id"))))


async def revoke(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(await call.desk.engine.approvals.revoke(call.eyes, grant_in(call.path), by=call.principal))


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
        others=Role.OPERATOR,
        query=Empty,
        body=Unread,
        answer=GrantRecord,
        role=Role.USER,
        errors=(409,),
    ),
)
