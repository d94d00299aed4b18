"""One exchange with a model over HTTP: sending, reading the stream, and attempts before the first token.

Does not own: any wire format (openai_chat, openai_responses, anthropic_messages).
A format builds bodies and reads events. Everything that can go wrong on the way becomes a last delta `Failed`. The key
is fetched when it is needed, put into a header, and stored nowhere.
"""

import asyncio
import random
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec

from palyra.adapters.net.client import HttpClient, Outgoing, Reply, Timeouts
from palyra.adapters.providers.attempts import RetryPace, next_wait_s
from palyra.adapters.providers.failures import broken, failed, postponed, read_refusal, refused, retry_after_s
from palyra.adapters.providers.image_parts import BLIND, REFUSED, is_about_images, without_images
from palyra.adapters.providers.tool_cache import ToolCache
from palyra.adapters.providers.wire_names import WireNames, names_of_tools
from palyra.core.errors import Invalid, PalyraError, Unavailable
from palyra.core.events.base import JsonObject
from palyra.core.events.model import ModelError
from palyra.core.sse import SseEvent, SseParser
from palyra.core.tools import ToolSpec
from palyra.ports.provider import ENDINGS, Completed, Delta, Failed, ModelRequest

DRAIN_S = 0.05  # How long the end of a body is awaited after its last event, so that the connection can be reused.
TOOLS, OUTPUT_LIMIT = "tools", "output_limit"  # Fields that every format can do without, if a server refuses them.
ERROR_BODY_S = 5.0  # A refusal that arrives slowly is not worth a longer wait.
_HEADER_BREAKS = re.compile(r"[\x00-\x1f\x7f]")
_STREAM = "text/event-stream"
_NOT_A_STREAM = frozenset({"application/json", "application/problem+json", "text/html"})

KeySource = Callable[[], str | None]


class WireModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as its provider knows it."""

    id: str
    max_output_tokens: int | None = None
    takes_tools: bool = True
    takes_images: bool = False


class ProviderEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a provider is, and its models by our names.

    A model that is not listed has our name on the wire too.
    """

    name: str
    base_url: str | None = None
    timeouts: Timeouts = Timeouts()
    pace: RetryPace = RetryPace()
    models: Mapping[str, WireModel] = {}


class BodyDraft(msgspec.Struct, frozen=True, kw_only=True):
    """What a format builds a body from. `without` holds the fields that this provider refused before."""

    request: ModelRequest
    names: WireNames
    model_id: str
    origin: str
    max_output_tokens: int | None = None
    tools: tuple[ToolSpec, ...] = ()
    without: frozenset[str] = frozenset()


class ReplyReader(Protocol):
    """Reads one answer. Raises msgspec.DecodeError for data that is not its format's."""

    def read(self, events: list[SseEvent]) -> list[Delta]: ...

    def end(self) -> Completed | None:
        """Called if the stream ends without its last event.

        Returns the completion if everything was said, else None.
        """
        ...


class WireFormat(Protocol):
    """`concessions` are fields that some servers refuse, and how they say so; the body is then built without them."""

    @property
    def kind(self) -> str: ...

    @property
    def concessions(self) -> Mapping[str, re.Pattern[str]]: ...

    def url(self, base_url: str | None) -> str: ...

    def headers(self, key: str | None) -> dict[str, str]: ...

    def body(self, draft: BodyDraft) -> JsonObject: ...

    def reader(self, draft: BodyDraft, provider: str) -> ReplyReader: ...


class Rejected(msgspec.Struct, frozen=True):
    """The provider answered, but with no stream."""

    failed: Failed
    words: str


