"""A gRPC server over the engine of a scene, and a channel to it.

Owns: starting it on a free port, metadata, and short ways to call. Does not own: any claim.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import grpc
from google.protobuf.message import Message

from palyra.engine.engine import Engine
from palyra.gateway.access.authentication import Authentication
from palyra.gateway.access.credentials import Credentials
from palyra.gateway.grpc.call_edge import CallEdge
from palyra.gateway.grpc.server import SERVICE, GrpcServer
from palyra.gateway.grpc.settings import GrpcSettings
from palyra.gateway.http.application import Gateway
from palyra.gateway.v1 import approvals_pb2, events_pb2, runs_pb2, sessions_pb2
from tests.gateway.scene import ADMIN, WAIT_S, Scene

ANSWERS: dict[str, type[Message]] = {
    "ResolveSession": sessions_pb2.ResolveSessionResponse,
    "ListSessions": sessions_pb2.ListSessionsResponse,
    "RouteMessage": runs_pb2.RouteMessageResponse,
    "CancelRun": runs_pb2.CancelRunResponse,
    "ResolveApproval": approvals_pb2.ResolveApprovalResponse,
    "ReadApproval": approvals_pb2.ReadApprovalResponse,
    "ListApprovals": approvals_pb2.ListApprovalsResponse,
    "ReadTape": events_pb2.ReadTapeResponse,
}


@dataclass
class GrpcScene:
    """`server` listens; `channel` is connected to it without TLS."""

    scene: Scene
    gateway: Gateway
    server: GrpcServer
    channel: grpc.aio.Channel

    async def ask(self, name: str, message: Message | bytes, token: str | None = ADMIN, **options: Any) -> Any:
        """One call. A message of bytes goes as it is."""
        body = message if isinstance(message, bytes) else message.SerializeToString()
        method: Any = self.channel.unary_unary(f"/{SERVICE}/{name}")
        answer = await method(body, metadata=bearer(token), **{"timeout": WAIT_S, **options})
        return ANSWERS[name].FromString(cast(bytes, answer))

    async def refusal(
        self, name: str, message: Message | bytes, token: str | None = ADMIN, **options: Any
    ) -> "Refused":
        try:
            await self.ask(name, message, token, **options)
        except grpc.aio.AioRpcError as error:
            return refused(error)
        raise AssertionError(f"{name} was not refused")

    def stream(self, token: str | None = ADMIN, **options: Any) -> Any:
        method = self.channel.stream_stream(
            f"/{SERVICE}/RunStream",
            request_serializer=runs_pb2.RunStreamRequest.SerializeToString,
            response_deserializer=runs_pb2.RunStreamResponse.FromString,
        )
        return method(metadata=bearer(token), **{"timeout": 6 * WAIT_S, **options})


@dataclass(frozen=True)
class Refused:
    status: grpc.StatusCode
    code: str
    retryable: str
    message: str


def refused(error: grpc.aio.AioRpcError) -> "Refused":
    trailing = {key: str(value) for key, value in error.trailing_metadata() or ()}
    message = error.details() or ""
    return Refused(error.code(), trailing.get("palyra-code", ""), trailing.get("palyra-retryable", ""), message)


def bearer(token: str | None) -> Sequence[tuple[str, str]]:
    return (("authorization", f"Bearer {token}"),) if token is not None else ()


@asynccontextmanager
async def open_grpc(scene: Scene, settings: GrpcSettings | None = None) -> AsyncIterator[GrpcScene]:
    credentials = Credentials(scene.tokens, scene.tokens, scene.logins, scene.policy, scene.clock)
    access = Authentication(credentials, scene.settings.requests_per_minute, scene.clock.monotonic_s)
    gateway = Gateway(cast(Engine, scene.engine), access, scene.settings)
    server = GrpcServer(CallEdge(gateway.services, access), settings or GrpcSettings(port=0))
    await server.start()
    try:
        async with grpc.aio.insecure_channel(server.address) as channel:
            yield GrpcScene(scene, gateway, server, channel)
    finally:
        gateway.end_streams()
        await server.stop()
