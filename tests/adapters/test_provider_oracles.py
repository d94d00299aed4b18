"""The vendors' own clients as oracles: one server plays, they and we listen, and both must hear the same."""

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

import pytest
from anthropic import AsyncAnthropic
from anthropic.types import message_create_params
from openai import AsyncOpenAI, ContentFilterFinishReasonError, LengthFinishReasonError
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params
from typing_extensions import get_type_hints, is_typeddict

from palyra.adapters.net.client import HttpClient
from palyra.core.context.messages import AssistantMessage, PastCall, ToolMessage, UserMessage
from palyra.core.events.model import Finish, Usage
from palyra.core.tools import ToolSpec
from palyra.ports.provider import Completed
from tests.support.provider_answers import (
    KEY,
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
from tests.support.stand_in_provider import Played, StandInProvider

pytestmark = pytest.mark.anyio
ASKED = request(UserMessage("Hi."))
Heard = tuple[str, list[tuple[str, str]], Finish, Usage | None]


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.close()


def fragment(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": more["name"]} if "name" in more else {})}
    return {"index": index, "function": function, **({"id": more["id"], "type": "function"} if "id" in more else {})}


CHAT_ANSWERS = {
    "text": chat({"role": "assistant", "content": ""}, {"content": "Ahoj "}, {"content": "světe 🐎"}),
    "cut off": chat({"content": "A long"}, finish="length"),
    "filtered": chat({"content": "A"}, finish="content_filter"),
    "interleaved calls": chat(
        {"content": "Both."},
        {"tool_calls": [fragment(0, "", id="a", name="first"), fragment(1, "", id="b", name="second")]},
        {"tool_calls": [fragment(1, '{"y":')]},
        {"tool_calls": [fragment(0, '{"x":1')]},
        {"tool_calls": [fragment(1, "2}"), fragment(0, "}")]},
        finish="tool_calls",
        usage={
            "prompt_tokens": 20,
            "completion_tokens": 9,
            "total_tokens": 29,
            "prompt_tokens_details": {"cached_tokens": 16},
            "completion_tokens_details": {"reasoning_tokens": 4},
        },
    ),
}


@pytest.mark.parametrize("name", CHAT_ANSWERS)
async def test_chat_is_heard_as_the_vendors_client_hears_it(name: str, client: HttpClient) -> None:
    async with StandInProvider(Played(body=CHAT_ANSWERS[name], reads=5)) as server:
        ours = await heard("openai-chat", server, client)
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as vendor:
            whole = await snapshot(vendor)
        assert server.asked[0].path == server.asked[1].path
    final, usage = whole.choices[0], whole.usage
    calls = [(call.function.name, call.function.arguments) for call in final.message.tool_calls or ()]
    wanted = None
    if usage is not None:
        wanted = Usage(
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            cached_tokens=usage.prompt_tokens_details.cached_tokens or 0,
            reasoning_tokens=usage.completion_tokens_details.reasoning_tokens or 0,
        )
    assert ours == (final.message.content, calls, Finish(final.finish_reason), wanted)


async def snapshot(vendor: AsyncOpenAI) -> Any:
    """The vendor's stream raises for answers that were cut off or filtered, but only at its end: its snapshot is whole."""
    asked: Any = [{"role": "user", "content": "Hi."}]
    async with vendor.chat.completions.stream(model="a-model", messages=asked) as stream:
        try:
            async for _ in stream:
                pass
        except (LengthFinishReasonError, ContentFilterFinishReasonError):
            pass
        return stream.current_completion_snapshot


RESPONSES_USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 16},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 4},
    "total_tokens": 29,
}
RESPONSES_ANSWERS = {
    "text": responses(text_item("Ahoj ", "světe 🐎"), usage=RESPONSES_USAGE),
    "cut off": responses(
        text_item("A long"),
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
        usage=RESPONSES_USAGE,
    ),
    "calls": responses(
        text_item("Both."), call_item("first", '{"x":', "1}"), call_item("second", '{"y":2}'), usage=RESPONSES_USAGE
    ),
}


@pytest.mark.parametrize("name", RESPONSES_ANSWERS)
async def test_responses_are_heard_as_the_vendors_client_hears_them(name: str, client: HttpClient) -> None:
    async with StandInProvider(Played(body=RESPONSES_ANSWERS[name], reads=5)) as server:
        ours = await heard("openai-responses", server, client)
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as vendor:
            stream = await vendor.responses.create(model="a-model", input="Hi.", stream=True)
            final: Any = None
            async for event in stream:
                if event.type in ("response.completed", "response.incomplete"):
                    final = event.response
        assert server.asked[0].path == server.asked[1].path
    calls = [(item.name, item.arguments) for item in final.output if item.type == "function_call"]
    finish = Finish.LENGTH if final.status == "incomplete" else Finish.TOOL_CALLS if calls else Finish.STOP
    assert ours == (
        final.output_text,
        calls,
        finish,
        Usage(input_tokens=20, output_tokens=9, cached_tokens=16, reasoning_tokens=4),
    )