class ModelExchange:
    def __init__(self, form: WireFormat, endpoint: ProviderEndpoint, key: KeySource, client: HttpClient) -> None:
        self._format = form
        self._endpoint = endpoint
        self._key = key
        self._client = client
        self._url = form.url(endpoint.base_url)
        self._without: dict[str, frozenset[str]] = {}
        self._names = ToolCache(names_of_tools)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        made_count = 0
        request = request if self._model(request).takes_images else without_images(request, BLIND)
        while True:
            unmet: list[Failed | Rejected] = []
            async with aclosing(self._attempt(self._draft(request), unmet)) as deltas:
                async for delta in deltas:
                    yield delta
            if not unmet:
                return
            if isinstance(unmet[0], Rejected) and self._concede(request.model, unmet[0]):
                continue
            if isinstance(unmet[0], Rejected) and request.images and is_about_images(unmet[0].failed, unmet[0].words):
                # Otherwise one image that a provider cannot take would end every later run of its session.
                request = without_images(request, REFUSED)
                continue
            failure = unmet[0].failed if isinstance(unmet[0], Rejected) else unmet[0]
            made_count += 1
            wait_s = next_wait_s(self._endpoint.pace, failure, made_count, random.random())  # noqa: S311 - jitter only
            if wait_s is None:
                yield failure
                return
            await asyncio.sleep(wait_s)

    def _model(self, request: ModelRequest) -> WireModel:
        return self._endpoint.models.get(request.model) or WireModel(id=request.model)

    def _draft(self, request: ModelRequest) -> BodyDraft:
        model = self._model(request)
        without = self._without.get(request.model, frozenset())
        limit = _smaller(request.max_output_tokens, model.max_output_tokens)
        return BodyDraft(
            request=request,
            names=self._names.of(request.tools).and_past(request),
            model_id=model.id,
            origin=f"{self._format.kind}/{self._endpoint.name}/{model.id}",
            max_output_tokens=None if OUTPUT_LIMIT in without else limit,
            tools=request.tools if model.takes_tools and TOOLS not in without else (),
            without=without,
        )

    async def _attempt(self, draft: BodyDraft, unmet: list[Failed | Rejected]) -> AsyncGenerator[Delta, None]:
        """Yields the deltas of an attempt that began; the last is Completed or Failed.

        A failure before the first delta goes to `unmet` instead.
        """
        name = self._endpoint.name
        try:
            key = _checked(self._key())
        except PalyraError as cause:
            unmet.append(Failed(ModelError.AUTH, f"{name} has no key to be called with: {cause.message}."))
            return
        answer = _Answer(self._format.reader(draft, name), self._endpoint)
        outgoing = self._outgoing(draft, key)
        try:
            async with self._client.post(outgoing) as reply:
                if reply.status != 200 or reply.content_type in _NOT_A_STREAM:
                    unmet.append(await self._rejected(reply, key))
                    return
                while (delta := await answer.next(reply)) is not None:
                    yield delta
        except Unavailable as fault:
            answer.failed = broken(name, answer.told(fault))
        if answer.failed is not None and answer.has_begun:
            yield answer.failed
        elif answer.failed is not None:
            unmet.append(answer.failed)

    def _outgoing(self, draft: BodyDraft, key: str | None) -> Outgoing:
        """Counts connecting as part of the wait for the first token."""
        timeouts = self._endpoint.timeouts
        return Outgoing(
            url=self._url,
            headers={**_HEADERS, **self._format.headers(key)},
            body=msgspec.json.encode(self._format.body(draft)),
            timeouts=timeouts,
            answer_within_s=timeouts.first_byte_s,
        )

    async def _rejected(self, reply: Reply, key: str | None) -> Rejected:
        name = self._endpoint.name
        refusal = read_refusal(await reply.read_start(min(ERROR_BODY_S, self._endpoint.timeouts.idle_s)))
        if reply.status == 200 and not (refusal.message and "error" in refusal.words):
            return Rejected(failed(name, ModelError.PROTOCOL, _not_a_stream(reply)), "")
        if 300 <= reply.status < 400:
            what = f"It redirects (HTTP {reply.status}), which is not followed: the key would go along."
            return Rejected(failed(name, ModelError.PROTOCOL, what), "")
        told = refused(name, refusal, None if reply.status == 200 else reply.status, key)
        return Rejected(postponed(told, retry_after_s(reply.headers)), refusal.words)

    def _concede(self, model: str, rejected: Rejected) -> bool:
        """Tells whether the refusal is about a field that can be left out.

        It is left out from now on, for this model.
        """
        if rejected.failed.code not in (ModelError.BAD_REQUEST, ModelError.CONTEXT_LENGTH):
            return False
        is_full = rejected.failed.code is ModelError.CONTEXT_LENGTH
        without = self._without.get(model, frozenset())
        for field, pattern in {**_CONCESSIONS, **self._format.concessions}.items():
            # A limit on the output takes its part of the window; leaving out any other field would make no room.
            is_meant = not is_full or field == OUTPUT_LIMIT
            if is_meant and field not in without and pattern.search(rejected.words):
                self._without[model] = without | {field}
                return True
        return False


