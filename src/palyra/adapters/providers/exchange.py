"""One exchange with a model over HTTP. Owns: sending, reading the stream, attempts before the first token. Not: any format.

A format builds bodies and reads events; everything that can go wrong on the way becomes a last delta `Failed`. The key is
asked for when it is needed, put into a header, and kept nowhere.
"""

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec

from palyra.adapters.net.client import HttpClient, Outgoing, Reply, Timeouts
from palyra.adapters.net.sse import SseEvent, SseParser
from palyra.adapters.providers.attempts import Pace, next_wait_s
from palyra.adapters.providers.failures import broken, failed, read_refusal, refused, retry_after_s
from palyra.adapters.providers.pictures import BLIND, REFUSED, is_about_images, without_images
from palyra.adapters.providers.wire_names import WireNames, names_of
from palyra.core.errors import Invalid, PalyraError, Unavailable
from palyra.core.events.base import JsonObject
from palyra.core.events.model import ModelError
from palyra.core.tools import ToolSpec
from palyra.ports.provider import Completed, Delta, Failed, ModelRequest

DRAIN_S = 0.05  # How long the end of a body is waited for after its last word, so that the connection can be kept.
ERROR_BODY_S = 5.0  # A refusal that trickles is not worth more.
_HEADER_BREAKS = re.compile(r"[\x00-\x1f\x7f]")
_NOT_A_STREAM = frozenset({"application/json", "application/problem+json", "text/html"})

KeySource = Callable[[], str | None]


class WireModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as its provider knows it."""

    id: str
    max_output_tokens: int | None = None
    takes_tools: bool = True
    takes_images: bool = False


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a provider is, and its models by our names; one that is not among them has our name on the wire too."""

    name: str
    base_url: str | None = None
    timeouts: Timeouts = Timeouts()
    pace: Pace = Pace()
    models: Mapping[str, WireModel] = {}


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What a format builds a body from. `without` are the fields this provider refused before."""

    request: ModelRequest
    names: WireNames
    model_id: str
    origin: str
    max_output_tokens: int | None = None
    tools: tuple[ToolSpec, ...] = ()
    without: frozenset[str] = frozenset()


class Reader(Protocol):
    """Reads one answer. Raises msgspec.DecodeError for data that is not its format's."""

    def read(self, events: list[SseEvent]) -> list[Delta]: ...

    def end(self) -> Completed | None:
        """The stream is over without its last event: what it comes to if everything was said, else None."""
        ...


class WireFormat(Protocol):
    """`concessions` are fields some servers refuse, and how they say so; the body is then built without them."""

    @property
    def kind(self) -> str: ...

    @property
    def concessions(self) -> Mapping[str, re.Pattern[str]]: ...

    def url(self, base_url: str | None) -> str: ...

    def headers(self, key: str | None) -> dict[str, str]: ...

    def body(self, draft: Draft) -> JsonObject: ...

    def reader(self, draft: Draft, provider: str) -> Reader: ...


class Rejected(msgspec.Struct, frozen=True):
    """The provider answered, but with no stream."""

    failed: Failed
    words: str


