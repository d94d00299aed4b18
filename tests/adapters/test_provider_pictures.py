"""Images in each wire format: exactly the bytes, in the vendors' own form, and never a refusal that ends a session."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from palyra.adapters.net.client import HttpClient
from palyra.adapters.providers.exchange import WireModel
from palyra.adapters.providers.image_parts import BLIND, REFUSED
from palyra.core.context.messages import AssistantMessage, Message, PastCall, ToolMessage, UserMessage
from palyra.core.events.model import ModelError
from palyra.core.images import ENCODED_BYTES_MAX, IMAGE_BYTES_MAX
from palyra.ports.provider import Completed, Failed, Image, ModelRequest
from tests.adapters.test_provider_oracles import PARAMETERS, find_misfit
from tests.support.images import attached, jpeg, png
from tests.support.provider_answers import ADAPTERS, Told, ask, hello, make, request
from tests.support.stand_in_provider import Played, StandInProvider, refusal

pytestmark = pytest.mark.anyio
KINDS = pytest.mark.parametrize("kind", sorted(ADAPTERS))
SIGHTED = {"a-model": WireModel(id="a-model", takes_images=True)}
CAT, DOG = png(2, 3), jpeg(4, 5)
IMAGES = {
    attached(CAT).artifact_id: Image("image/png", CAT),
    attached(DOG).artifact_id: Image("image/jpeg", DOG),
}
LOOK = UserMessage("Look.\n[image cat.png]\n[image dog.jpg]", (attached(CAT), attached(DOG, "dog.jpg", "image/jpeg")))


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.close()


def showing(*messages: Message, images: dict[str, Image] = IMAGES) -> ModelRequest:
    return request(*messages, images=images)


async def sent(
    kind: str, client: HttpClient, asked: ModelRequest, *answers: Played, models: dict[str, WireModel] = SIGHTED
) -> tuple[list[dict[str, Any]], Told]:
    async with StandInProvider(*(answers or (Played(body=hello(kind)),))) as server:
        told = await ask(make(kind, server.url, client, models=models), asked)
        return [asked.body for asked in server.asked], told


def content_of(kind: str, body: dict[str, Any], at: int = -1) -> Any:
    return body["input" if kind == "openai-responses" else "messages"][at]["content"]


def images_in(kind: str, body: dict[str, Any]) -> list[tuple[str, bytes]]:
    """Type and bytes of every image of a body, decoded as strictly as can be."""
    messages = body["input" if kind == "openai-responses" else "messages"]
    parts = [part for message in messages for part in message.get("content") or () if isinstance(part, dict)]
    found = []
    for part in parts:
        match part:
            case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "input_image", "image_url": str(url)}:
                head, _, data = url.partition(",")
                assert head.startswith("data:")
                assert head.endswith(";base64")
                found.append((head[5:-7], base64.b64decode(data, validate=True)))
            case {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}:
                found.append((media_type, base64.b64decode(data, validate=True)))
    return found


def text_in(kind: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    (text,) = [part["text"] for part in content if "text" in part]
    return str(text)


@KINDS
async def test_images_arrive_with_exactly_their_bytes_before_the_text(kind: str, client: HttpClient) -> None:
    (body,), told = await sent(kind, client, showing(LOOK))
    assert told.text == "Hello."
    assert images_in(kind, body) == [("image/png", CAT), ("image/jpeg", DOG)]
    content = content_of(kind, body)
    assert len(content) == 3
    assert content[2]["text"] == LOOK.text


async def test_parts_have_their_formats_own_form(client: HttpClient) -> None:
    data = base64.b64encode(CAT).decode()
    cat = UserMessage("Look.", (attached(CAT),))
    chat, responses, messages = [
        content_of(kind, (await sent(kind, client, showing(cat)))[0][0])
        for kind in ("openai-chat", "openai-responses", "anthropic-messages")
    ]
    url = f"data:image/png;base64,{data}"
    assert chat == [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "Look."}]
    assert responses == [
        {"type": "input_image", "detail": "auto", "image_url": url},
        {"type": "input_text", "text": "Look."},
    ]
    assert messages == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        {"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}},
    ]


@KINDS
async def test_what_is_sent_fits_the_vendors_own_types(kind: str, client: HttpClient) -> None:
    calls = AssistantMessage("I read.", (PastCall("c1_RUN", "fs.read", {"path": "a"}),))
    talk = (LOOK, calls, ToolMessage("c1_RUN", "A"), UserMessage("This too.", (attached(CAT),)), UserMessage("Well?"))
    (body,), _ = await sent(kind, client, showing(*talk))
    assert find_misfit(body, PARAMETERS[kind]) is None
    assert [data for _, data in images_in(kind, body)] == [CAT, DOG, CAT]


async def test_results_of_tools_stay_before_an_image_that_steers(client: HttpClient) -> None:
    calls = AssistantMessage("", (PastCall("c1_RUN", "fs.read", {"path": "a"}),))
    talk = (UserMessage("Go."), calls, ToolMessage("c1_RUN", "A"), UserMessage("See.", (attached(CAT),)))
    (body,), _ = await sent("anthropic-messages", client, showing(*talk))
    assert [block["type"] for block in content_of("anthropic-messages", body)] == ["tool_result", "image", "text"]


@KINDS
async def test_largest_image_goes_through_whole(kind: str, client: HttpClient) -> None:
    largest = png(filler=bytes(range(256)) * (IMAGE_BYTES_MAX // 256 - 1))
    message = UserMessage("Look.", (attached(largest),))
    images = {attached(largest).artifact_id: Image("image/png", largest)}
    (body,), told = await sent(kind, client, showing(message, images=images))
    assert told.text == "Hello."
    assert images_in(kind, body) == [("image/png", largest)]
    assert len(base64.b64encode(largest)) <= ENCODED_BYTES_MAX


@KINDS
@pytest.mark.parametrize("models", [{}, {"a-model": WireModel(id="a-model")}])
async def test_model_without_vision_is_told_in_words(
    kind: str, models: dict[str, WireModel], client: HttpClient
) -> None:
    (body,), told = await sent(kind, client, showing(LOOK), models=models)
    assert told.text == "Hello."
    assert images_in(kind, body) == []
    words = text_in(kind, content_of(kind, body))
    assert words.startswith(LOOK.text)
    assert f"[image cat.png not shown: {BLIND}]" in words
    assert f"[image dog.jpg not shown: {BLIND}]" in words
    if kind != "anthropic-messages":
        assert isinstance(content_of(kind, body), str)


REFUSALS = [
    (400, "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum: 6275800 bytes > 5242880 bytes"),
    (400, "Invalid content type. image_url is only supported by certain models."),
    (400, "You uploaded an unsupported image. Please make sure your image is valid."),
    (404, "No endpoints found that support image input"),
    (422, "messages[1].content must be a string"),
    (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
    (413, "Request Entity Too Large"),
]


@KINDS
@pytest.mark.parametrize(("status", "said"), REFUSALS)
async def test_images_a_provider_refuses_do_not_end_the_call(
    kind: str, status: int, said: str, client: HttpClient
) -> None:
    bodies, told = await sent(kind, client, showing(LOOK), refusal(status, said), Played(body=hello(kind)))
    assert isinstance(told.last, Completed)
    assert [len(images_in(kind, body)) for body in bodies] == [2, 0]
    assert REFUSED in text_in(kind, content_of(kind, bodies[1]))


@KINDS
async def test_refusal_of_one_conversations_images_is_not_held_against_the_next(kind: str, client: HttpClient) -> None:
    async with StandInProvider(refusal(400, "Could not process image"), Played(body=hello(kind))) as server:
        provider = make(kind, server.url, client, models=SIGHTED)
        for _ in range(2):
            assert (await ask(provider, showing(LOOK))).text == "Hello."
        assert [len(images_in(kind, asked.body)) for asked in server.asked] == [2, 0, 2]


@KINDS
@pytest.mark.parametrize(
    ("status", "said", "code"),
    [
        (400, "Unknown model", ModelError.BAD_REQUEST),
        (401, "invalid api key for images", ModelError.AUTH),
        (400, "The image was flagged by our safety system", ModelError.CONTENT_FILTER),
    ],
)
async def test_other_refusals_are_told_as_they_are(
    kind: str, status: int, said: str, code: ModelError, client: HttpClient
) -> None:
    bodies, told = await sent(kind, client, showing(LOOK), refusal(status, said))
    assert isinstance(told.last, Failed)
    assert told.last.code is code
    assert len(bodies) == 1


@KINDS
async def test_refusal_about_images_without_any_is_the_last_word(kind: str, client: HttpClient) -> None:
    bodies, told = await sent(kind, client, request(UserMessage("Draw an image.")), refusal(400, "no images here"))
    assert isinstance(told.last, Failed)
    assert len(bodies) == 1
