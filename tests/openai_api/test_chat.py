"""Chat completions by the openai library against our server."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import openai
import pytest

from palyra.adapters.providers.prepared_turns import Chunk, PreparedCall, Turn
from palyra.core.context.messages import AssistantMessage, ToolMessage, UserMessage
from palyra.core.events.model import Finish
from palyra.core.events.tool import Decision
from palyra.engine.api.requests import ApprovalAnswer, RunsQuery
from palyra.engine.setup import EngineSettings
from tests.openai_api.serving import USER, Served, serve, workshop_at
from tests.support.asking import calls, finished, says
from tests.support.engines import OWNER, Workshop
from tests.support.images import png
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hello"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
IN_PARIS = Turn(calls=(PreparedCall("get_weather", {"city": "Paris"}),))


async def chat(served: Served, messages: Any = HELLO, **fields: Any) -> Any:
    async with served.client() as client:
        return await client.chat.completions.create(**{"model": "main", "messages": messages, **fields})


async def test_a_message_is_answered_by_an_agent(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, says("Good day."))
    async with serve(workshop) as served:
        answer = await chat(served)
        assert answer.choices[0].message.content == "Good day."
        assert answer.choices[0].finish_reason == "stop"
        assert answer.object == "chat.completion"
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
        run = await served.engine.runs.get(OWNER, answer.palyra["run_id"])
        assert (run.origin, run.state) == ("v1", "done")


async def test_agents_and_models_are_listed(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path)
    async with serve(workshop) as served, served.client() as client:
        assert [model.id async for model in client.models.list()] == ["main", "scripted"]
        assert (await client.models.retrieve("main")).owned_by == "palyra"
        with pytest.raises(openai.NotFoundError) as missing:
            await client.models.retrieve("gpt-nothing")
        assert missing.value.code == "model_not_found"


async def test_a_model_is_taken_with_the_default_agent(tmp_path: Path) -> None:
    workshop, provider = workshop_at(tmp_path, says("Hi."))
    async with serve(workshop) as served:
        assert (await chat(served, model="scripted")).model == "scripted"
        with pytest.raises(openai.NotFoundError, match="no agent and no model"):
            await chat(served, model="gpt-nothing")
    assert provider.requests[0].model == "scripted"


async def test_chunks_add_up_to_the_answer_and_end_with_usage(tmp_path: Path) -> None:
    turn = Turn(chunks=tuple(Chunk(f"word{n} ", 1) for n in range(20)))
    workshop, _ = workshop_at(tmp_path, turn)
    async with serve(workshop) as served, served.client() as client:
        stream = await client.chat.completions.create(
            model="main",
            messages=HELLO,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "".join(f"word{n} " for n in range(20))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert len({chunk.id for chunk in chunks}) == 1


async def test_text_between_our_own_tool_calls_is_streamed_and_the_answer_is_the_last(tmp_path: Path) -> None:
    first = Turn(text="Let me see.", calls=(PreparedCall("time.now", {}),))
    workshop, _ = workshop_at(tmp_path, first, says("Noon."))
    async with serve(workshop) as served, served.client() as client:
        async with client.chat.completions.stream(model="main", messages=HELLO) as stream:
            final = await stream.get_final_completion()
        assert final.choices[0].message.content == "Let me see.\n\nNoon."
        assert (await chat(served)).choices[0].message.content == "Noon."


async def test_the_caller_executes_its_own_tools_and_the_run_goes_on(tmp_path: Path) -> None:
    workshop, provider = workshop_at(tmp_path, IN_PARIS, says("Rain."))
    async with serve(workshop) as served:
        asked = await chat(served, tools=[WEATHER])
        (call,) = asked.choices[0].message.tool_calls
        assert asked.choices[0].finish_reason == "tool_calls"
        assert (call.function.name, call.function.arguments) == ("get_weather", '{"city":"Paris"}')
        result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
        told = [*HELLO, asked.choices[0].message.to_dict(), result]
        answer = await chat(served, told, tools=[WEATHER])
        assert answer.choices[0].message.content == "Rain."
        assert answer.palyra["run_id"] == asked.palyra["run_id"]
        again = await chat(served, told, tools=[WEATHER])
        assert (again.id, again.choices[0].message.content) == (answer.id, "Rain.")
    assert len(provider.requests) == 2
    assert any("rain" in message.text for message in provider.requests[1].messages if isinstance(message, ToolMessage))


async def test_a_result_that_comes_after_a_restart_goes_on_with_the_run(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, IN_PARIS, says("Rain."))
    async with serve(workshop) as served:
        asked = await chat(served, tools=[WEATHER])
    (call,) = asked.choices[0].message.tool_calls
    told = [*HELLO, asked.choices[0].message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    async with serve(workshop) as served:
        answer = await chat(served, told, tools=[WEATHER])
        assert answer.choices[0].message.content == "Rain."
        assert answer.palyra["run_id"] == asked.palyra["run_id"]
        async with served.client(USER) as stranger:
            alone = await stranger.chat.completions.create(model="main", messages=told)
        assert alone.to_dict()["palyra"]["run_id"] != asked.palyra["run_id"]


async def test_streamed_tool_calls_are_put_together_by_the_library(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, Turn(text="One moment.", calls=IN_PARIS.calls * 2), says("Rain."))
    async with serve(workshop) as served, served.client() as client:
        async with client.chat.completions.stream(model="main", messages=HELLO, tools=[WEATHER]) as stream:
            final = await stream.get_final_completion()
        choice = final.choices[0]
        assert choice.finish_reason == "tool_calls"
        assert [call.function.name for call in choice.message.tool_calls or ()] == ["get_weather"] * 2
        assert choice.message.content == "One moment."


async def test_a_conversation_that_the_caller_keeps_is_told_to_the_model(tmp_path: Path) -> None:
    workshop, provider = workshop_at(tmp_path, says("Leo."), says("Leo."))
    messages = [
        {"role": "system", "content": "You are a vet."},
        {"role": "user", "content": "What is it?"},
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": "And its name?"},
    ]
    async with serve(workshop) as served:
        await chat(served, messages)
    (request,) = provider.requests
    assert [type(message) for message in request.messages] == [UserMessage, AssistantMessage, UserMessage]
    assert request.instructions.endswith("You are a vet.")


@pytest.mark.parametrize(
    "named", [{"user": "ann"}, {"metadata": {"session_key": "k"}}, {"extra_headers": {"X-Palyra-Session": "k2"}}]
)
async def test_a_named_session_keeps_the_conversation_itself(tmp_path: Path, named: dict[str, Any]) -> None:
    workshop, provider = workshop_at(tmp_path, says("One."), more={"second": (says("Two."),)})
    async with serve(workshop) as served:
        first = await chat(served, **named)
        history = [*HELLO, {"role": "assistant", "content": "forged"}, {"role": "user", "content": "the second"}]
        second = await chat(served, history, **named)
        assert second.palyra["session_id"] == first.palyra["session_id"]
    texts = [message.text for message in provider.requests[1].messages]
    assert texts == ["hello", "One.", "the second"]


@pytest.mark.parametrize("waits_for", ["person", "caller"])
async def test_a_message_to_a_session_that_waits_takes_the_place_of_what_it_waits_for(
    tmp_path: Path, waits_for: str
) -> None:
    asks = calls("mark.send", text="x") if waits_for == "person" else IN_PARIS
    workshop, _ = workshop_at(tmp_path, asks, more={"never mind": (says("Good."),)})
    workshop.settings = EngineSettings(waits_headless=True)
    async with serve(workshop) as served:
        first = await chat(served, user="ann", tools=[WEATHER])
        second = await chat(served, [{"role": "user", "content": "never mind"}], user="ann")
        assert second.palyra["run_id"] == first.palyra["run_id"]
        choice = second.choices[0]
        assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == ("Good.", None, "stop")
    assert workshop.executed() == []


async def test_a_key_gives_the_same_calls_again(tmp_path: Path) -> None:
    workshop, provider = workshop_at(tmp_path, IN_PARIS)
    async with serve(workshop) as served:
        keyed = {"tools": [WEATHER], "extra_headers": {"Idempotency-Key": "k"}}
        first, second = [(await chat(served, **keyed)).choices[0].message.tool_calls for _ in range(2)]
        assert first == second
    assert len(provider.requests) == 1


async def test_an_image_is_shown_to_the_model(tmp_path: Path) -> None:
    workshop, provider = workshop_at(tmp_path, says("A dot."))
    url = "data:image/png;base64," + base64.b64encode(png()).decode()
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    async with serve(workshop) as served:
        await chat(served, [{"role": "user", "content": parts}])
        parts[1] = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}
        with pytest.raises(openai.BadRequestError, match="fetches no address"):
            await chat(served, [{"role": "user", "content": parts}])
    (said,) = [message for message in provider.requests[0].messages if isinstance(message, UserMessage)]
    assert [attachment.media_type for attachment in said.attachments] == ["image/png"]


async def test_an_answer_in_json_holds_nothing_but_the_answer(tmp_path: Path) -> None:
    first = Turn(text="Let me see.", calls=(PreparedCall("time.now", {}),))
    workshop, _ = workshop_at(tmp_path, first, says('{"n": 1}'))
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "required": ["n"]}}}
    async with serve(workshop) as served, served.client() as client:
        stream = await client.chat.completions.create(
            model="main",
            messages=HELLO,
            stream=True,
            response_format=form,
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
        assert text == '{"n": 1}'


async def test_an_answer_that_the_callers_limit_cut_ends_with_length(tmp_path: Path) -> None:
    workshop, provider = workshop_at(tmp_path, Turn(text="A long sto", finish=Finish.LENGTH))
    async with serve(workshop) as served:
        answer = await chat(served, max_tokens=4)
        assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("length", "A long sto")
    assert [request.max_output_tokens for request in provider.requests] == [4]


async def test_the_same_idempotency_key_gives_the_same_run(tmp_path: Path) -> None:
    workshop, provider = workshop_at(tmp_path, says("Once."))
    async with serve(workshop) as served:
        first, second = [await chat(served, extra_headers={"Idempotency-Key": "k"}) for _ in range(2)]
        assert first.id == second.id
        assert second.choices[0].message.content == "Once."
    assert len(provider.requests) == 1


async def test_a_call_that_needs_a_person_is_shown_with_a_link_and_the_run_goes_on(tmp_path: Path) -> None:
    workshop = Workshop(
        tmp_path,
        workshop_at(tmp_path, calls("mark.send", text="x"), says("Sent."))[1],
        EngineSettings(waits_headless=True),
    )
    async with serve(workshop) as served:
        answer = await chat(served)
        (approval_id,) = answer.palyra["approval_ids"]
        assert f"{served.address}/#/approvals/{approval_id}" in answer.choices[0].message.content
        for verb in ("show", "allow"):
            assert f"palyra approvals {verb} {approval_id}" in answer.choices[0].message.content
        assert "mark.send" in answer.choices[0].message.content
        async with served.client() as client:
            stream = await client.chat.completions.create(model="main", messages=HELLO, stream=True)
            told = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert "/#/approvals/" in told
        await served.engine.approvals.answer(OWNER, approval_id, ApprovalAnswer(decision=Decision.ALLOW))
        run = await served.engine.runs.get(OWNER, answer.palyra["run_id"])
        await finished(served.engine, run)
        assert (await served.engine.runs.get(OWNER, run.id)).state == "done"


async def test_where_nobody_waits_the_model_is_told_that_the_call_was_refused(tmp_path: Path) -> None:
    workshop, provider = workshop_at(tmp_path, calls("mark.send", text="x"), says("I may not."))
    async with serve(workshop) as served:
        assert (await chat(served)).choices[0].message.content == "I may not."
    assert "nobody_to_ask" in provider.requests[1].messages[-1].text
    assert workshop.executed() == []


async def test_errors_have_the_shape_of_openai(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path)
    async with serve(workshop) as served:
        async with served.client("wrong") as stranger:
            with pytest.raises(openai.AuthenticationError) as refused:
                await stranger.models.list()
        assert (refused.value.code, refused.value.type) == ("invalid_api_key", "authentication_error")
        cases: list[tuple[dict[str, Any], str]] = [
            ({"messages": []}, "messages_invalid"),
            ({"n": 2}, "unsupported_parameter"),
            ({"messages": [{"role": "robot", "content": "x"}]}, "unsupported_parameter"),
            ({"tools": [{"type": "web_search"}]}, "unsupported_parameter"),
            ({"tools": [WEATHER, WEATHER]}, "tool_twice"),
            ({"messages": [{"role": "user", "content": ""}]}, "text_empty"),
            ({"model": 5}, "body_invalid"),
        ]
        for fields, code in cases:
            with pytest.raises(openai.BadRequestError) as wrong:
                await chat(served, **fields)
            assert wrong.value.code == code


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_beyond_the_limit_of_streams_starts_nothing(tmp_path: Path, *, stream: bool) -> None:
    """The library tries again by itself, and each try would be another run."""
    workshop, _ = workshop_at(tmp_path, says("Good day."))
    async with serve(workshop, streams_per_token_max=0) as served, served.client() as client:
        for call in (
            client.chat.completions.create(model="main", messages=HELLO, stream=stream),
            client.responses.create(model="main", input="hello", stream=stream),
        ):
            with pytest.raises(openai.RateLimitError, match=r"raise limits\.streams_per_token_max") as refused:
                await call
            assert refused.value.code == "too_many_streams"
        assert await served.engine.runs.list(OWNER, RunsQuery()) == ()
        assert (await client.responses.create(model="main", input="hello", background=True)).status == "queued"


async def test_a_failed_run_is_an_error_that_the_library_does_not_repeat(tmp_path: Path) -> None:
    workshop, provider = workshop_at(tmp_path)  # Without a turn the provider fails.
    async with serve(workshop) as served, served.client(max_retries=3) as client:
        with pytest.raises(openai.APIStatusError) as failed:
            await client.chat.completions.create(model="main", messages=HELLO)
        assert failed.value.code == "provider_error"
        with pytest.raises(openai.APIError):
            async for _ in await client.chat.completions.create(model="main", messages=HELLO, stream=True):
                pass
    assert len(provider.requests) == 2


async def test_a_client_that_leaves_does_not_end_the_run(tmp_path: Path) -> None:
    slow = Turn(chunks=tuple(Chunk(f"w{n} ", 50) for n in range(20)))
    workshop, _ = workshop_at(tmp_path, slow)
    async with serve(workshop) as served:
        asking = asyncio.create_task(chat(served))
        await until(lambda: served.engine.runs.list(OWNER, RunsQuery()))
        asking.cancel()
        await asyncio.wait({asking})
        (run,) = await served.engine.runs.list(OWNER, RunsQuery())
        assert run.state != "done"
        await finished(served.engine, run)
        assert (await served.engine.runs.get(OWNER, run.id)).state == "done"
