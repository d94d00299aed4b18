"""What the adapters send: conversations in each wire format's own form, and answers that come back through it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from palyra.adapters.net.client import HttpClient
from palyra.adapters.providers.bodies import is_strict
from palyra.adapters.providers.exchange import WireModel, join_url
from palyra.adapters.providers.provider_state import STATE_BYTES_MAX, give_back, keep
from palyra.adapters.providers.wire_names import WireNames
from palyra.config import Config, read_config
from palyra.core.context.messages import AssistantMessage, Message, PastCall, ToolMessage, UserMessage
from palyra.core.events.model import Finish
from palyra.core.tools import ToolSpec
from palyra.ports.provider import Completed, ModelRequest
from tests.support.provider_answers import (
    ADAPTERS,
    Told,
    ask,
    call_item,
    chat,
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

pytestmark = pytest.mark.anyio
KINDS = pytest.mark.parametrize("kind", sorted(ADAPTERS))
TOOLS = (
    ToolSpec(
        name="fs.read",
        description="Reads.",
        input_schema={"type": "object", "properties": {"path": {"type": "string"}}},
    ),
    ToolSpec(name="time.now", description="Tells the time.", input_schema={}),
)
LONG_TOOL = "server." + "a_very_long_name_" * 6
TALK: tuple[Message, ...] = (
    UserMessage("Read both."),
    AssistantMessage(
        "I read.", (PastCall("c1_RUN", "fs.read", {"path": "a"}), PastCall("c2_RUN", "time.now", "{broken"))
    ),
    ToolMessage("c1_RUN", "A"),
    ToolMessage("c2_RUN", "", is_error=True),
    UserMessage("Well?"),
)
CLOSED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
OPEN = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.close()


async def sent(
    kind: str, client: HttpClient, asked: ModelRequest, *answers: Played
) -> tuple[list[dict[str, Any]], Told]:
    async with StandInProvider(*(answers or (Played(body=hello(kind)),))) as server:
        told = await ask(make(kind, server.url, client), asked)
        return [asked.body for asked in server.asked], told


async def test_chat_conversation_has_its_form(client: HttpClient) -> None:
    (body,), _ = await sent("openai-chat", client, request(*TALK, tools=TOOLS, max_output_tokens=99))
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Read both."},
        {
            "role": "assistant",
            "content": "I read.",
            "tool_calls": [
                {"id": "c1_RUN", "type": "function", "function": {"name": "fs__read", "arguments": '{"path":"a"}'}},
                {
                    "id": "c2_RUN",
                    "type": "function",
                    "function": {"name": "time__now", "arguments": '{"unparsed":"{broken"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "c1_RUN", "content": "A"},
        {"role": "tool", "tool_call_id": "c2_RUN", "content": "(no output)"},
        {"role": "user", "content": "Well?"},
    ]
    assert body["stream_options"] == {"include_usage": True}
    assert body["max_tokens"] == 99
    assert [tool["function"]["name"] for tool in body["tools"]] == ["fs__read", "time__now"]
    assert body["tools"][1]["function"]["parameters"] == {"type": "object", "properties": {}}


async def test_responses_conversation_has_its_form(client: HttpClient) -> None:
    (body,), _ = await sent("openai-responses", client, request(*TALK, tools=TOOLS, max_output_tokens=3))
    assert body["instructions"] == "Be brief."
    assert body["input"] == [
        {"role": "user", "content": "Read both."},
        {"role": "assistant", "content": "I read."},
        {"type": "function_call", "call_id": "c1_RUN", "name": "fs__read", "arguments": '{"path":"a"}'},
        {"type": "function_call", "call_id": "c2_RUN", "name": "time__now", "arguments": '{"unparsed":"{broken"}'},
        {"type": "function_call_output", "call_id": "c1_RUN", "output": "A"},
        {"type": "function_call_output", "call_id": "c2_RUN", "output": "(no output)"},
        {"role": "user", "content": "Well?"},
    ]
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert (body["max_output_tokens"], body["tools"][0]["strict"]) == (16, False)


async def test_messages_conversation_has_its_form_and_marks_for_the_cache(client: HttpClient) -> None:
    (body,), _ = await sent("anthropic-messages", client, request(*TALK, tools=TOOLS))
    mark = {"cache_control": {"type": "ephemeral"}}
    assert body["system"] == [{"type": "text", "text": "Be brief.", **mark}]
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, {"type": "ephemeral"}]
    assert body["max_tokens"] == 16_384
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Read both.", **mark}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I read."},
                {"type": "tool_use", "id": "c1_RUN", "name": "fs__read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "c2_RUN", "name": "time__now", "input": {"unparsed": "{broken"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1_RUN", "content": "A"},
                {"type": "tool_result", "tool_use_id": "c2_RUN", "content": "(no output)", "is_error": True},
                {"type": "text", "text": "Well?", **mark},
            ],
        },
    ]


async def test_messages_never_begin_with_the_assistant_and_hold_no_empty_text(client: HttpClient) -> None:
    talk = (AssistantMessage("Earlier."), UserMessage(" "))
    (body,), _ = await sent("anthropic-messages", client, ModelRequest(model="m", instructions="", messages=talk))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][2]["content"][0]["text"] == "(empty message)"
    assert "system" not in body


@KINDS
async def test_the_beginning_of_a_request_stays_the_same_between_turns(kind: str, client: HttpClient) -> None:
    (first,), _ = await sent(kind, client, request(*TALK[:1], tools=TOOLS))
    (second,), _ = await sent(kind, client, request(*TALK, tools=TOOLS))
    assert (first["tools"], first.get("system")) == (second["tools"], second.get("system"))
    assert first.get("instructions") == second.get("instructions")
    list_name = "input" if kind == "openai-responses" else "messages"
    assert second[list_name][: len(first[list_name])] == first[list_name]


@KINDS
async def test_model_settings_are_used(kind: str, client: HttpClient) -> None:
    models = {"a-model": WireModel(id="vendor/a-model-1", max_output_tokens=77, takes_tools=False)}
    async with StandInProvider(Played(body=hello(kind))) as server:
        await ask(make(kind, server.url, client, models=models), request(UserMessage("Hi"), tools=TOOLS))
        body = server.asked[0].body
    assert (body["model"], "tools" in body) == ("vendor/a-model-1", False)
    assert 77 in (body.get("max_tokens"), body.get("max_output_tokens"))


@KINDS
async def test_names_of_tools_go_there_and_back(kind: str, client: HttpClient) -> None:
    specs = (*TOOLS, ToolSpec(name=LONG_TOOL, description="Long.", input_schema={}))
    wire = WireNames([LONG_TOOL]).wire(LONG_TOOL)
    assert len(wire) == 64
    for name, tool in ((wire, LONG_TOOL), ("fs__read", "fs.read"), ("fs__unknown", "fs.unknown")):
        bodies, told = await sent(
            kind, client, request(UserMessage("Go."), tools=specs), Played(body=calling(kind, name))
        )
        assert wire in str(bodies[0]["tools"])
        assert told.calls == [(tool, '{"path":"a b"}')]
        assert isinstance(told.last, Completed)
        assert told.last.finish is Finish.TOOL_CALLS


def calling(kind: str, name: str) -> bytes:
    match kind:
        case "openai-chat":
            first = {"index": 0, "id": "x", "type": "function", "function": {"name": name, "arguments": ""}}
            rest = [{"index": 0, "function": {"arguments": part}} for part in ('{"path":', '"a b"}')]
            return chat(*({"tool_calls": [call]} for call in (first, *rest)), finish="tool_calls")
        case "openai-responses":
            return responses(call_item(name, '{"path":', '"a b"}'))
        case _:
            return messages(tool_block(name, '{"path":', '"a b"}'), stop="tool_use")


@KINDS
async def test_a_schema_the_provider_can_hold_is_sent_as_one(kind: str, client: HttpClient) -> None:
    (body,), _ = await sent(kind, client, request(UserMessage("n?"), answer_schema=CLOSED))
    match kind:
        case "openai-chat":
            assert body["response_format"]["json_schema"] == {"name": "answer", "schema": CLOSED, "strict": True}
        case "openai-responses":
            assert body["text"]["format"]["strict"] is True
        case _:
            assert body["output_config"] == {"format": {"type": "json_schema", "schema": CLOSED}}


@KINDS
async def test_a_schema_beyond_strict_modes_is_a_wish(kind: str, client: HttpClient) -> None:
    (body,), _ = await sent(kind, client, request(UserMessage("n?"), answer_schema=OPEN))
    match kind:
        case "openai-chat":
            assert body["response_format"]["json_schema"]["strict"] is False
        case "openai-responses":
            assert body["text"]["format"]["strict"] is False
        case _:
            assert "output_config" not in body
            assert "minimum" in body["system"][0]["text"]


@pytest.mark.parametrize(
    ("kind", "field", "said"),
    [
        ("openai-chat", "response_format", "'response_format' of type 'json_schema' is not supported with this model"),
        ("openai-chat", "stream_options", "Unknown parameter: stream_options"),
        ("openai-responses", "include", "Encrypted content is not supported with this model."),
        ("openai-responses", "text", "Invalid parameter: 'text.format' of type 'json_schema' is not supported"),
        ("anthropic-messages", "output_config", "output_config: Extra inputs are not permitted"),
    ],
)
async def test_a_field_a_server_refuses_is_left_out_from_then_on(
    kind: str, field: str, said: str, client: HttpClient
) -> None:
    asked = request(UserMessage("n?"), answer_schema=CLOSED)
    async with StandInProvider(refusal(400, said), Played(body=hello(kind))) as server:
        provider = make(kind, server.url, client)
        assert (await ask(provider, asked)).text == "Hello."
        assert (await ask(provider, asked)).text == "Hello."
        assert [field in asked.body for asked in server.asked] == [True, False, False]
        if field != "stream_options" and field != "include":
            assert "JSON Schema" in str(server.asked[2].body)


async def test_the_field_for_the_limit_is_changed_where_a_server_wants_the_other(client: HttpClient) -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    bodies, _ = await sent(
        "openai-chat",
        client,
        request(UserMessage("Hi"), max_output_tokens=9),
        refusal(400, said),
        Played(body=hello("openai-chat")),
    )
    assert [("max_tokens" in body, "max_completion_tokens" in body) for body in bodies] == [
        (True, False),
        (False, True),
    ]


async def test_ids_are_shortened_where_a_server_wants_nine_characters(client: HttpClient) -> None:
    said = "Tool call id was c1_RUN but must be a-z, A-Z, 0-9, with a length of 9."
    bodies, _ = await sent("openai-chat", client, request(*TALK), refusal(400, said), Played(body=hello("openai-chat")))
    calls, result = bodies[1]["messages"][2]["tool_calls"], bodies[1]["messages"][3]
    assert len(calls[0]["id"]) == 9
    assert calls[0]["id"] == result["tool_call_id"] != calls[1]["id"]


async def test_signed_thinking_goes_back_in_its_place(client: HttpClient) -> None:
    thinking = {
        "start": {"type": "thinking", "thinking": "", "signature": ""},
        "deltas": [
            {"type": "thinking_delta", "thinking": "Let me "},
            {"type": "thinking_delta", "thinking": "see."},
            {"type": "signature_delta", "signature": "c2lnbmVk"},
        ],
    }
    hidden = {"start": {"type": "redacted_thinking", "data": "b3BhcXVl"}, "deltas": []}
    answer = messages(thinking, hidden, text_block("I look."), tool_block("fs__read", "{}"), stop="tool_use")
    _, told = await sent("anthropic-messages", client, request(UserMessage("Go."), tools=TOOLS), Played(body=answer))
    assert told.reasoning == "Let me see."
    (body,), _ = await sent("anthropic-messages", client, followed(told))
    assert body["messages"][1]["content"][:3] == [
        {"type": "thinking", "thinking": "Let me see.", "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "text", "text": "I look."},
    ]
    (body,), _ = await sent("anthropic-messages", client, replace(followed(told), model="another-model"))
    assert [block["type"] for block in body["messages"][1]["content"]] == ["text", "tool_use"]


async def test_sealed_reasoning_goes_back_in_its_place(client: HttpClient) -> None:
    sealed = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "b3BhcXVl"}
    only_a_name = {"type": "reasoning", "id": "rs_2", "summary": []}
    items = [{"item": item, "deltas": []} for item in (sealed, only_a_name)]
    answer = responses(*items, text_item("I look."), call_item("fs__read", "{}"))
    _, told = await sent("openai-responses", client, request(UserMessage("Go."), tools=TOOLS), Played(body=answer))
    (body,), _ = await sent("openai-responses", client, followed(told))
    kinds = [item.get("type", item.get("role")) for item in body["input"]]
    assert kinds == ["user", "reasoning", "assistant", "function_call", "function_call_output"]
    assert body["input"][1] == sealed


async def test_reasoning_goes_back_while_its_calls_are_under_way(client: HttpClient) -> None:
    call = {
        "index": 0,
        "id": "x",
        "function": {"name": "fs__read", "arguments": "{}"},
        "extra_content": {"google": {"s": "1"}},
    }
    answer = chat({"reasoning_content": "Hm"}, {"reasoning_content": "m."}, {"tool_calls": [call]}, finish="tool_calls")
    _, told = await sent("openai-chat", client, request(UserMessage("Go."), tools=TOOLS), Played(body=answer))
    (body,), _ = await sent("openai-chat", client, followed(told))
    assert body["messages"][2]["reasoning_content"] == "Hmm."
    assert body["messages"][2]["tool_calls"][0]["extra_content"] == {"google": {"s": "1"}}
    later = followed(told)
    (body,), _ = await sent("openai-chat", client, replace(later, messages=(*later.messages, UserMessage("And now?"))))
    assert "reasoning_content" not in body["messages"][2]


async def test_fragments_of_reasoning_details_are_joined(client: HttpClient) -> None:
    parts = [{"text": "a"}, {"text": "b"}, {"signature": "s"}]
    details = [{"reasoning_details": [{"type": "reasoning.text", "index": 0, **part}]} for part in parts]
    call = {"index": 0, "id": "x", "function": {"name": "fs__read", "arguments": "{}"}}
    answer = chat(*details, {"tool_calls": [call]}, finish="tool_calls")
    _, told = await sent("openai-chat", client, request(UserMessage("Go."), tools=TOOLS), Played(body=answer))
    (body,), _ = await sent("openai-chat", client, followed(told))
    joined = {"type": "reasoning.text", "index": 0, "text": "ab", "signature": "s"}
    assert body["messages"][2]["reasoning_details"] == [joined]


def followed(told: Told) -> ModelRequest:
    """The next request of the same run, as the engine would make it."""
    assert isinstance(told.last, Completed)
    calls = tuple(PastCall(f"c{at}_RUN", tool, {}) for at, (tool, _) in enumerate(told.calls, 1))
    said = AssistantMessage(told.text, calls, told.last.provider_state)
    return request(UserMessage("Go."), said, *(ToolMessage(call.call_id, "done") for call in calls), tools=TOOLS)


def test_state_goes_back_only_whole_and_to_whom_it_came_from() -> None:
    state = keep("here", {"blocks": [{"thinking": "x"}], "none": None})
    assert state == {"origin": "here", "blocks": [{"thinking": "x"}]}
    assert give_back("here", AssistantMessage("", (), state)) == state
    assert give_back("there", AssistantMessage("", (), state)) == {}
    touched = keep("here", {"blocks": ["my ‹secret:api_key:0123456789ab›"]})
    assert give_back("here", AssistantMessage("", (), touched)) == {}
    assert keep("here", {"blocks": []}) is None
    assert keep("here", {"blocks": ["x" * STATE_BYTES_MAX]}) is None


def test_wire_names_are_distinct_and_lead_back() -> None:
    tools = ["a.b", "a__b", "a b", "a_b", "ž" * 70, LONG_TOOL, LONG_TOOL + "x", ""]
    names = WireNames(tools)
    wires = [names.wire(tool) for tool in tools]
    assert len(set(wires)) == len(tools)
    assert all(0 < len(wire) <= 64 and wire.isascii() for wire in wires)
    assert [names.tool(wire) for wire in wires] == tools


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434/v1/chat/completions"),
        ("http://127.0.0.1:11434/", "http://127.0.0.1:11434/v1/chat/completions"),
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
        ("https://h/deployments/x?api-version=1", "https://h/deployments/x/chat/completions?api-version=1"),
    ],
)
def test_address_of_a_call(base_url: str, url: str) -> None:
    assert join_url(base_url, "/v1", "/chat/completions") == url


def test_example_in_the_documentation_is_a_configuration() -> None:
    page = (Path(__file__).parents[2] / "docs" / "providers.md").read_text(encoding="utf-8")
    config = read_config(page.split("```toml\n")[2].split("```")[0], {}, "providers.md")
    assert isinstance(config, Config)
    assert (config.providers[0].kind, config.models[0].id) == ("openai-chat", "qwen3:8b")


def test_strict_schemas_are_told_from_others() -> None:
    nested = {"type": "array", "items": CLOSED}
    assert is_strict(CLOSED)
    assert is_strict({**CLOSED, "properties": {"n": nested}})
    assert not is_strict(OPEN)
    assert not is_strict({**CLOSED, "required": []})
    assert not is_strict({**CLOSED, "properties": {"n": {"type": "array", "items": {"type": "object"}}}})


REFUSALS = [
    ("openai-chat", "registry.example/tiny does not support tools", "tools"),
    ("openai-chat", "max_tokens is too large: 16384. This model supports at most 4096 completion tokens", "max_tokens"),
    ("openai-responses", "max_output_tokens: 16384 exceeds what the model allows", "max_output_tokens"),
    ("openai-chat", "maximum context length is 8192 tokens. max_tokens is too large: 16384", "max_tokens"),
]


@pytest.mark.parametrize(("kind", "words", "field"), REFUSALS)
async def test_what_a_server_cannot_take_is_left_out(kind: str, words: str, field: str, client: HttpClient) -> None:
    no = Played(status=400, body=json.dumps({"error": {"message": words}}).encode(), content_type="application/json")
    asked = request(UserMessage("Go."), tools=TOOLS, max_output_tokens=16_384)
    bodies, told = await sent(kind, client, asked, no, Played(body=hello(kind)))
    assert [field in body for body in bodies] == [True, False]
    assert isinstance(told.last, Completed)


async def test_an_old_model_that_says_less_is_asked_for_less(client: HttpClient) -> None:
    words = "max_tokens: 16384 > 4096, which is the maximum allowed number of output tokens"
    no = Played(status=400, body=json.dumps({"error": {"message": words}}).encode(), content_type="application/json")
    kind = "anthropic-messages"
    bodies, told = await sent(kind, client, request(UserMessage("Go.")), no, Played(body=hello(kind)))
    assert [body["max_tokens"] for body in bodies] == [16_384, 4_096]
    assert isinstance(told.last, Completed)
