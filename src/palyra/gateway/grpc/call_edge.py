"""The edge of gRPC: who calls, and what a failure becomes.

Owns: credentials in metadata, the order of checks, and turning every failure into a status.
Does not own: checking credentials (access.authentication), decisions (access.roles, access.viewer), methods (methods).
Invariant: a call is refused in this order: credentials, the rate, the method, the message, the access policy. So a
stranger learns nothing, and nobody's bytes are read before their token is known.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, NoReturn, TypeAlias, TypeVar
from urllib.parse import unquote

import grpc
from grpc.aio import ServicerContext

from palyra.core.errors import Invalid, PalyraError, Unavailable
from palyra.core.ids import Principal
from palyra.gateway.access.authentication import Authentication, is_plausible
from palyra.gateway.access.caller import Caller, PresentedCredentials
from palyra.gateway.access.resources import ResourceRef
from palyra.gateway.access.roles import Operation
from palyra.gateway.grpc.status_codes import hide, metadata_of, status_of
from palyra.gateway.http.settings import REQUEST_TIMEOUT_S
from palyra.gateway.routes.table import ROUTES
from palyra.gateway.services import GatewayServices

AnyContext: TypeAlias = "ServicerContext[Any, Any]"
Answer = TypeVar("Answer")

_OPERATIONS: dict[str, Operation] = {route.action: route for route in ROUTES if not route.is_public}


class CallEdge:
    def __init__(self, services: GatewayServices, access: Authentication) -> None:
        self.services = services
        self._access = access

    async def admit(self, context: AnyContext) -> Caller:
        """The caller. Unauthorized without a valid token, Unavailable beyond its rate."""
        caller = await self.authenticate(context)
        self.check_rate(context, caller)
        return caller

    async def authenticate(self, context: AnyContext) -> Caller:
        """The caller as their token stands now. Unauthorized without a valid one."""
        return await self._access.authenticate(presented_in(context))

    def check_rate(self, context: AnyContext, caller: Caller) -> None:
        self._access.check_rate(caller, peer_of(context))

    async def viewer_for(self, caller: Caller, action: str, resource: ResourceRef | None = None) -> Principal:
        """Whose permissions apply. The roles are those of the HTTP route with the same action."""
        return await self.services.viewers.viewer_for(caller, _OPERATIONS[action], resource)

    async def finish(self, context: AnyContext, work: Coroutine[Any, Any, Answer]) -> Answer:
        """The result of the work. Whatever goes wrong in it becomes the status of the call.

        If the client leaves or its deadline passes, the work is cancelled. What it has committed stays.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
        if task.cancelled():
            raise asyncio.CancelledError
        cause = task.exception()
        if cause is None:
            return task.result()
        await self.refuse(context, cause)

    async def finish_in_time(self, context: AnyContext, work: Coroutine[Any, Any, Answer]) -> Answer:
        """The same, for calls that are answered once. A client without a deadline gets ours."""
        return await self.finish(context, _bounded(work))

    async def refuse(self, context: AnyContext, cause: BaseException) -> NoReturn:
        error = hide(cause)
        if status_of(error) is grpc.StatusCode.UNAUTHENTICATED:
            error = self._access.count_failure(error, peer_of(context))
        await context.abort(status_of(error), error.message, metadata_of(error))
        raise error  # Unreachable: `abort` raises.


async def _bounded(work: Coroutine[Any, Any, Answer]) -> Answer:
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            return await work
    except TimeoutError as cause:
        raise Unavailable("timeout", f"no answer within {REQUEST_TIMEOUT_S:g} s; try again later") from cause


async def read_body(context: AnyContext) -> bytes:
    """The bytes of a call's one message."""
    return bytes(await read_message(context))


async def read_message(context: AnyContext) -> Any:
    """A call's one message, as its handler deserializes messages."""
    message = await context.read()
    if message is grpc.aio.EOF:
        raise Invalid("message_missing", "the call has no message")
    return message


def presented_in(context: AnyContext) -> PresentedCredentials:
    values = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
    return PresentedCredentials(bearer=_bearer(values), peer=peer_of(context))


def peer_of(context: AnyContext) -> str | None:
    """The address of the peer. gRPC writes `ipv4:192.0.2.1:50000` and `ipv6:%5B::1%5D:50000`."""
    family, _, rest = context.peer().partition(":")
    if family not in ("ipv4", "ipv6"):
        return None
    return unquote(rest.rpartition(":")[0]).strip("[]")


def is_refusal(error: PalyraError) -> bool:
    """Whether an error is the client's to know within a stream that goes on."""
    return status_of(error) is not grpc.StatusCode.INTERNAL


def _bearer(values: Sequence[str | bytes]) -> str | None:
    value = values[0] if len(values) == 1 else ""
    scheme, _, text = (value if isinstance(value, str) else "").partition(" ")
    bearer = text.strip()
    return bearer if scheme.lower() == "bearer" and is_plausible(bearer) else None
