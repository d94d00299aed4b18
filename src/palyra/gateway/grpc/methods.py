"""The methods of the service Gateway that are answered once.

Owns: one function for each method, and the table of them.
Does not own: what they ask for (engine.api), the stream of a run (run_stream), credentials (call_edge).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from google.protobuf.message import Message

from palyra.core.ids import Principal, SessionId, StreamId
from palyra.engine.api.requests import ApprovalsQuery, SessionRequest
from palyra.engine.engine import Engine
from palyra.gateway.access.caller import Caller
from palyra.gateway.access.resources import APPROVAL, RUN, SESSION, ResourceRef
from palyra.gateway.grpc.call_edge import CallEdge
from palyra.gateway.grpc.messages import (
    approval_message,
    event_message,
    fitting,
    read,
    read_answer,
    read_run,
    run_message,
    session_message,
)
from palyra.gateway.routes.approvals import ApprovalsPageQuery, FullQuery
from palyra.gateway.routes.bodies import cut_page, page_size
from palyra.gateway.routes.sessions import SessionBody, SessionsPageQuery, TapeQuery
from palyra.gateway.v1 import approvals_pb2, events_pb2, runs_pb2, sessions_pb2


@dataclass(frozen=True, slots=True)
class UnaryCall:
    """One call whose caller is known. `action` is what the access policy is asked about."""

    edge: CallEdge
    caller: Caller
    action: str
    message: Any  # Of the method's own type; each function below names it.

    @property
    def engine(self) -> Engine:
        return self.edge.services.engine

    async def permit(self, resource: ResourceRef | None = None) -> Principal:
        """Whose permissions apply; Unauthorized if the caller may not do this at all."""
        return await self.edge.viewer_for(self.caller, self.action, resource)

    def reader(self, is_everyone: bool) -> Principal | None:
        return self.edge.services.viewers.reader_for(self.caller, self.action, is_everyone)


async def resolve_session(call: UnaryCall) -> Message:
    message: sessions_pb2.ResolveSessionRequest = call.message
    principal = await call.permit()
    body = read(message, SessionBody)
    request = SessionRequest(
        session_id=SessionId(StreamId(body.session_id)) if body.session_id is not None else None,
        key=body.key,
        label=body.label,
        agent=body.agent,
        reset=body.reset,
    )
    row = await call.engine.sessions.resolve(principal, request)
    return sessions_pb2.ResolveSessionResponse(session=session_message(row))


async def list_sessions(call: UnaryCall) -> Message:
    message: sessions_pb2.ListSessionsRequest = call.message
    await call.permit()
    query = read(message, SessionsPageQuery)
    size = page_size(query.limit)
    found = await call.engine.sessions.list(
        call.reader(query.everyone), query.after, size + 1, has_delegated=query.delegated
    )
    rows, next_after = cut_page(found, size, attrgetter("id"))
    return sessions_pb2.ListSessionsResponse(sessions=[session_message(row) for row in rows], next_after=next_after)


async def route_message(call: UnaryCall) -> Message:
    message: runs_pb2.RouteMessageRequest = call.message
    principal = await call.permit()
    call.edge.services.require_open()
    record = await call.engine.runs.start(principal, read_run(message.start, call.caller))
    return runs_pb2.RouteMessageResponse(run=run_message(record))


async def cancel_run(call: UnaryCall) -> Message:
    message: runs_pb2.CancelRunRequest = call.message
    viewer = await call.permit(ResourceRef(RUN, message.run_id))
    record = await call.engine.runs.cancel(viewer, RUN.read_id(message.run_id), by=call.caller.principal)
    return runs_pb2.CancelRunResponse(run=run_message(record))


async def resolve_approval(call: UnaryCall) -> Message:
    message: approvals_pb2.ResolveApprovalRequest = call.message
    viewer = await call.permit(ResourceRef(APPROVAL, message.approval_id))
    may_trust = call.edge.services.viewers.may_trust(call.caller)
    given = read_answer(message, call.caller, may_trust=may_trust)
    approval_id = APPROVAL.read_id(message.approval_id)
    card = await call.engine.approvals.answer(viewer, approval_id, given, by=call.caller.principal)
    return approvals_pb2.ResolveApprovalResponse(approval=approval_message(card))


async def read_approval(call: UnaryCall) -> Message:
    message: approvals_pb2.ReadApprovalRequest = call.message
    viewer = await call.permit(ResourceRef(APPROVAL, message.approval_id))
    offset = read(message, FullQuery, approval_id=None).offset
    approval_id = APPROVAL.read_id(message.approval_id)
    page = await call.engine.approvals.full(
        viewer, approval_id, offset, by=call.caller.principal, client=call.caller.client
    )
    return approvals_pb2.ReadApprovalResponse(
        text=page.text, total_chars=page.total_chars, next_offset=page.next_offset
    )


async def list_approvals(call: UnaryCall) -> Message:
    message: approvals_pb2.ListApprovalsRequest = call.message
    await call.permit()
    query = read(message, ApprovalsPageQuery)
    size = page_size(query.limit)
    asked = ApprovalsQuery(status=query.status, after=query.after, limit=size + 1)
    found = await call.engine.approvals.list(call.reader(query.everyone), asked)
    cards, next_after = cut_page(found, size, attrgetter("id"))
    sent = fitting([approval_message(card) for card in cards])
    is_cut = len(sent) < len(cards)
    return approvals_pb2.ListApprovalsResponse(approvals=sent, next_after=sent[-1].id if is_cut else next_after)


async def read_tape(call: UnaryCall) -> Message:
    message: events_pb2.ReadTapeRequest = call.message
    viewer = await call.permit(ResourceRef(SESSION, message.session_id))
    query = read(message, TapeQuery, session_id=None)
    size, session_id = page_size(query.limit), SESSION.read_id(message.session_id)
    found = await call.engine.sessions.tape(viewer, session_id, query.after, size + 1)
    events, next_after = cut_page(found, size, attrgetter("seq"))
    sent = fitting([event_message(event) for event in events])
    is_cut = len(sent) < len(events)
    return events_pb2.ReadTapeResponse(events=sent, next_after=sent[-1].seq if is_cut else next_after)


@dataclass(frozen=True, slots=True)
class UnaryMethod:
    name: str
    action: str
    request: type[Message]
    perform: Callable[[UnaryCall], Awaitable[Message]]


METHODS: tuple[UnaryMethod, ...] = (
    UnaryMethod("ResolveSession", "sessions.resolve", sessions_pb2.ResolveSessionRequest, resolve_session),
    UnaryMethod("ListSessions", "sessions.list", sessions_pb2.ListSessionsRequest, list_sessions),
    UnaryMethod("RouteMessage", "runs.start", runs_pb2.RouteMessageRequest, route_message),
    UnaryMethod("CancelRun", "runs.cancel", runs_pb2.CancelRunRequest, cancel_run),
    UnaryMethod("ResolveApproval", "approvals.answer", approvals_pb2.ResolveApprovalRequest, resolve_approval),
    UnaryMethod("ReadApproval", "approvals.read", approvals_pb2.ReadApprovalRequest, read_approval),
    UnaryMethod("ListApprovals", "approvals.list", approvals_pb2.ListApprovalsRequest, list_approvals),
    UnaryMethod("ReadTape", "sessions.read", events_pb2.ReadTapeRequest, read_tape),
)
