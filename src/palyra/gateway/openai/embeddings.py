"""The route of embeddings. Owns: its wire form. Does not own: making vectors (ports.embedder)."""

import asyncio
import base64
import struct
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from palyra.core.errors import Invalid
from palyra.core.estimate import estimate_tokens, text_bytes
from palyra.gateway.http.responses import BASE_HEADERS, JSON_TYPE
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute
from palyra.gateway.openai.errors import UnsupportedParameter
from palyra.ports.tokens import Role

TEXTS_MAX = 2_048  # As many as OpenAI takes.

_encode = msgspec.json.Encoder().encode


class EmbeddingBody(msgspec.Struct, frozen=True, kw_only=True):
    """A request for embeddings. `model` may be anything: there is one embedder."""

    model: str
    input: str | Annotated[tuple[str, ...], Meta(max_length=TEXTS_MAX)]
    encoding_format: str = "float"
    dimensions: int | None = None
    user: str | None = None


class EmbeddingItem(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    embedding: tuple[float, ...] | str
    object: str = "embedding"


class EmbeddingUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct, frozen=True, kw_only=True):
    data: tuple[EmbeddingItem, ...]
    model: str
    usage: EmbeddingUsage
    object: str = "list"


async def embed(call: HttpCall[Empty, EmbeddingBody]) -> Response:
    body = call.body
    embedder = call.services.engine.embedder
    texts = (body.input,) if isinstance(body.input, str) else body.input
    if not texts or any(not text for text in texts):
        raise Invalid("input_empty", "there is nothing to embed: a text is empty")
    if body.dimensions not in (None, embedder.traits.dimensions):
        raise UnsupportedParameter("dimensions", f"vectors here have {embedder.traits.dimensions} dimensions")
    if body.encoding_format not in ("float", "base64"):
        raise UnsupportedParameter("encoding_format", "it is float or base64")
    vectors = await embedder.embed(texts, call.principal)
    count = sum(estimate_tokens(text_bytes(text)) for text in texts)
    frame = EmbeddingList(data=(), model=embedder.traits.version, usage=EmbeddingUsage(count, count))
    pieces = _pieces(frame, vectors, is_text=body.encoding_format == "base64")
    return _PiecedAnswer(pieces, 200, BASE_HEADERS, JSON_TYPE)


class _PiecedAnswer(StreamingResponse):
    """Is sent to its end. The server drops what a client that has left no longer takes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.stream_response(send)


async def _pieces(frame: EmbeddingList, vectors: Sequence[bytes], *, is_text: bool) -> AsyncIterator[bytes]:
    """The list in pieces. Thousands of long vectors at once would hold the loop for a tenth of a second and more."""
    head, _, tail = _encode(frame).partition(b"[]")
    yield head + b"["
    for index, vector in enumerate(vectors):
        embedding = base64.b64encode(vector).decode() if is_text else _floats(vector)
        yield (b"," if index else b"") + _encode(EmbeddingItem(index=index, embedding=embedding))
        await asyncio.sleep(0)
    yield b"]" + tail


def _floats(vector: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(vector) // 4}f", vector)


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("POST", "/v1/embeddings", "OpenAI-compatible: make vectors of texts",
              embed, action="embeddings.create", answer=EmbeddingList, role=Role.USER),
)  # fmt: skip
