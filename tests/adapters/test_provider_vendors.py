"""Other vendors through pydantic-ai: its real models against the stand-in, and its function model for what no wire shows."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.profiles import ModelProfile

from palyra.adapters.net.client import HttpClient, Timeouts
from palyra.adapters.providers.exchange import BodyDraft, ProviderEndpoint, WireModel
from palyra.adapters.providers.provider_state import keep
from palyra.adapters.providers.pydantic_ai_messages import keep_answer, make_messages
from palyra.adapters.providers.pydantic_ai_vendors import PydanticAi
from palyra.adapters.providers.wire_names import names_of
from palyra.core.context.messages import AssistantMessage, Message, PastCall, ToolMessage, UserMessage
from palyra.core.errors import Invalid, Unavailable
from palyra.core.events.base import JsonObject
from palyra.core.events.model import Finish, ModelError
from palyra.core.events.run import Attachment
from palyra.core.tools import ToolSpec
from palyra.ports.provider import Completed, Failed, Image, TextDelta
from tests.support.provider_answers import (
    AT_ONCE,
    KEY,
    ask,
    chat,
    half_hello,
    hello,
    make,
    messages,
    request,
    responses,
    text_block,
    text_item,
    tool_block,
)
from tests.support.stand_in_provider import Played, StandInProvider, refusal
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.anyio
MODEL = "openai-chat:a-model"
PATIENT = Timeouts(first_byte_s=60, idle_s=60)  # The first call of a vendor imports its library.
TOOLS = (
    ToolSpec(
        name="fs.read",
        description="Reads.",
        input_schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    ),
)
TALK: tuple[Message, ...] = (
    UserMessage("Read it."),
    AssistantMessage("I read.", (PastCall("c1_RUN", "fs.read", {"path": "a"}),)),
    ToolMessage("c1_RUN", "", is_error=True),
    UserMessage("Well?"),
)
USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 9,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 16},
    "completion_tokens_details": {"reasoning_tokens": 4},
}
Make = Callable[..., PydanticAi]


@pytest.fixture
async def vendors() -> AsyncIterator[Make]:
    """Makes providers and closes them."""
    made: list[PydanticAi] = []

    def build(url: str | None, wire: WireModel | None = None, timeouts: Timeouts = PATIENT, **more: Any) -> PydanticAi:
        models = {"a-model": wire or WireModel(id=MODEL)}
        endpoint = ProviderEndpoint(name="standin", base_url=url, timeouts=timeouts, pace=AT_ONCE, models=models)
        made.append(PydanticAi(endpoint, more.pop("key", lambda: KEY), **more))
        return made[-1]

    yield build
    for provider in made:
        await provider.close()


def v1(server: StandInProvider) -> str:
    return f"{server.url}/v1"


ANSWERS = {
    "text": chat({"role": "assistant", "content": "Ahoj "}, {"content": "světe 🐎"}, usage=USAGE),
    "cut off": chat({"content": "A long"}, finish="length", usage=USAGE),
    "filtered": chat({"content": "A"}, finish="content_filter", usage=USAGE),
    "refused": chat({"refusal": "I will not."}, usage=USAGE),
    "no usage": chat({"content": "Hm."}),
    "calls": chat(
        {"content": "Both."},
        {
            "tool_calls": [
                {"index": 0, "id": "a", "type": "function", "function": {"name": "fs__read", "arguments": ""}}
            ]
        },
        {
            "tool_calls": [
                {"index": 1, "id": "b", "type": "function", "function": {"name": "second", "arguments": "{}"}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"path":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"a"}'}}]},
        finish="tool_calls",
        usage=USAGE,
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_answer_is_the_one_our_own_adapter_hears(name: str, vendors: Make) -> None:
    client = HttpClient()
    async with StandInProvider(Played(body=ANSWERS[name], reads=5)) as server:
        asked = request(UserMessage("Hi."), tools=TOOLS)
        ours = await ask(make("openai-chat", server.url, client), asked)
        theirs = await ask(vendors(v1(server)), asked)
    await client.close()
    assert (theirs.text, theirs.calls, theirs.reasoning) == (ours.text, ours.calls, ours.reasoning)
    assert isinstance(theirs.last, Completed)
    assert isinstance(ours.last, Completed)
    assert (theirs.last.finish, theirs.last.usage) == (ours.last.finish, ours.last.usage)


async def test_text_arrives_while_the_vendor_is_still_speaking(vendors: Make) -> None:
    stalling = Played(body=half_hello("openai-chat"), then="stall")
    async with (
        StandInProvider(stalling) as server,
        aclosing(vendors(v1(server)).stream(request(UserMessage("Hi.")))) as deltas,
    ):
        assert await anext(deltas) == TextDelta("Hel")


async def test_conversation_has_the_wires_form(vendors: Make) -> None:
    async with StandInProvider(Played(body=hello("openai-chat"))) as server:
        await ask(vendors(v1(server)), request(*TALK, tools=TOOLS, max_output_tokens=99))
    (asked,) = server.asked
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert (asked.body["model"], asked.body["stream"]) == ("a-model", True)
    assert [tool["function"]["name"] for tool in asked.body["tools"]] == ["fs__read"]
    assert 99 in (asked.body.get("max_tokens"), asked.body.get("max_completion_tokens"))
    said = asked.body["messages"]
    assert [each["role"] for each in said] == ["system", "user", "assistant", "tool", "user"]
    assert (said[0]["content"], said[1]["content"], said[4]["content"]) == ("Be brief.", "Read it.", "Well?")
    (call,) = said[2]["tool_calls"]
    assert (call["id"], call["function"]) == ("c1_RUN", {"name": "fs__read", "arguments": '{"path":"a"}'})
    assert said[3]["tool_call_id"] == "c1_RUN"
    assert "(no output)" in said[3]["content"]


async def test_tools_are_not_offered_to_a_model_without_them(vendors: Make) -> None:
    async with StandInProvider(Played(body=hello("openai-chat"))) as server:
        wire = WireModel(id=MODEL, takes_tools=False, max_output_tokens=7)
        await ask(vendors(v1(server), wire), request(UserMessage("Hi."), tools=TOOLS, max_output_tokens=99))
    assert "tools" not in server.asked[0].body
    assert 7 in server.asked[0].body.values()


async def test_images_go_along_where_they_are_taken_and_are_told_of_where_not(vendors: Make) -> None:
    attached = Attachment(artifact_id="01JZ000000000000000PICTURE", name="a.png", media_type="image/png", bytes=4)
    asked = request(
        UserMessage("[image a.png]", (attached,)), images={attached.artifact_id: Image("image/png", b"\x89PNG")}
    )
    async with StandInProvider(Played(body=hello("openai-chat"))) as server:
        await ask(vendors(v1(server), WireModel(id=MODEL, takes_images=True)), asked)
        await ask(vendors(v1(server)), asked)
    seen, blind = (str(each.body["messages"][1]["content"]) for each in server.asked)
    assert "data:image/png;base64,iVBORw==" in seen
    assert "iVBOR" not in blind
    assert "not shown" in blind


SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


async def test_schema_refused_by_the_vendor_becomes_a_wish(vendors: Make) -> None:
    refused = refusal(400, "Unknown parameter: response_format")
    async with StandInProvider(refused, Played(body=hello("openai-chat"))) as server:
        provider = vendors(v1(server))
        asked = request(UserMessage("Hi."), answer_schema=SCHEMA)
        assert (await ask(provider, asked)).text == "Hello."
        await ask(provider, asked)
    first, second, third = (each.body for each in server.asked)
    assert first["response_format"]["json_schema"]["schema"]["properties"] == SCHEMA["properties"]
    assert "JSON Schema" not in first["messages"][0]["content"]
    for body in (second, third):
        assert "response_format" not in body
        assert "JSON Schema" in body["messages"][0]["content"]


# Thinking, and what goes back.

THOUGHT = {
    "start": {"type": "thinking", "thinking": "", "signature": ""},
    "deltas": [{"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "c2lnbmVk"}],
}


async def think(vendors: Make, server: StandInProvider) -> tuple[PydanticAi, AssistantMessage]:
    provider = vendors(server.url, WireModel(id="anthropic:claude-a"))
    told = await ask(provider, request(UserMessage("Read it."), tools=TOOLS))
    assert isinstance(told.last, Completed)
    assert (told.reasoning, told.text, told.last.finish) == ("Hm.", "I read.", Finish.TOOL_CALLS)
    assert told.calls == [("fs.read", '{"path":"a"}')]
    past = (PastCall("c1_RUN", "fs.read", {"path": "a"}),)
    return provider, AssistantMessage(told.text, past, told.last.provider_state)


async def sent_back(provider: PydanticAi, server: StandInProvider, message: AssistantMessage) -> list[JsonObject]:
    talk = (UserMessage("Read it."), message, ToolMessage("c1_RUN", "A"))
    await ask(provider, request(*talk, tools=TOOLS))
    content: list[JsonObject] = server.asked[-1].body["messages"][1]["content"]
    return content


async def test_signed_thinking_is_kept_and_given_back(vendors: Make) -> None:
    blocks = messages(THOUGHT, text_block("I read."), tool_block("fs__read", '{"path":', '"a"}'), stop="tool_use")
    async with StandInProvider(Played(body=blocks)) as server:
        provider, message = await think(vendors, server)
        content = await sent_back(provider, server, message)
    assert content[0] == {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
    assert [block["type"] for block in content] == ["thinking", "text", "tool_use"]
    assert content[2]["id"] == "c1_RUN"
    assert server.asked[-1].body["messages"][2]["content"][0]["tool_use_id"] == "c1_RUN"


@pytest.mark.parametrize("change", ["another model's", "redacted", "a call is missing", "garbled", "none"])
async def test_state_that_does_not_fit_is_left_out_and_the_words_stay(change: str, vendors: Make) -> None:
    blocks = messages(THOUGHT, text_block("I read."), tool_block("fs__read", '{"path":"a"}'), stop="tool_use")
    async with StandInProvider(Played(body=blocks)) as server:
        provider, message = await think(vendors, server)
        state = message.provider_state or {}
        message = {
            "another model's": replace(message, provider_state={**state, "origin": "pydantic-ai/standin/other"}),
            "redacted": replace(message, text="I read‹secret›."),
            "a call is missing": replace(message, provider_state={**state, "answer": {"parts": []}}),
            "garbled": replace(message, provider_state={**state, "answer": {"parts": 3}}),
            "none": replace(message, provider_state=None),
        }[change]
        content = await sent_back(provider, server, message)
    assert [block["type"] for block in content] == ["text", "tool_use"]
    assert content[0]["text"] == message.text


def draft_of(*said: Message, **more: Any) -> BodyDraft:
    asked = request(*said, **more)
    return BodyDraft(request=asked, names=names_of(asked), model_id="m", origin="o", tools=asked.tools)


PLAIN = FunctionModel(stream_function=lambda said, info: speak())
DETAILS = st.none() | st.dictionaries(st.text(max_size=5), st.text() | st.integers(0, 99) | st.none(), max_size=3)
PARTS: st.SearchStrategy[TextPart | ThinkingPart | ToolCallPart] = st.one_of(
    st.builds(TextPart, st.text(min_size=1), id=st.none() | st.text(max_size=5), provider_details=DETAILS),
    st.builds(ThinkingPart, st.text(), signature=st.none() | st.text(), provider_details=DETAILS),
    st.builds(
        ToolCallPart, st.just("t"), st.just({"a": 1}), st.uuids().map(str), provider_details=DETAILS, id=st.none()
    ),
)


@given(st.lists(PARTS, min_size=1, max_size=6))
def test_whatever_a_vendor_said_comes_back_as_it_was(parts: list[TextPart | ThinkingPart | ToolCallPart]) -> None:
    said = ModelResponse(parts, provider_name="p", model_name="m")
    text = "".join(part.content for part in parts if isinstance(part, TextPart))
    calls = tuple(PastCall(part.tool_call_id, "t", {"a": 1}) for part in parts if isinstance(part, ToolCallPart))
    message = AssistantMessage(text, calls, keep("o", keep_answer(said)))
    back = make_messages(draft_of(UserMessage("?"), message), PLAIN)[1]
    assert isinstance(back, ModelResponse)
    if message.provider_state is not None:
        assert back.parts == parts
        assert (back.provider_name, back.model_name) == ("p", "m")
    assert back.text == said.text or back.text == (text or None)
    assert [call.tool_call_id for call in back.tool_calls] == [call.call_id for call in calls]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_state_of_any_form_leaves_the_conversation_whole(answer: Any) -> None:
    message = AssistantMessage("Said.", (), {"origin": "o", "answer": answer})
    back = make_messages(draft_of(UserMessage("?"), message), PLAIN)[1]
    assert isinstance(back, ModelResponse)
    assert back.text == "Said."


# What no wire shows.


async def speak(*pieces: Any) -> AsyncGenerator[Any, None]:
    for piece in pieces or ("Hello.",):
        yield piece


def function(
    *pieces: Any, profile: ModelProfile | None = None
) -> tuple[Any, list[tuple[list[ModelMessage], AgentInfo]]]:
    seen: list[tuple[list[ModelMessage], AgentInfo]] = []

    def hear(said: list[ModelMessage], info: AgentInfo) -> AsyncGenerator[Any, None]:
        seen.append((said, info))
        return speak(*pieces)

    model = FunctionModel(stream_function=hear, profile=profile)
    return (lambda model_id, base_url, key: model), seen


async def test_reasoning_and_calls_of_any_vendor_are_heard(vendors: Make) -> None:
    pieces = (
        {0: DeltaThinkingPart(content="Let me ")},
        {0: DeltaThinkingPart(content="see.", signature="s")},
        {1: DeltaToolCall(name="fs__read", json_args='{"pa', tool_call_id="x")},
        {2: DeltaToolCall(name="gone.tool", json_args="{broken", tool_call_id="y")},
        {1: DeltaToolCall(json_args='th":1}')},
    )
    build, seen = function(*pieces)
    told = await ask(vendors(None, build=build), request(UserMessage("Hi."), tools=TOOLS))
    assert told.reasoning == "Let me see."
    assert told.calls == [("fs.read", '{"path":1}'), ("gone.tool", "{broken")]
    assert isinstance(told.last, Completed)
    assert told.last.finish is Finish.TOOL_CALLS
    assert told.last.provider_state is not None
    ((_, info),) = seen
    assert [tool.name for tool in info.function_tools] == ["fs__read"]
    assert info.instructions == "Be brief."


async def test_ids_fit_the_vendors_length_on_both_sides(vendors: Make) -> None:
    build, seen = function("Done.", profile=ModelProfile(tool_call_id_length=9))
    await ask(vendors(None, build=build), request(*TALK))
    said = seen[0][0]
    (call,) = [part for part in said[1].parts if isinstance(part, ToolCallPart)]
    (result,) = [part for part in said[2].parts if isinstance(part, ToolReturnPart)]
    assert len(call.tool_call_id) == 9
    assert (result.tool_call_id, result.tool_name, result.outcome) == (call.tool_call_id, "fs__read", "failed")


async def test_conversation_never_begins_with_the_assistant_and_is_never_empty() -> None:
    kinds = [each.kind for each in make_messages(draft_of(AssistantMessage("a"), AssistantMessage("b")), PLAIN)]
    assert kinds == ["request", "response", "response"]
    assert [each.kind for each in make_messages(draft_of(), PLAIN)] == ["request"]


async def test_closing_the_stream_closes_the_vendors(vendors: Make) -> None:
    begun, closed = asyncio.Event(), asyncio.Event()

    async def endless(said: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        try:
            yield "first"
            begun.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    model = FunctionModel(stream_function=endless)
    task = asyncio.create_task(ask(vendors(None, build=lambda *_: model), request(UserMessage("Hi."))))
    async with asyncio.timeout(WAIT_S):
        await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(WAIT_S):
        await closed.wait()


async def test_closing_the_stream_closes_its_connection(vendors: Make) -> None:
    async with StandInProvider(Played(body=half_hello("openai-chat"), then="endless")) as server:
        stream = vendors(v1(server)).stream(request(UserMessage("Hi.")))
        assert await anext(stream) == TextDelta("Hel")
        await stream.aclose()
        # The stand-in writes until nobody listens.
        _, playing = await asyncio.wait(server._tasks, timeout=WAIT_S)
        assert not playing


# Failures.


@pytest.mark.parametrize(
    ("played", "code", "words"),
    [
        (refusal(401, f"Incorrect API key: {KEY}"), ModelError.AUTH, "api_key"),
        (refusal(403, "Not for you."), ModelError.AUTH, "Not for you"),
        (refusal(402, "Payment required"), ModelError.QUOTA, "Top it up"),
        (refusal(429, "x", code="insufficient_quota"), ModelError.QUOTA, "Top it up"),
        (refusal(429, "Slow down."), ModelError.RATE, "Slow down"),
        (refusal(500, "Oops."), ModelError.OVERLOADED, "Try again later"),
        (refusal(400, "maximum context length is 8 tokens"), ModelError.CONTEXT_LENGTH, "too long"),
        (refusal(400, "x", code="context_length_exceeded"), ModelError.CONTEXT_LENGTH, "too long"),
        (refusal(400, "flagged", code="content_filter"), ModelError.CONTENT_FILTER, "Rephrase"),
        (refusal(404, "no such model"), ModelError.BAD_REQUEST, "no such model"),
        (refusal(400, f"bad {KEY} thing"), ModelError.BAD_REQUEST, "bad … thing"),
        (Played(body=b"<html>", content_type="text/html"), ModelError.PROTOCOL, "Check `kind`"),
        (Played(body=b'{"a": 1}', content_type="application/json"), ModelError.PROTOCOL, "Check `kind`"),
        (Played(raw=b"nonsense\r\n\r\n", then="cut"), ModelError.NETWORK, "network"),
        (Played(body=chat(finish=None)), ModelError.PROTOCOL, "empty"),
    ],
    ids=lambda value: value.value if isinstance(value, ModelError) else "",
)
async def test_refusal_has_its_class_and_says_what_to_do(
    played: Played, code: ModelError, words: str, vendors: Make
) -> None:
    async with StandInProvider(played) as server:
        told = await ask(vendors(v1(server)), request(UserMessage("Hi.")))
    assert isinstance(told.last, Failed)
    assert told.last.code is code, told.last
    assert words in told.last.message
    assert told.last.message.startswith("standin ")
    assert KEY not in told.last.message


async def test_error_inside_the_stream_is_a_failure(vendors: Make) -> None:
    body = half_hello("openai-chat") + b'data: {"error": {"message": "The server is overloaded", "code": 503}}\n\n'
    async with StandInProvider(Played(body=body)) as server:
        told = await ask(vendors(v1(server)), request(UserMessage("Hi.")))
    assert told.text == "Hel"
    assert isinstance(told.last, Failed)
    assert told.last.code is ModelError.OVERLOADED


async def test_nobody_listening_is_a_failure_of_the_network(vendors: Make) -> None:
    async with StandInProvider(Played()) as server:
        url = v1(server)
    told = await ask(vendors(url), request(UserMessage("Hi.")))
    assert isinstance(told.last, Failed)
    assert told.last.code is ModelError.NETWORK


async def test_failure_before_the_first_token_is_tried_again(vendors: Make) -> None:
    busy = refusal(429, "Slow down.", headers={"Retry-After": "0"})
    async with StandInProvider(busy, refusal(503, "busy"), Played(body=hello("openai-chat"))) as server:
        told = await ask(vendors(v1(server)), request(UserMessage("Hi.")))
    assert told.text == "Hello."
    assert len(server.asked) == 3


async def test_vendors_library_makes_no_attempts_of_its_own(vendors: Make) -> None:
    async with StandInProvider(refusal(503, "busy")) as server:
        told = await ask(vendors(v1(server)), request(UserMessage("Hi.")))
    assert isinstance(told.last, Failed)
    assert len(server.asked) == 1 + AT_ONCE.retries


async def test_long_retry_after_is_told_and_not_waited_for(vendors: Make) -> None:
    async with StandInProvider(refusal(429, "Slow down.", headers={"Retry-After": "3600"})) as server:
        told = await ask(vendors(v1(server)), request(UserMessage("Hi.")))
    assert isinstance(told.last, Failed)
    assert (told.last.code, told.last.retry_after_s, len(server.asked)) == (ModelError.RATE, 3600, 1)


@pytest.mark.parametrize(
    "kind",
    ["openai-chat", "openai-responses", "anthropic"],
)
@pytest.mark.parametrize("then", ["cut", "end"])
async def test_half_an_answer_is_never_whole_and_never_asked_for_again(kind: str, then: str, vendors: Make) -> None:
    body = {
        "openai-chat": half_hello("openai-chat"),
        "openai-responses": responses(text_item("Hel"), status=None),
        "anthropic": messages(text_block("Hel"), stop=None),
    }[kind]
    async with StandInProvider(Played(body=body, then=then)) as server:
        url = server.url if kind == "anthropic" else v1(server)
        told = await ask(vendors(url, WireModel(id=f"{kind}:m")), request(UserMessage("Hi.")))
    assert told.text == "Hel"
    assert isinstance(told.last, Failed)
    assert told.last.code is ModelError.NETWORK
    assert len(server.asked) == 1


@pytest.mark.parametrize("played", [Played(is_silent=True), Played(body=half_hello("openai-chat"), then="stall")])
async def test_silence_ends_the_call(played: Played, vendors: Make) -> None:
    timeouts = Timeouts(connect_s=WAIT_S, first_byte_s=0.3, idle_s=0.3)
    async with StandInProvider(played) as server:
        told = await ask(vendors(v1(server), timeouts=timeouts), request(UserMessage("Hi.")))
    assert isinstance(told.last, Failed)
    assert told.last.code is ModelError.TIMEOUT
    assert "0.3 s" in told.last.message


# Keys, packages and vendors.


async def test_key_is_read_anew_and_goes_into_no_environment(vendors: Make) -> None:
    keys = ["sk-first", "sk-first", "sk-second"]
    async with StandInProvider(Played(body=hello("openai-chat"))) as server:
        provider = vendors(v1(server), key=lambda: keys.pop(0))
        for _ in range(3):
            await ask(provider, request(UserMessage("Hi.")))
    assert [each.headers["authorization"] for each in server.asked] == [
        "Bearer sk-first",
        "Bearer sk-first",
        "Bearer sk-second",
    ]
    assert server.connection_count == 2
    assert not any("sk-first" in value or "sk-second" in value for value in os.environ.values())


async def test_key_that_cannot_be_had_is_told(vendors: Make) -> None:
    def missing() -> str | None:
        raise Unavailable("secret_missing", "env:NAME is not set")

    for key in (missing, lambda: "two\nlines"):
        told = await ask(vendors(None, key=key), request(UserMessage("Hi.")))
        assert isinstance(told.last, Failed)
        assert told.last.code is ModelError.AUTH


@pytest.mark.parametrize(
    ("model_id", "url", "code", "words"),
    [
        ("groq:a", None, ModelError.NO_MODEL, "pydantic-ai-slim[groq]"),
        ("google:a", None, ModelError.NO_MODEL, "pydantic-ai-slim[google]"),
        ("bedrock:a", None, ModelError.NO_MODEL, "pydantic-ai-slim[bedrock]"),
        ("nobody:a", None, ModelError.BAD_REQUEST, "no vendor 'nobody'"),
        ("deepseek:a", "http://127.0.0.1:1", ModelError.BAD_REQUEST, "takes no `base_url`"),
    ],
)
async def test_vendor_that_cannot_be_used_says_why(
    model_id: str, url: str | None, code: ModelError, words: str, vendors: Make
) -> None:
    told = await ask(vendors(url, WireModel(id=model_id)), request(UserMessage("Hi.")))
    assert isinstance(told.last, Failed)
    assert told.last.code is code, told.last
    assert words in told.last.message


async def test_vendor_without_a_key_says_so(vendors: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    told = await ask(vendors(None, WireModel(id="deepseek:a"), key=lambda: None), request(UserMessage("Hi.")))
    assert isinstance(told.last, Failed)
    assert told.last.code is ModelError.AUTH
    assert "Set `api_key`" in told.last.message


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(Invalid) as caught:
        PydanticAi(ProviderEndpoint(name="other"), lambda: None)
    assert "pip install 'palyra[vendors]'" in caught.value.message


def test_id_without_a_vendor_is_refused_before_anything_is_called() -> None:
    with pytest.raises(Invalid) as caught:
        PydanticAi(ProviderEndpoint(name="other", models={"m": WireModel(id="gemini-2.5-pro")}), lambda: None)
    assert "google:gemini-2.5-pro" in caught.value.message


def test_building_the_provider_imports_nothing_large() -> None:
    code = (
        "import sys\n"
        "from palyra.adapters.providers.exchange import ProviderEndpoint\n"
        "from palyra.adapters.providers.pydantic_ai_vendors import PydanticAi\n"
        "PydanticAi(ProviderEndpoint(name='other'), lambda: None)\n"
        "sys.exit('pydantic_ai' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=WAIT_S).returncode == 0