MESSAGES_ANSWERS = {
    "text": messages(text_block("Ahoj ", "světe 🐎")),
    "cut off": messages(text_block("A long"), stop="max_tokens"),
    "refused": messages(stop="refusal"),
    "calls": messages(
        text_block("Both."),
        tool_block("first", '{"x"', ":1}"),
        tool_block("second"),
        stop="tool_use",
        usage={"output_tokens": 5, "input_tokens": 4, "cache_read_input_tokens": 16, "cache_creation_input_tokens": 2},
    ),
}
STOPS = {
    "end_turn": Finish.STOP,
    "max_tokens": Finish.LENGTH,
    "refusal": Finish.REFUSAL,
    "tool_use": Finish.TOOL_CALLS,
}


@pytest.mark.parametrize("name", MESSAGES_ANSWERS)
async def test_messages_are_heard_as_the_vendors_client_hears_them(name: str, client: HttpClient) -> None:
    async with StandInProvider(Played(body=MESSAGES_ANSWERS[name], reads=5)) as server:
        text, calls, finish, usage = await heard("anthropic-messages", server, client)
        async with AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=0) as vendor:
            asked: Any = [{"role": "user", "content": "Hi."}]
            async with vendor.messages.stream(model="a-model", max_tokens=99, messages=asked) as stream:
                final = await stream.get_final_message()
        assert server.asked[0].path == server.asked[1].path
        assert "anthropic-version" in server.asked[0].headers.keys() & server.asked[1].headers.keys()
        assert server.asked[0].headers["authorization"] == server.asked[1].headers["authorization"]
    assert text == "".join(block.text for block in final.content if block.type == "text")
    said = [(block.name, block.input) for block in final.content if block.type == "tool_use"]
    assert [(tool, json.loads(arguments or "{}")) for tool, arguments in calls] == said
    assert final.stop_reason is not None
    assert finish is STOPS[final.stop_reason]
    counted, cached = final.usage, final.usage.cache_read_input_tokens or 0
    written = counted.cache_creation_input_tokens or 0
    assert usage == Usage(
        input_tokens=counted.input_tokens + cached + written,
        output_tokens=counted.output_tokens,
        cached_tokens=cached,
        cache_write_tokens=written,
    )


async def heard(kind: str, server: StandInProvider, client: HttpClient) -> Heard:
    told = await ask(make(kind, server.url, client), ASKED)
    assert isinstance(told.last, Completed)
    return told.text, told.calls, told.last.finish, told.last.usage


PARAMETERS: dict[str, Any] = {
    "openai-chat": completion_create_params.CompletionCreateParamsStreaming,
    "openai-responses": response_create_params.ResponseCreateParamsStreaming,
    "anthropic-messages": message_create_params.MessageCreateParamsStreaming,
}


@pytest.mark.parametrize("kind", PARAMETERS)
async def test_what_is_sent_fits_the_vendors_own_types(kind: str, client: HttpClient) -> None:
    schema: dict[str, object] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    asked = request(
        UserMessage("Read it."),
        AssistantMessage("I read.", (PastCall("c1_RUN", "fs.read", {"path": "a"}),)),
        ToolMessage("c1_RUN", "A", is_error=True),
        UserMessage("Well?"),
        tools=(ToolSpec(name="fs.read", description="Reads.", input_schema=schema),),
        answer_schema=schema,
        max_output_tokens=64,
    )
    async with StandInProvider(Played(body=hello(kind))) as server:
        await ask(make(kind, server.url, client), asked)
        body = server.asked[0].body
    assert find_misfit(body, PARAMETERS[kind]) is None


def find_misfit(value: Any, hint: Any, at: str = "body") -> str | None:
    """Where a value is not what a vendor's type says: a member too many or missing, another literal, another kind."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Required, NotRequired, Annotated):
        return find_misfit(value, parts[0], at)
    if origin in (Union, UnionType):
        misfits = [find_misfit(value, part, at) for part in parts]
        return None if None in misfits else max((found for found in misfits if found), key=len)
    if is_typeddict(hint):
        return _find_misfit_of_object(value, hint, at)
    if origin is Literal:
        return None if value in parts else f"{at}: {value!r} is none of {parts}"
    if origin in (list, Iterable, Sequence):
        if not isinstance(value, list):
            return f"{at}: no list"
        return next(
            (found for n, item in enumerate(value) if (found := find_misfit(item, parts[0], f"{at}[{n}]"))), None
        )
    kind = origin or hint
    fits = kind in (Any, object) or (isinstance(kind, type) and isinstance(value, kind))
    return None if fits else f"{at}: {value!r} is no {kind}"


def _find_misfit_of_object(value: Any, hint: Any, at: str) -> str | None:
    if not isinstance(value, dict):
        return f"{at}: no object"
    hints = get_type_hints(hint, include_extras=True)
    if strange := set(value) - set(hints):
        return f"{at}: unknown {sorted(strange)}"
    if missing := {name for name in hint.__required_keys__ if name not in value}:
        return f"{at}: without {sorted(missing)}"
    return next((found for name in value if (found := find_misfit(value[name], hints[name], f"{at}.{name}"))), None)


def test_misfits_are_found() -> None:
    body = {"model": "m", "max_tokens": 1, "stream": True, "messages": [{"role": "user", "content": "x"}]}
    hint = PARAMETERS["anthropic-messages"]
    assert find_misfit(body, hint) is None
    for wrong in ({"strange": 1}, {"max_tokens": "1"}, {"messages": [{"role": "wizard", "content": "x"}]}):
        assert find_misfit(body | wrong, hint) is not None
    assert find_misfit({"model": "m"}, hint) is not None
