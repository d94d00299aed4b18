"""Reads bodies, queries and cursors of requests into records.

Owns: bounded reading and strict decoding.
Does not own: the meaning of what is read (gateway.routes), credentials (request_access).
Invariants: no more of a body is held than its limit. All bodies of senders who have proved nothing yet share one limit.
An unknown member or parameter is refused.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from palyra.core.errors import Invalid, Unavailable
from palyra.core.schema_cost import places_of
from palyra.gateway.decode_errors import decode_error_words
from palyra.gateway.http.settings import (
    CURSOR_MAX,
    JSON_BYTES_MAX,
    PLACES_MAX,
    QUERY_FIELDS_MAX,
    UNPROVEN_BYTES_MAX,
    UNPROVEN_SMALL_BYTES,
)

CURSOR_DIGITS_MAX = 16

Shape = TypeVar("Shape", bound=msgspec.Struct)


Hold = Callable[[int], None]


class BodyRoom:
    """Room for bodies whose senders have proved nothing yet, over all of them. A small body needs none of it."""

    def __init__(self, bytes_max: int = UNPROVEN_BYTES_MAX) -> None:
        self.left_bytes = bytes_max

    @contextmanager
    def holding(self) -> Iterator[Hold]:
        """Gives a function to call with the size that one body grows to. It raises Unavailable if there is no room."""
        taken = 0

        def hold(size: int) -> None:
            nonlocal taken
            wanted = max(0, size - UNPROVEN_SMALL_BYTES) - taken
            if wanted > self.left_bytes:
                raise Unavailable("bodies_busy", "too many large requests are under way; try again in a moment")
            self.left_bytes -= wanted
            taken += wanted

        try:
            yield hold
        finally:
            self.left_bytes += taken


def _hold_freely(_size: int) -> None:
    """For bodies of senders who are known, whose number is bounded by their rate."""


async def read_body(request: Request, bytes_max: int, hold: Hold = _hold_freely) -> bytes:
    """The whole body; Invalid as soon as it is known to be too large."""
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced[:20]) > bytes_max:
        raise _too_large(bytes_max)
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > bytes_max:
            raise _too_large(bytes_max)
        hold(len(body) + len(chunk))
        body += chunk
    return bytes(body)


async def read_json(request: Request, shape: type[Shape], bytes_max: int = JSON_BYTES_MAX) -> Shape:
    """The body as a record. No body at all counts as an object without members."""
    body = await read_body(request, bytes_max)
    if len(body) > JSON_BYTES_MAX and places_of(body) > PLACES_MAX:
        raise Invalid(
            "body_invalid", f"the body has over {PLACES_MAX} values; a large one is for texts, files and images"
        )
    try:
        return msgspec.json.decode(body or b"{}", type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise Invalid("body_invalid", decode_error_words(cause, "the body")) from cause
    except RecursionError as cause:
        raise Invalid("body_invalid", "the body is nested too deep") from cause


def read_query(request: Request, shape: type[Shape]) -> Shape:
    raw: bytes = request.scope["query_string"]
    try:
        pairs = _pairs(raw) if raw else []
        members = dict(pairs)
        if len(members) < len(pairs):
            raise Invalid("query_invalid", "a parameter of the query is given twice")
        read = msgspec.convert(members, shape, strict=False)
    except (msgspec.ValidationError, ValueError) as cause:
        raise Invalid("query_invalid", decode_error_words(cause, "the query")) from cause
    if any(getattr(read, name, "") is None for name in members):
        raise Invalid("query_invalid", "a query has no null: leave the parameter out")
    return read


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    return parse_qsl(raw.decode("ascii"), keep_blank_values=True, strict_parsing=True, max_num_fields=QUERY_FIELDS_MAX)


def read_cursor(request: Request, after: int | None) -> int | None:
    """Where a stream resumes. A browser repeats its first address and adds a newer Last-Event-ID, which therefore wins."""
    text = request.headers.get("last-event-id")
    if text is None or text == "":
        return after
    if not (text.isascii() and text.isdecimal() and len(text) <= CURSOR_DIGITS_MAX and int(text) <= CURSOR_MAX):
        raise Invalid("cursor_invalid", "Last-Event-ID is not the id of an event of this stream")
    return int(text)


def _too_large(bytes_max: int) -> Invalid:
    return Invalid("body_too_large", f"the body has more than {bytes_max} bytes")
