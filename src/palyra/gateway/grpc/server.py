"""The gRPC server.

Owns: binding, TLS, the service with health and reflection, and a stop that lets clients leave.
Does not own: what calls do (methods, run_stream), when it starts (app.grpc_service).
Invariants: without TLS it listens to this machine only, unless the operator insists. Nothing but the health check is
answered without a token, reflection included.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from inspect import isawaitable
from pathlib import Path
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from palyra.core.errors import NotFound, Unavailable
from palyra.gateway.grpc import settings as limits
from palyra.gateway.grpc.call_edge import AnyContext, CallEdge, read_body, read_message
from palyra.gateway.grpc.messages import parse
from palyra.gateway.grpc.methods import METHODS, UnaryCall, UnaryMethod
from palyra.gateway.grpc.run_stream import RunStreams
from palyra.gateway.grpc.settings import GrpcSettings
from palyra.gateway.http.sse import StreamSlot
from palyra.gateway.v1 import gateway_pb2

SERVICE: str = gateway_pb2.DESCRIPTOR.services_by_name["Gateway"].full_name
CHECKED = ("", SERVICE)
BIND_TRIES_MAX, BIND_PAUSE_S = 20, 0.05
CHECK = "/grpc.health.v1.Health/Check"  # The one method that needs no token.

AnyHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Perform = Callable[["AnyContext"], Coroutine[Any, Any, bytes]]


class GrpcServer:
    """A server that is listening once `start` returned."""

    def __init__(self, edge: CallEdge, settings: GrpcSettings) -> None:
        self.port = 0
        self._settings = settings
        self._health = DaemonHealth(edge)
        self._server = grpc.aio.server(
            interceptors=[Admission(edge, self._health)],
            options=_options(settings),
            maximum_concurrent_rpcs=limits.CALLS_MAX,
        )
        self._server.add_generic_rpc_handlers((_gateway_handler(edge),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    @property
    def address(self) -> str:
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"{host}:{self.port}"

    async def start(self) -> None:
        """Unavailable if the address is taken. Port 0 takes any free one; `port` tells which."""
        for _ in range(BIND_TRIES_MAX):
            with suppress(Unavailable):
                self._bind()
                break
            # A child process that was forked while the port was held has it too, until it has become its program.
            await asyncio.sleep(BIND_PAUSE_S)
        else:
            self._bind()
        await self._server.start()

    def _bind(self) -> None:
        settings = self._settings
        try:
            if settings.tls_cert is None:
                self.port = self._server.add_insecure_port(settings.address)
            else:
                self.port = self._server.add_secure_port(settings.address, _tls(settings))
        except RuntimeError as cause:
            message = f"cannot listen on {settings.address}; change grpc in [server], or free the port"
            raise Unavailable("address_unusable", message) from cause

    async def stop(self) -> None:
        """Streams must have been told to end. Calls under way may finish, for a bounded time."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(limits.STOP_GRACE_S)


class DaemonHealth(health.aio.HealthServicer):
    """The standard health service: SERVING unless the daemon drains."""

    def __init__(self, edge: CallEdge) -> None:
        super().__init__()
        self._status = edge.services.engine.status
        self._reading_count = 0

    async def answer(self, context: AnyContext) -> bytes:
        """A check from its bytes to its bytes."""
        request = parse(health_pb2.HealthCheckRequest, await self._read(context))
        if request.service not in CHECKED:
            raise NotFound("service_unknown", "there is no such service; the empty name means the daemon itself")
        kinds = health_pb2.HealthCheckResponse
        now = kinds.NOT_SERVING if self._status.is_draining else kinds.SERVING
        for service in CHECKED:
            await self.set(service, now)  # For those who watch.
        return kinds(status=now).SerializeToString()

    async def _read(self, context: AnyContext) -> bytes:
        """The message of a check. Anybody may send one, so only a few are awaited at once, and not for long."""
        if self._reading_count >= limits.CHECKS_MAX:
            raise Unavailable("checks_busy", "too many health checks are under way; try again in a moment")
        self._reading_count += 1
        try:
            async with asyncio.timeout(limits.CHECK_MESSAGE_S):
                return await read_body(context)
        except TimeoutError as cause:
            raise Unavailable("timeout", f"no message came within {limits.CHECK_MESSAGE_S:g} s") from cause
        finally:
            self._reading_count -= 1


