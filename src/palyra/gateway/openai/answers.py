"""Answers of the OpenAI-compatible API, whole or streamed.

Owns: waiting for a segment while its client is there, and sending one as an event stream.
Does not own: the form of what is sent (chat, responses), the bounds of streams (gateway.http.sse).
Invariant: a client that leaves ends its own request and nothing else.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp

from palyra.engine.hub import Frame
from palyra.gateway.http.route import HttpCall
from palyra.gateway.http.sse import StreamSlot
from palyra.gateway.openai.errors import failure_of
from palyra.gateway.openai.exchange import RunExchange, Segment, SessionName, name_session
from palyra.gateway.openai.segment import SegmentEnd, read_end

SESSION_HEADER = "x-palyra-session"
RUN_HEADER = "x-palyra-run"
ANSWER_TIMEOUT_S = 3_600.0  # A run may be active for 15 minutes by default; who waits longer follows it instead.
BODY_BYTES_MAX = 24 * 1024 * 1024  # Room for the images that one message may have, as base64.


def exchange_of(call: HttpCall) -> RunExchange:  # type: ignore[type-arg]
    request = call.request
    base_url = f"{request.url.scheme}://{request.headers.get('host', '')}"
    return RunExchange(call.services.engine, call.caller, base_url)


def session_of(call: HttpCall, metadata: dict[str, str] | None, user: str | None) -> SessionName:  # type: ignore[type-arg]
    return name_session(call.request.headers.get(SESSION_HEADER), metadata, user)


def key_of(call: HttpCall) -> str | None:  # type: ignore[type-arg]
    """The idempotency key of a request: the same key gives the same run."""
    return call.request.headers.get("idempotency-key") or None


def headers_of(segment: Segment) -> dict[str, str]:
    return {RUN_HEADER: segment.run_id, SESSION_HEADER: segment.session_id}


def reserved(call: HttpCall) -> AbstractContextManager[StreamSlot]:  # type: ignore[type-arg]
    """The place of an answer among the streams. It is taken before a run begins: a refused request starts nothing."""
    return call.services.slots.reserved(call.caller.token_id)


async def whole(call: HttpCall, slot: StreamSlot, segment: Segment) -> SegmentEnd:  # type: ignore[type-arg]
    """Waits for the end of a segment. A failed run is raised as the error it ended with."""
    end = await waited(call, slot, segment)
    if end.error is not None:
        raise failure_of(end.error)
    return end


async def waited(call: HttpCall, slot: StreamSlot, segment: Segment) -> SegmentEnd:  # type: ignore[type-arg]
    """Waits for the end of a segment, however it ends, and then leaves the slot."""
    try:
        return await _while_present(call.request, segment)
    finally:
        call.services.slots.leave(slot)


def streamed(
    call: HttpCall,  # type: ignore[type-arg]
    slot: StreamSlot,
    segment: Segment,
    encode: Callable[[Frame], bytes],
    opening: bytes = b"",
) -> ASGIApp:
    return call.services.stream(slot, segment.frames, encode).with_opening(opening, headers_of(segment))


async def _while_present(request: Request, segment: Segment) -> SegmentEnd:
    """Stops waiting when the client is gone; the run goes on."""
    reading = asyncio.ensure_future(read_end(segment.frames))
    watching = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((reading, watching), return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            raise ClientDisconnect
        return reading.result()
    finally:
        reading.cancel()
        watching.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