class Exchange:
    def __init__(self, form: WireFormat, endpoint: Endpoint, key: KeySource, client: HttpClient) -> None:
        self._format = form
        self._endpoint = endpoint
        self._key = key
        self._client = client
        self._url = form.url(endpoint.base_url)
        self._without: dict[str, frozenset[str]] = {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        made_count = 0
        request = request if self._model(request).takes_images else without_images(request, BLIND)
        while True:
            unmet: list[Failed | Rejected] = []
            async with aclosing(self._sift(self._draft(request), unmet)) as deltas:
                async for delta in deltas:
                    yield delta
            if not unmet:
                return
            if isinstance(unmet[0], Rejected) and self._concede(request.model, unmet[0]):
                continue
            if isinstance(unmet[0], Rejected) and request.images and is_about_images(unmet[0].failed, unmet[0].words):
                # Else one image a provider cannot take would end every later run of its session.
                request = without_images(request, REFUSED)
                continue
            failure = unmet[0].failed if isinstance(unmet[0], Rejected) else unmet[0]
            made_count += 1
            wait_s = next_wait_s(self._endpoint.pace, failure, made_count, random.random())  # noqa: S311 - jitter only
            if wait_s is None:
                yield failure
                return
            await asyncio.sleep(wait_s)

    async def _sift(self, draft: Draft, unmet: list[Failed | Rejected]) -> AsyncGenerator[Delta, None]:
        """The deltas of an attempt that began; a failure before the first of them goes to `unmet` instead."""
        has_begun = False
        async with aclosing(self._attempt(draft)) as deltas:
            async for delta in deltas:
                if isinstance(delta, Rejected) or (isinstance(delta, Failed) and not has_begun):
                    unmet.append(delta)
                    return
                has_begun = True
                yield delta

    def _model(self, request: ModelRequest) -> WireModel:
        return self._endpoint.models.get(request.model) or WireModel(id=request.model)

    def _draft(self, request: ModelRequest) -> Draft:
        model = self._model(request)
        return Draft(
            request=request,
            names=names_of(request),
            model_id=model.id,
            origin=f"{self._format.kind}/{self._endpoint.name}/{model.id}",
            max_output_tokens=_smaller(request.max_output_tokens, model.max_output_tokens),
            tools=request.tools if model.takes_tools else (),
            without=self._without.get(request.model, frozenset()),
        )

    async def _attempt(self, draft: Draft) -> AsyncGenerator[Delta | Rejected, None]:
        """At least one delta; the last is Completed or Failed, or there is one Rejected and nothing else."""
        name = self._endpoint.name
        try:
            key = _checked(self._key())
        except PalyraError as cause:
            yield failed(name, ModelError.AUTH, f"{cause.message[:1].upper()}{cause.message[1:]}.")
            return
        outgoing = Outgoing(
            url=self._url,
            headers={**_HEADERS, **self._format.headers(key)},
            body=msgspec.json.encode(self._format.body(draft)),
            timeouts=self._endpoint.timeouts,
        )
        first_token_at_s = _now_s() + self._endpoint.timeouts.first_byte_s
        try:
            async with (
                self._client.post(outgoing) as reply,
                aclosing(self._read(reply, draft, key, first_token_at_s)) as deltas,
            ):
                async for delta in deltas:
                    yield delta
        except Unavailable as fault:
            yield broken(name, fault)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            yield failed(name, ModelError.PROTOCOL, "An event of its stream does not read.")

    async def _read(
        self, reply: Reply, draft: Draft, key: str | None, first_token_at_s: float
    ) -> AsyncGenerator[Delta | Rejected, None]:
        if reply.status != 200 or reply.content_type in _NOT_A_STREAM:
            yield await self._rejected(reply, key)
            return
        parser, reader = SseParser(), self._format.reader(draft, self._endpoint.name)
        has_begun = False
        while True:
            timeout_s = self._endpoint.timeouts.idle_s if has_begun else first_token_at_s - _now_s()
            chunk = await self._read_some(reply, reader, timeout_s)
            deltas = reader.read(parser.feed(chunk)) if chunk else self._last_deltas(reader, parser)
            has_ended = bool(deltas) and isinstance(deltas[-1], Completed | Failed)
            if has_ended:
                await reply.drain(DRAIN_S)
            for delta in deltas:
                yield delta
            if has_ended:
                return
            has_begun = has_begun or bool(deltas)

    async def _read_some(self, reply: Reply, reader: Reader, timeout_s: float) -> bytes:
        """The next bytes; b"" at the end, and also where the connection fails after everything was said."""
        try:
            if timeout_s <= 0:
                # Signs of life that are no token would otherwise keep the call waiting for ever.
                raise Unavailable("timed_out", f"no token within {self._endpoint.timeouts.first_byte_s:g} s")
            return await reply.read_some(timeout_s)
        except Unavailable:
            if reader.end() is None:
                raise
            return b""

    def _last_deltas(self, reader: Reader, parser: SseParser) -> list[Delta]:
        """The body is over. Half an event at its end counts for nothing."""
        try:
            deltas = reader.read(parser.finish())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            deltas = []
        if deltas and isinstance(deltas[-1], Completed | Failed):
            return deltas
        closed = Unavailable("closed", "the connection was closed before the answer was complete")
        return [*deltas, reader.end() or broken(self._endpoint.name, closed)]

    async def _rejected(self, reply: Reply, key: str | None) -> Rejected:
        name = self._endpoint.name
        refusal = read_refusal(await reply.read_start(ERROR_BODY_S))
        if reply.status == 200 and not (refusal.message and "error" in refusal.words):
            what = f"It answered with {reply.content_type} and not with a stream of events."
            return Rejected(failed(name, ModelError.PROTOCOL, what), "")
        if 300 <= reply.status < 400:
            what = f"It redirects (HTTP {reply.status}), which is not followed: the key would go along."
            return Rejected(failed(name, ModelError.PROTOCOL, what), "")
        told = refused(name, refusal, None if reply.status == 200 else reply.status, key)
        return Rejected(Failed(told.code, told.message, retry_after_s(reply.headers)), refusal.words)

    def _concede(self, model: str, rejected: Rejected) -> bool:
        """Whether the refusal is about a field that can be left out; from now on it is, for this model."""
        if rejected.failed.code is not ModelError.BAD_REQUEST:
            return False
        without = self._without.get(model, frozenset())
        for field, pattern in self._format.concessions.items():
            if field not in without and pattern.search(rejected.words):
                self._without[model] = without | {field}
                return True
        return False


_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}


def join_url(base_url: str, version: str, path: str) -> str:
    """The address of a call. A base without a path gets the version; a base that names the call already is left as it is."""
    parts = urlsplit(base_url)
    base = parts.path.rstrip("/")
    if not base.endswith(path):
        base = f"{base or version}{path}"
    return urlunsplit((parts.scheme, parts.netloc, base, parts.query, ""))


def _checked(key: str | None) -> str | None:
    stripped = (key or "").strip()
    if _HEADER_BREAKS.search(stripped):
        raise Invalid("key_invalid", "the key holds a line break or another character that no key has")
    return stripped or None


def _smaller(one: int | None, other: int | None) -> int | None:
    limits = [limit for limit in (one, other) if limit is not None]
    return min(limits) if limits else None


def _now_s() -> float:
    return asyncio.get_running_loop().time()