class Admission(grpc.aio.ServerInterceptor):
    """Lets nobody without a token reach reflection or learn which methods there are. Our own methods ask themselves."""

    def __init__(self, edge: CallEdge, health_service: DaemonHealth) -> None:
        self._edge = edge
        self._check = _answering(edge, health_service.answer)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["AnyHandler | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> AnyHandler:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:
            return _refusing(self._edge, method)
        if method == CHECK:
            return self._check
        if method.startswith(f"/{SERVICE}/"):
            return handler
        return _admitting(self._edge, handler)


def _gateway_handler(edge: CallEdge) -> grpc.GenericRpcHandler:
    """Bytes in and out: a message is read and parsed after its sender is known, never before.

    On the wire a call with one message is a stream with one message. Served as streams, all methods begin before their
    message comes, so a stranger who sends none is refused and holds nothing.
    """
    streams = RunStreams(edge)

    async def run_stream(_requests: object, context: AnyContext) -> None:
        await edge.finish(context, streams.serve(context))

    handlers = {method.name: _answering(edge, _unary(edge, method)) for method in METHODS}
    handlers["RunStream"] = grpc.stream_stream_rpc_method_handler(run_stream)
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


def _unary(edge: CallEdge, method: UnaryMethod) -> Perform:
    async def perform(context: AnyContext) -> bytes:
        caller = await edge.admit(context)
        message = parse(method.request, await read_body(context))
        return (await method.perform(UnaryCall(edge, caller, method.action, message))).SerializeToString()

    return perform


def _answering(edge: CallEdge, perform: Perform) -> AnyHandler:
    """A call that is answered once, in bounded time, the time for its message included."""

    async def answer(_requests: object, context: AnyContext) -> None:
        await context.write(await edge.finish_in_time(context, perform(context)))

    return grpc.stream_stream_rpc_method_handler(answer)


def _admitting(edge: CallEdge, handler: AnyHandler) -> AnyHandler:
    """The same handler behind the check of the token. Only streams out of other services come here.

    One message in is served as a stream too: gRPC would read it before the token is looked at. Each counts as a stream
    of its token and ends with it, since it may stay open for ever.
    """
    is_stream_in = handler.request_streaming
    inner: Any = handler.stream_stream if is_stream_in else handler.unary_stream

    async def take_slot(context: AnyContext) -> StreamSlot:
        caller = await edge.admit(context)
        with edge.services.slots.reserved(caller.token_id) as slot:
            return slot

    async def follow(requests: object, context: Any) -> None:
        given = requests if is_stream_in else await edge.finish_in_time(context, read_message(context))
        answers = inner(given, context)
        if isawaitable(answers):  # It writes by itself.
            await answers
            return
        async for message in answers:
            await context.write(message)

    async def answer(requests: object, context: AnyContext) -> None:
        slot = await edge.finish_in_time(context, take_slot(context))
        whole = _WholeWrites(context)
        following = asyncio.ensure_future(follow(requests, whole))

        def end() -> None:
            following.cancel()

        slot.taken_by(end)
        try:
            await asyncio.wait({following})
        finally:
            following.cancel()
            edge.services.slots.leave(slot)
        await whole.finish()
        if not following.cancelled():
            following.result()

    return grpc.stream_stream_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)


class _WholeWrites:
    """A context in which a write goes on if the writer is cancelled: gRPC cannot end a call while it writes."""

    def __init__(self, context: AnyContext) -> None:
        self._context = context
        self._writing: asyncio.Future[None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: object) -> None:
        self._writing = asyncio.ensure_future(self._context.write(message))
        await asyncio.shield(self._writing)

    async def finish(self) -> None:
        """Waits for the write that is under way. A client that does not read is not waited for."""
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=limits.LAST_WRITE_S)


def _refusing(edge: CallEdge, method: str) -> AnyHandler:
    """For a method that does not exist: a stranger hears of the token first."""

    async def refuse(context: AnyContext) -> None:
        await edge.admit(context)
        raise NotFound("method_unknown", "there is no such method; reflection lists those there are")

    async def answer(_requests: object, context: AnyContext) -> None:
        await edge.finish_in_time(context, refuse(context))

    return grpc.stream_stream_rpc_method_handler(answer)


def _options(settings: GrpcSettings) -> list[tuple[str, int]]:
    handshake_ms = limits.HANDSHAKE_TIMEOUT_MS if settings.tls_cert is None else limits.TLS_HANDSHAKE_TIMEOUT_MS
    return [
        ("grpc.so_reuseport", 0),  # Otherwise two daemons could share a port, each with half of the calls.
        ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
        ("grpc.max_metadata_size", limits.METADATA_BYTES_MAX),
        ("grpc.max_concurrent_streams", limits.CALLS_PER_CONNECTION_MAX),
        ("grpc.max_allowed_incoming_connections", settings.connections_max),
        ("grpc.server_handshake_timeout_ms", handshake_ms),
        ("grpc.max_connection_idle_ms", limits.IDLE_CONNECTION_MS),
        ("grpc.keepalive_time_ms", limits.KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", limits.KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", limits.PING_INTERVAL_MS),
    ]


def _tls(settings: GrpcSettings) -> grpc.ServerCredentials:
    def content(path: str | None) -> bytes:
        return Path(path).read_bytes() if path is not None else b""

    pair = (content(settings.tls_key), content(settings.tls_cert))
    ca = content(settings.client_ca) if settings.client_ca is not None else None
    return grpc.ssl_server_credentials([pair], ca, require_client_auth=ca is not None)
