"""The embedders: vectors of length one, the published values of MiniLM, and an endpoint over real HTTP."""

import array
import math
import socket
from typing import NoReturn

import pytest

from palyra.adapters.embedders.bundled import DIMENSIONS, BundledEmbedder
from palyra.adapters.embedders.endpoint import EmbeddingModel, EndpointEmbeddings
from palyra.adapters.embedders.minilm import MiniLmEmbedder, is_installed
from palyra.adapters.net.client import HttpClient
from palyra.core.context.messages import UserMessage
from palyra.core.events.model import Finish, ModelError, Usage
from palyra.core.ids import Principal
from palyra.ports.provider import Completed, Delta, Failed, ModelRequest, TextDelta
from tests.support.sites import Site, ok
from tests.support.sites import site as serving

pytestmark = pytest.mark.anyio

OWNER = Principal("user:owner")
WEATHER = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
# The values that the documentation of Sentence Transformers shows for these sentences, and the beginning of one vector.
REFERENCE = {(0, 1): 0.6660, (0, 2): 0.1046, (1, 2): 0.1411}
EXAMPLE = ("This is an example sentence", (0.0677, 0.0635, 0.0487, 0.0793, 0.0374))


def floats(vector: bytes) -> list[float]:
    return array.array("f", vector).tolist()


def cosine(first: bytes, second: bytes) -> float:
    return sum(one * other for one, other in zip(floats(first), floats(second), strict=True))


async def test_the_bundled_embedder_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("the embedder opened a socket")

    embedder = BundledEmbedder()
    monkeypatch.setattr(socket.socket, "connect", refuse)
    vectors = await embedder.embed(["my puppy", "a young dog", "quarterly tax return", "", "\ud800"], OWNER)
    assert {len(floats(vector)) for vector in vectors} == {DIMENSIONS}
    assert math.isclose(cosine(vectors[0], vectors[0]), 1, abs_tol=1e-5)
    assert cosine(vectors[0], vectors[1]) > cosine(vectors[0], vectors[2])
    assert cosine(vectors[3], vectors[3]) == 0


def test_words_of_like_meaning_are_close() -> None:
    embedder = BundledEmbedder()
    close = embedder.closest(["dog", "zebra"], [["my", "puppy"], ["a", "dog"], ["invoice"], []])
    assert math.isclose(close[1][0], 1, abs_tol=1e-4)
    assert close[1][0] > close[0][0] > close[2][0]
    assert close[3] == [0, 0]
    assert embedder.closest(["dog"], [["the"], []]) == [[0], [0]]


@pytest.mark.skipif(not is_installed(), reason="the weights of MiniLM are not installed (requirements/minilm.txt)")
async def test_minilm_gives_the_published_values() -> None:
    vectors = await MiniLmEmbedder().embed([*WEATHER, EXAMPLE[0]], OWNER)
    for (one, other), expected in REFERENCE.items():
        assert math.isclose(cosine(vectors[one], vectors[other]), expected, abs_tol=2e-4)
    assert [round(part, 4) for part in floats(vectors[3])[:5]] == pytest.approx(EXAMPLE[1], abs=2e-4)


@pytest.mark.skipif(not is_installed(), reason="the weights of MiniLM are not installed (requirements/minilm.txt)")
async def test_texts_computed_together_have_the_vectors_they_have_alone() -> None:
    embedder = MiniLmEmbedder()
    together = await embedder.embed([WEATHER[0], WEATHER[0] + " " + "And so on. " * 20], OWNER)
    (alone,) = await embedder.embed(WEATHER[:1], OWNER)
    assert math.isclose(cosine(together[0], alone), 1, abs_tol=1e-4)


async def ask(site: Site, client: HttpClient, *texts: str) -> tuple[list[Delta], tuple[bytes, ...] | None]:
    model = EmbeddingModel(name="small", id="wire-small", base_url=f"{site.url}/v1/")
    endpoint = EndpointEmbeddings(model, lambda: "key-1", client)
    batch = endpoint.open(texts)
    request = ModelRequest(model="small", instructions="", messages=(UserMessage(f"Embed.\n{batch}"),))
    deltas = [delta async for delta in endpoint.stream(request)]
    return deltas, endpoint.take(batch)


async def test_an_endpoint_is_asked_once_and_its_vectors_are_in_order() -> None:
    body = b'{"data":[{"index":1,"embedding":[0,2]},{"index":0,"embedding":[3,4]}],"usage":{"prompt_tokens":5}}'
    async with serving() as site:
        site.answers["/v1/embeddings"] = ok(body)
        client = HttpClient()
        deltas, vectors = await ask(site, client, "first", "second")
        await client.close()
        assert deltas == [
            TextDelta("Embedded 2 texts."),
            Completed(Finish.STOP, Usage(input_tokens=5, output_tokens=0)),
        ]
        assert vectors is not None
        assert [floats(vector) for vector in vectors] == [pytest.approx([0.6, 0.8]), [0, 1]]
        (sent,) = site.requests
        assert b"Bearer key-1" in sent
        assert b'"input":["first","second"]' in sent


@pytest.mark.parametrize(
    "usage", [b"", b',"usage":{}', b',"usage":{"prompt_tokens":0}', b',"usage":{"prompt_tokens":-4}']
)
async def test_an_answer_that_counts_no_tokens_is_one_whose_usage_is_unknown(usage: bytes) -> None:
    """So the run is charged the estimate that was reserved, and not nothing."""
    async with serving() as site:
        site.answers["/v1/embeddings"] = ok(b'{"data":[{"index":0,"embedding":[3,4]}]' + usage + b"}")
        client = HttpClient()
        deltas, vectors = await ask(site, client, "first")
        await client.close()
    assert deltas[-1] == Completed(Finish.STOP, None)
    assert vectors is not None


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ok(b"{}"), ModelError.PROTOCOL),
        (ok(b'{"data":[]}'), ModelError.PROTOCOL),
        (ok(b'{"data":[{"index":0,"embedding":[]}]}'), ModelError.PROTOCOL),
        (ok(b'{"data":[{"index":7,"embedding":[1]}]}'), ModelError.PROTOCOL),
        (ok(b"no", status="429 Too Many Requests"), ModelError.RATE),
        (ok(b"no", status="401 Unauthorized"), ModelError.AUTH),
        (ok(b"no", status="503 Service Unavailable"), ModelError.OVERLOADED),
    ],
)
async def test_an_answer_without_vectors_is_a_failure_of_the_call(answer: bytes, code: ModelError) -> None:
    async with serving() as site:
        site.answers["/v1/embeddings"] = answer
        client = HttpClient()
        deltas, vectors = await ask(site, client, "first")
        await client.close()
    assert [delta.code for delta in deltas if isinstance(delta, Failed)] == [code]
    assert vectors is None


async def test_a_batch_that_is_gone_is_not_sent() -> None:
    async with serving() as site:
        client = HttpClient()
        model = EmbeddingModel(name="small", id="wire-small", base_url=site.url)
        endpoint = EndpointEmbeddings(model, lambda: None, client)
        request = ModelRequest(model="small", instructions="", messages=(UserMessage("Embed.\nabc-1"),))
        (delta,) = [delta async for delta in endpoint.stream(request)]
        await client.close()
        assert isinstance(delta, Failed)
        assert site.requests == []
