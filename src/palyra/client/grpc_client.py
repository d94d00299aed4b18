"""The client over gRPC.

Owns: one method for each method of the service, and errors as RequestFailed.
Does not own: a run's stream once it is open (grpc_run), the messages (grpc_messages).
"""

from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from palyra.client.grpc_messages import (
    answer_message,
    failure,
    named,
    read_approval,
    read_event,
    read_run,
    read_session,
    start_message,
)
from palyra.client.grpc_run import RunConversation, read_message
from palyra.client.records import (
    RemoteApproval,
    RemoteRun,
    RemoteSession,
    RequestFailed,
    ResultPage,
    RunWish,
    TapeEvent,
)
from palyra.gateway.v1 import approvals_pb2, events_pb2, runs_pb2, sessions_pb2

SERVICE = "palyra.gateway.v1.Gateway"
ANSWER_TIMEOUT_S = 60.0

_OPTIONS = (("grpc.enable_http_proxy", 0),)  # A proxy of the environment would see the token.

Reply = TypeVar("Reply", bound=Message)


class GrpcGatewayClient:
    """`address` is `host:port`. With `ca_file` TLS is spoken; `key_file` and `cert_file` are the client's own."""

    def __init__(
        self,
        address: str,
        token: str,
        *,
        ca_file: str | None = None,
        key_file: str | None = None,
        cert_file: str | None = None,
    ) -> None:
        self._metadata = (("authorization", f"Bearer {token}"),)
        if ca_file is None:
            self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        else:
            files = [Path(path).read_bytes() if path is not None else None for path in (ca_file, key_file, cert_file)]
            self._channel = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(*files), _OPTIONS)

    async def __aenter__(self) -> "GrpcGatewayClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()

    async def resolve_session(self, *, key: str | None = None, label: str | None = None) -> RemoteSession:
        """Finds the session of that key or label, or creates it. Without both it creates one."""
        asked = sessions_pb2.ResolveSessionRequest(key=key, label=label)
        answer = await self._ask("ResolveSession", asked, sessions_pb2.ResolveSessionResponse)
        return read_session(answer.session)

    async def list_sessions(self, after: str = "", limit: int = 100) -> ResultPage[RemoteSession]:
        asked = sessions_pb2.ListSessionsRequest(after=after, limit=limit)
        answer = await self._ask("ListSessions", asked, sessions_pb2.ListSessionsResponse)
        next_after = answer.next_after if answer.HasField("next_after") else None
        return ResultPage(tuple(read_session(item) for item in answer.sessions), next_after)

    async def start_run(self, wish: RunWish) -> RemoteRun:
        """Starts a run without following it."""
        asked = runs_pb2.RouteMessageRequest(start=start_message(wish))
        return read_run((await self._ask("RouteMessage", asked, runs_pb2.RouteMessageResponse)).run)

    async def cancel_run(self, run_id: str) -> RemoteRun:
        asked = runs_pb2.CancelRunRequest(run_id=run_id)
        return read_run((await self._ask("CancelRun", asked, runs_pb2.CancelRunResponse)).run)

    async def list_approvals(self, status: str = "pending", after: str = "") -> ResultPage[RemoteApproval]:
        kind = named(approvals_pb2.ApprovalStatus, f"APPROVAL_STATUS_{status}")
        asked = approvals_pb2.ListApprovalsRequest(status=kind, after=after)
        answer = await self._ask("ListApprovals", asked, approvals_pb2.ListApprovalsResponse)
        next_after = answer.next_after if answer.HasField("next_after") else None
        return ResultPage(tuple(read_approval(item) for item in answer.approvals), next_after)

    async def read_approval(self, approval_id: str) -> str:
        """Reads all that the approval would allow, page by page."""
        offset: int | None = 0
        pages: list[str] = []
        while offset is not None:
            asked = approvals_pb2.ReadApprovalRequest(approval_id=approval_id, offset=offset)
            page = await self._ask("ReadApproval", asked, approvals_pb2.ReadApprovalResponse)
            pages.append(page.text)
            offset = page.next_offset if page.HasField("next_offset") else None
        return "".join(pages)

    async def answer_approval(self, approval_id: str, decision: str, scope: str = "once") -> RemoteApproval:
        asked = answer_message(approval_id, decision, scope)
        answer = await self._ask("ResolveApproval", asked, approvals_pb2.ResolveApprovalResponse)
        return read_approval(answer.approval)

    async def read_tape(self, session_id: str, after: int = 0) -> AsyncIterator[TapeEvent]:
        """Every event of a session after that seq, page by page."""
        cursor: int | None = after
        while cursor is not None:
            asked = events_pb2.ReadTapeRequest(session_id=session_id, after=cursor)
            page = await self._ask("ReadTape", asked, events_pb2.ReadTapeResponse)
            for event in page.events:
                yield read_event(event)
            cursor = page.next_after if page.HasField("next_after") else None

    async def run(self, wish: RunWish) -> RunConversation:
        """Starts a run and stays with it. It is durable when this returns."""
        return await self._converse(runs_pb2.RunStreamRequest(start=start_message(wish)))

    async def follow(self, run_id: str, after_seq: int | None = None) -> RunConversation:
        """Stays with a run that exists, behind that seq or from its first event."""
        return await self._converse(
            runs_pb2.RunStreamRequest(follow=runs_pb2.RunFollow(run_id=run_id, after_seq=after_seq))
        )

    async def _converse(self, first: runs_pb2.RunStreamRequest) -> RunConversation:
        method: Any = self._channel.stream_stream(
            f"/{SERVICE}/RunStream",
            request_serializer=runs_pb2.RunStreamRequest.SerializeToString,
            response_deserializer=runs_pb2.RunStreamResponse.FromString,
        )
        call = method(metadata=self._metadata)
        try:
            await call.write(first)
        except grpc.aio.AioRpcError as error:
            raise failure(error) from error
        message = await read_message(call)
        if message is None:
            raise RequestFailed("answer_invalid", "the stream ended before it began")
        return RunConversation(call, message.started.run_id, message.started.session_id)

    async def _ask(self, name: str, message: Message, reply: type[Reply]) -> Reply:
        method: Any = self._channel.unary_unary(f"/{SERVICE}/{name}", response_deserializer=reply.FromString)
        try:
            answer: Reply = await method(message.SerializeToString(), metadata=self._metadata, timeout=ANSWER_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise failure(error) from error
        return answer
