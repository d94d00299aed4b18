"""The messages of a server over HTTP, and the errors that the package puts in the place of an answer that never came.

Does not own: HTTP (http), what an error leads to (connection).
The package makes up an error message where a proxy or a broken server gives no answer. It looks like the server's own,
which says that the call failed. So every message that is really read is noted, in the context of its request.
Invariants: only an error that was read is the server's answer. Any other counts as no answer, unless the status says
that the request was refused. At most INBOUND_REQUESTS_MAX questions of a server are open.
"""

from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any

from palyra.adapters.runtimes.mcp.codes import NO_ANSWER_CODE, NO_SESSION_CODE, TOO_LARGE_CODE, is_own
from palyra.adapters.runtimes.mcp.settings import INBOUND_REQUESTS_MAX

if TYPE_CHECKING:
    import httpx2
    from mcp_types import ErrorData

SESSION_HEADER = "mcp-session-id"
_LOST_SESSION = (400, 404)  # The standard's status is 404. Many servers answer 400.
# After these a request is to be made again as it is, elsewhere. Other redirects may lead to what became of it.
_UNDONE_REDIRECTS = (307, 308)

_read_error: "ContextVar[ErrorData | None]" = ContextVar("mcp_read_error", default=None)
_is_too_large: ContextVar[bool] = ContextVar("mcp_is_too_large", default=False)
_posted: "ContextVar[httpx2.Response | None]" = ContextVar("mcp_posted", default=None)


class HttpMessages:
    """Wraps the package's two streams. `incoming` and `outgoing` take their places."""

    def __init__(self, incoming: Any, outgoing: Any) -> None:
        questions = _Questions()
        self.incoming = _Incoming(incoming, questions)
        self.outgoing = _Outgoing(outgoing, questions)


class _Questions:
    open_count = 0


class _Incoming:
    def __init__(self, inner: Any, questions: _Questions) -> None:
        self._inner = inner
        self._questions = questions

    async def __aenter__(self) -> "_Incoming":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> "_Incoming":
        return self

    async def __anext__(self) -> Any:
        from mcp_types import JSONRPCError, JSONRPCRequest

        while True:
            item = await anext(self._inner)
            message = getattr(item, "message", None)
            if isinstance(message, JSONRPCRequest):
                if self._questions.open_count >= INBOUND_REQUESTS_MAX:
                    continue
                self._questions.open_count += 1
            elif isinstance(message, JSONRPCError):
                message.error = self._inner.last_context.run(_told, message.error)
            return item


class _Outgoing:
    def __init__(self, inner: Any, questions: _Questions) -> None:
        self._inner = inner
        self._questions = questions

    async def __aenter__(self) -> "_Outgoing":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._inner.aclose()

    async def send(self, item: Any) -> None:
        from mcp_types import JSONRPCError, JSONRPCResponse

        await self._inner.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._questions.open_count -= 1


class _NotingParser:
    """Reads messages in the package's place, and notes which errors were read."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser

    def validate_json(self, body: Any, **options: Any) -> Any:
        from mcp_types import JSONRPCError

        message = self._parser.validate_json(body, **options)
        if isinstance(message, JSONRPCError):
            _read_error.set(message.error)
        return message


def note_read_errors() -> None:
    """Gives the package our parser. Without it every error counts as no answer, which is safe."""
    transport: Any = import_module("mcp.client.streamable_http")
    if not isinstance(transport.jsonrpc_message_adapter, _NotingParser):
        transport.jsonrpc_message_adapter = _NotingParser(transport.jsonrpc_message_adapter)


def note_response(response: "httpx2.Response") -> None:
    """Notes the response to a request of ours, for the errors that follow from it."""
    if response.request.method == "POST":
        _posted.set(response)


def note_too_large() -> None:
    """Notes that the answer is thrown away for its size. An error follows from it."""
    _is_too_large.set(True)


def _told(error: "ErrorData") -> "ErrorData":
    """Returns the error as the connection takes it. Runs in the context of the request that the error is for."""
    from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, METHOD_NOT_FOUND

    response = _posted.get()
    status = response.status_code if response is not None else 0
    is_in_session = response is not None and SESSION_HEADER in response.request.headers
    is_read = _read_error.get() is error
    if is_in_session and status in _LOST_SESSION and error.code != METHOD_NOT_FOUND:
        return error.model_copy(update={"code": NO_SESSION_CODE, "data": error.code})
    if is_read:
        return error.model_copy(update={"code": INTERNAL_ERROR}) if is_own(error.code) else error
    if (status in _UNDONE_REDIRECTS or 400 <= status < 500) and error.code != CONNECTION_CLOSED:
        return error
    is_large_answer = status == 200 and _is_too_large.get()
    return error.model_copy(update={"code": TOO_LARGE_CODE if is_large_answer else NO_ANSWER_CODE})
