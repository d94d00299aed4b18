"""The HTTP transport to an MCP server: a client that reads bounded answers of the one configured address.

Does not own: the protocol (connection), which errors are a server's own (http_messages).
The package follows redirects within the address's own origin only. No proxy and no password file of the environment is
used. Nothing compressed is read, because it could be small on the wire and endless here.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from palyra.adapters.runtimes.mcp.http_messages import HttpMessages, note_read_errors, note_response, note_too_large
from palyra.adapters.runtimes.mcp.pace import PARTS_MAX, MessagePace, count_parts
from palyra.adapters.runtimes.mcp.settings import MESSAGE_BYTES_MAX, ServerSettings
from palyra.adapters.runtimes.mcp.streams import Streams

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT_S = 10.0
RECONNECT_EVERY_S_MIN = 1.0
NOTIFY_TIMEOUT_S = 3.0  # Limits requests that need no answer: notifications, and the end of a session.
HTTP_PARTS_MAX = (
    2 * PARTS_MAX
)  # Parts inside of texts are counted too. A table as text has about so many commas in a megabyte.
PIECE_UNITS = 2  # The package takes so much time for a piece of one byte. A server chooses how small pieces are.
EVENTS_BYTES_MAX = 8 * MESSAGE_BYTES_MAX  # Limits all events of one answer together. Each event has its own limit.


@asynccontextmanager
async def open_http(settings: ServerSettings) -> AsyncIterator[Streams]:
    from mcp.client.streamable_http import streamable_http_client

    assert settings.url is not None
    note_read_errors()
    async with (
        _make_client(settings.token()) as client,
        streamable_http_client(settings.url, http_client=client, max_sse_event_size=MESSAGE_BYTES_MAX) as streams,
    ):
        messages = HttpMessages(*streams)
        yield Streams(messages.incoming, messages.outgoing, _told_end)


async def _told_end() -> str:
    return "the connection ended"


def _make_client(token: str | None) -> "httpx2.AsyncClient":
    import httpx2

    bounded = bounded_stream_class()

    pace = _ReconnectPace()

    async def shorten(request: httpx2.Request) -> None:
        if request.method == "GET":
            await pace.wait()
        # Requests have a limit of their own, and the stream of notifications has none. Other requests would hold up
        # those after them.
        is_request = request.method == "POST" and b'"id":' in request.content
        if request.method != "GET" and not is_request:
            request.extensions = {**request.extensions, "timeout": httpx2.Timeout(NOTIFY_TIMEOUT_S).as_dict()}

    async def bound(response: httpx2.Response) -> None:
        note_response(response)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.ReadError("the answer is compressed, which nobody asked for")
        # The stream of notifications lives as long as the connection.
        is_endless = response.request.method == "GET"
        is_events = response.headers.get("content-type", "").startswith("text/event-stream")
        limit = EVENTS_BYTES_MAX if is_events else MESSAGE_BYTES_MAX
        response.stream = bounded(
            response.stream, None if is_endless and is_events else limit, has_many_messages=is_events
        )

    authorization = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx2.AsyncClient(
        headers={**authorization, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_TIMEOUT_S, read=None),
        event_hooks={"request": [shorten], "response": [bound]},
        trust_env=False,
        follow_redirects=False,
    )


class _ReconnectPace:
    """Lets the stream of notifications be opened so often and no more, whatever delay its server asks for."""

    def __init__(self) -> None:
        self._next_s = 0.0

    async def wait(self) -> None:
        now_s = asyncio.get_running_loop().time()
        due_s = max(now_s, self._next_s)
        self._next_s = due_s + RECONNECT_EVERY_S_MIN
        await asyncio.sleep(due_s - now_s)


def bounded_stream_class() -> Any:
    """Returns a subclass of a class of the package, which is loaded only if a remote server is configured."""
    import httpx2

    class BoundedBody(httpx2.AsyncByteStream):
        def __init__(self, inner: Any, bytes_max: int | None, *, has_many_messages: bool) -> None:
            self._inner = inner
            self._bytes_max = bytes_max
            self._has_many_messages = has_many_messages

        async def __aiter__(self) -> AsyncIterator[bytes]:
            pace, size, message_size, parts, before = MessagePace(), 0, 0, 0, b""
            async for piece in self._inner:
                await pace.take(piece, PIECE_UNITS + piece.count(b"\n"))
                size += len(piece)
                # A blank line ends an event. What comes after it is another message. Two pieces may share the line.
                # In any other body a blank line means nothing: the whole body is one message.
                is_end = self._has_many_messages and any(
                    end in piece or end in before + piece[:2] for end in (b"\n\n", b"\n\r\n")
                )
                before = (before + piece)[-2:]
                parts = count_parts(piece) + (0 if is_end else parts)
                message_size = len(piece) + (0 if is_end else message_size)
                is_long = message_size > MESSAGE_BYTES_MAX or (self._bytes_max is not None and size > self._bytes_max)
                if parts > HTTP_PARTS_MAX or is_long:
                    note_too_large()
                    # The package takes this kind of error for that of one request. Others end the connection.
                    raise httpx2.StreamError("the answer is longer than is read here")
                yield piece

        async def aclose(self) -> None:
            await self._inner.aclose()

    return BoundedBody
