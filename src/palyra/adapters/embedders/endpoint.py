"""An embedder behind an OpenAI-compatible endpoint: the requests, as a provider that a service run calls.

Does not own: reserving and settling what a request costs (the run), when one is made (engine.api.metered_embedder).
A run's tape names only the number of a batch. Its texts and vectors stay in memory, so that a text which is forgotten
is on no tape. A run that is resumed after a restart finds its batch gone and fails; the items are embedded anew.
"""

import itertools
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from palyra.adapters.net.client import HttpClient, Outgoing, Reply, Timeouts
from palyra.core.context.messages import UserMessage
from palyra.core.errors import PalyraError, Unavailable
from palyra.core.estimate import estimate_tokens, text_bytes
from palyra.core.events.model import Finish, ModelError, Usage
from palyra.ports.embedder import EmbedderTraits
from palyra.ports.provider import Completed, Delta, Failed, ModelRequest, TextDelta

PATH = "/embeddings"
TEXT_CHARS_MAX = 8_000  # Below the 8,191 tokens that most such models take.
ANSWER_BYTES_MAX = 32 * 1024 * 1024  # 256 vectors of 3,072 parts, written as decimals.
DIMENSIONS_MAX = 8_192
_ERRORS = {
    401: ModelError.AUTH,
    402: ModelError.QUOTA,
    403: ModelError.AUTH,
    408: ModelError.TIMEOUT,
    429: ModelError.RATE,
}


class EmbeddingModel(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is ours, `id` the provider's."""

    name: str
    id: str
    base_url: str
    timeouts: Timeouts = Timeouts()


class _Entry(msgspec.Struct, frozen=True):
    index: int
    embedding: list[float]


class _Tokens(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0


class _Answer(msgspec.Struct, frozen=True):
    data: list[_Entry]
    usage: _Tokens = _Tokens()


class EndpointEmbeddings:
    """Both sides of a batch: the engine opens it and takes its vectors, a run's model call fills it."""

    def __init__(self, model: EmbeddingModel, key: Callable[[], str | None], client: HttpClient) -> None:
        self._model = model
        self._key = key
        self._client = client
        self._numbers = itertools.count(1)
        self._process = secrets.token_hex(4)
        self._texts: dict[str, tuple[str, ...]] = {}
        self._vectors: dict[str, tuple[bytes, ...]] = {}

    @property
    def traits(self) -> EmbedderTraits:
        version = f"endpoint {self._model.base_url.rstrip('/')} {self._model.id}"
        return EmbedderTraits(version=version, dimensions=0, is_metered=True)

    @property
    def model(self) -> str:
        return self._model.name

    def open(self, texts: Sequence[str]) -> str:
        """Returns the name of a new batch, which a run's message holds as a line of its own."""
        batch = f"{self._process}-{next(self._numbers)}"
        self._texts[batch] = tuple(text[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode() for text in texts)
        return batch

    def input_tokens(self, batch: str) -> int:
        return sum(estimate_tokens(text_bytes(text)) for text in self._texts.get(batch, ()))

    def take(self, batch: str) -> tuple[bytes, ...] | None:
        """Returns the vectors of a batch, if they came, and forgets the batch."""
        self._texts.pop(batch, None)
        return self._vectors.pop(batch, None)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        batch = _batch_of(request)
        texts = self._texts.get(batch)
        if texts is None:
            yield Failed(ModelError.BAD_REQUEST, f"{self._model.name} only embeds, and this batch is not waiting.")
            return
        try:
            answer = await self._ask(texts)
        except PalyraError as fault:
            yield Failed(_class_of(fault), f"{self._model.name}: {fault.message}")
            return
        vectors = _vectors_of(answer, len(texts))
        if vectors is None:
            yield Failed(ModelError.PROTOCOL, f"{self._model.name} did not answer with one vector for each text.")
            return
        if batch in self._texts:  # Else nobody waits for them any more.
            self._vectors[batch] = vectors
        yield TextDelta(f"Embedded {len(texts)} texts.")
        # Texts come to more than no tokens: such a count is none, and the batch is paid for at its estimate.
        counted = answer.usage.prompt_tokens
        yield Completed(Finish.STOP, Usage(input_tokens=counted, output_tokens=0) if counted > 0 else None)

    async def _ask(self, texts: tuple[str, ...]) -> _Answer:
        key = self._key()
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        body = {"model": self._model.id, "input": texts, "encoding_format": "float"}
        timeouts = self._model.timeouts
        outgoing = Outgoing(
            url=self._model.base_url.rstrip("/") + PATH,
            headers=headers,
            body=msgspec.json.encode(body),
            timeouts=timeouts,
            answer_within_s=timeouts.first_byte_s,
        )
        async with self._client.post(outgoing) as reply:
            if reply.status != 200:
                raise Unavailable(str(reply.status), f"the endpoint answered with HTTP {reply.status}")
            told = await self._read(reply)
        try:
            return msgspec.json.decode(told, type=_Answer)
        except (msgspec.DecodeError, UnicodeError) as cause:
            raise Unavailable("protocol", "the endpoint's answer does not read as embeddings") from cause

    async def _read(self, reply: Reply) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while chunk := await reply.read_some(self._model.timeouts.idle_s):
            pieces.append(chunk)
            size += len(chunk)
            if size > ANSWER_BYTES_MAX:
                raise Unavailable("body_too_large", f"the endpoint's answer has more than {ANSWER_BYTES_MAX} bytes")
        return b"".join(pieces)


def _batch_of(request: ModelRequest) -> str:
    told = [message.text for message in request.messages if isinstance(message, UserMessage)]
    lines = told[-1].strip().splitlines() if told else []
    return lines[-1].strip() if lines else ""


def _class_of(fault: PalyraError) -> ModelError:
    if fault.code.isdigit():
        status = int(fault.code)
        return _ERRORS.get(status, ModelError.OVERLOADED if status >= 500 else ModelError.BAD_REQUEST)
    if fault.code in ("protocol", "body_too_large"):
        return ModelError.PROTOCOL
    return ModelError.TIMEOUT if fault.code == "timed_out" else ModelError.NETWORK


def _vectors_of(answer: _Answer, count: int) -> tuple[bytes, ...] | None:
    """Returns vectors of length one in the order of the texts; None if one is missing or has another width."""
    import numpy

    entries = sorted(answer.data, key=lambda entry: entry.index)
    widths = {len(entry.embedding) for entry in entries}
    if (
        [entry.index for entry in entries] != list(range(count))
        or len(widths) != 1
        or not 0 < max(widths) <= DIMENSIONS_MAX
    ):
        return None
    matrix = numpy.array([entry.embedding for entry in entries], dtype=numpy.float32)
    lengths = numpy.linalg.norm(matrix, axis=1, keepdims=True)
    return tuple(row.tobytes() for row in (matrix / numpy.maximum(lengths, 1e-9)).astype("<f4"))