class _Answer:
    """One answer while it is read. `failed` holds a failure, which is not among the deltas."""

    def __init__(self, reader: ReplyReader, endpoint: ProviderEndpoint) -> None:
        self.has_begun = False
        self.failed: Failed | None = None
        self._is_over = False
        self._waiting: deque[Delta] = deque()
        self._parser = SseParser()
        self._reader = reader
        self._name = endpoint.name
        self._timeouts = endpoint.timeouts
        self._first_token_at_s = _now_s() + endpoint.timeouts.first_byte_s

    async def next(self, reply: Reply) -> Delta | None:
        """Returns the next delta; None once the answer is complete or has failed."""
        while not self._waiting and not self._is_over:
            self._waiting.extend(await self._read(reply))
        return self._waiting.popleft() if self._waiting else None

    async def _read(self, reply: Reply) -> list[Delta]:
        """Reads the next bytes.

        The deadline of the first token holds also if the server sends signs of life that are no token.
        """
        try:
            chunk = await reply.read_some(self._timeouts.idle_s if self.has_begun else self._left_s())
        except Unavailable:
            if self._reader.end() is None:
                raise
            chunk = b""  # The connection failed after everything was said.
        deltas = self._heard(self._parser.feed(chunk)) if chunk else self._last(reply)
        if deltas and isinstance(deltas[-1], ENDINGS):
            return await self._end(reply, deltas)
        self.has_begun = self.has_begun or bool(deltas)
        return deltas

    def _heard(self, events: list[SseEvent]) -> list[Delta]:
        """Reads events of the stream. What was said before one that does not read is kept, because it was paid for."""
        try:
            return self._reader.read(events)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            deltas = self._reader.read([])
        if deltas and isinstance(deltas[-1], ENDINGS):
            return deltas
        return [*deltas, failed(self._name, ModelError.PROTOCOL, "An event of its stream does not read.")]

    async def _end(self, reply: Reply, deltas: list[Delta]) -> list[Delta]:
        self._is_over = True
        await reply.drain(DRAIN_S)
        if isinstance(deltas[-1], Failed):
            self.failed, deltas = deltas[-1], deltas[:-1]
        self.has_begun = self.has_begun or bool(deltas)
        return deltas

    def _left_s(self) -> float:
        left_s = self._first_token_at_s - _now_s()
        if left_s <= 0:
            raise Unavailable("timed_out", "no token in time")
        return left_s

    def told(self, fault: Unavailable) -> Unavailable:
        if self.has_begun or fault.code != "timed_out":
            return fault
        return Unavailable("timed_out", f"no token within {self._timeouts.first_byte_s:g} s")

    def _last(self, reply: Reply) -> list[Delta]:
        """Ends the body. Half an event at its end counts for nothing."""
        try:
            deltas = self._reader.read(self._parser.finish())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            deltas = []
        if deltas and isinstance(deltas[-1], ENDINGS):
            return deltas
        return [*deltas, self._reader.end() or self._unfinished(reply)]

    def _unfinished(self, reply: Reply) -> Failed:
        """Returns the failure of an answer that ended too early.

        Some servers send a stream under another content type, but such a stream has deltas.
        """
        if not self.has_begun and reply.content_type != _STREAM:
            return failed(self._name, ModelError.PROTOCOL, _not_a_stream(reply))
        closed = Unavailable("closed", "the connection was closed before the answer was complete")
        return broken(self._name, closed)


_CONCESSIONS = {
    TOOLS: re.compile(
        r"(?:does|do) not support (?:the )?(?:use of )?(?:tool|function)|tools? (?:is|are) not supported"
    ),
    OUTPUT_LIMIT: re.compile(
        r"max_(?:completion_|output_)?tokens\b[^.]{0,80}(?:too large|at most|maximum|exceed|less than|allowed)"
    ),
}

_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}


def join_url(base_url: str, version: str, path: str) -> str:
    """Returns the address of a call.

    A base without a path gets the version. A base that already names the call stays as it is.
    """
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


def _not_a_stream(reply: Reply) -> str:
    return f"It answered with {reply.content_type} and not with a stream of events."


def _smaller(one: int | None, other: int | None) -> int | None:
    limits = [limit for limit in (one, other) if limit is not None]
    return min(limits) if limits else None


def _now_s() -> float:
    return asyncio.get_running_loop().time()
