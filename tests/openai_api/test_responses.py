"""Responses and embeddings by the openai library against our server, and agents of pydantic-ai upon both APIs."""

from pathlib import Path
from typing import Any

import openai
import pytest

from palyra.adapters.providers.prepared_turns import Chunk, PreparedCall, Turn
from palyra.core.events.model import Finish
from palyra.core.ids import RunId
from palyra.engine.setup import EngineSettings
from tests.openai_api.serving import USER, serve, workshop_at
from tests.support.asking import calls, finished, says
from tests.support.embedders import LengthEmbedder
from tests.support.engines import OWNER

pytestmark = pytest.mark.anyio

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
IN_PARIS = Turn(calls=(PreparedCall("get_weather", {"city": "Paris"}),))


async def test_a_response_is_made_and_shown_again(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, says("Good day."))
    async with serve(workshop) as served, served.client() as client:
        made = await client.responses.create(model="main", input="hello", metadata={"a": "b"})
        assert (made.status, made.output_text) == ("completed", "Good day.")
        assert made.usage is not None
        assert made.usage.total_tokens > 0
        assert (await client.responses.retrieve(made.id)).output_text == "Good day."
        for response_id in ("resp_nothing", "resp_" + "0" * 26):
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(response_id)
        async with served.client(USER) as stranger:
            with pytest.raises(openai.NotFoundError):
                await stranger.responses.retrieve(made.id)


async def test_events_tell_the_response_as_it_grows(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path, Turn(chunks=tuple(Chunk(f"w{n} ", 1) for n in range(9))))
    async with serve(workshop) as served, served.client() as client:
        events = [event async for event in await client.responses.create(model="main", input="hello", stream=True)]
        async with client.responses.stream(model="main", input="hello") as stream:
            final = await stream.get_final_response()
    types = [event.type for event in events]
    assert types[:4] == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
    ]  # fmt: skip
    assert types[-4:] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == final.output_text
    assert final.output_text == "".join(f"w{n} " for n in range(9))


async def test_a_response_goes_on_where_another_ended(tmp_path: Path) -> None:
    workshop, provider = workshop_at(tmp_path, says("One."), more={"second": (says("Two."),)})
    async with serve(workshop) as served, served.client() as client:
        first = await client.responses.create(model="main", input="hello")
        second = await client.responses.create(
            model="main", input="the second", previous_response_id=first.id, instructions="Be brief."
        )
        assert second.output_text == "Two."
        named = await client.responses.create(model="main", input="hello", conversation="talk")
        again = await client.responses.create(model="main", input="the second", conversation="talk")
        assert named.to_dict()["palyra"]["session_id"] == again.to_dict()["palyra"]["session_id"]
    assert [message.text for message in provider.requests[1].messages] == ["hello", "One.", "the second"]
    assert provider.requests[1].instructions.endswith("Be brief.")


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_the_caller_executes_its_own_tools(tmp_path: Path, is_streamed: bool) -> None:
    workshop, _ = workshop_at(tmp_path, IN_PARIS, says("Rain."))
    async with serve(workshop) as served, served.client() as client:
        if is_streamed:
            async with client.responses.stream(model="main", input="hello", tools=[WEATHER]) as stream:
                asked: Any = await stream.get_final_response()
        else:
            asked = await client.responses.create(model="main", input="hello", tools=[WEATHER])
        (call,) = asked.output
        assert (call.type, call.name, call.arguments) == ("function_call", "get_weather", '{"city":"Paris"}')
        output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
        by_id = await client.responses.create(
            model="main", input=output, previous_response_id=asked.id, tools=[WEATHER]
        )
        assert by_id.output_text == "Rain."
        history: Any = [{"role": "user", "content": "hello"}, *[item.to_dict() for item in asked.output], *output]
        whole = await client.responses.create(model="main", input=history, tools=[WEATHER])
        assert (whole.id, whole.output_text) == (by_id.id, "Rain.")


async def test_a_response_in_the_background_is_looked_at_later_and_can_be_cancelled(tmp_path: Path) -> None:
    slow = Turn(chunks=tuple(Chunk(f"w{n} ", 20) for n in range(500)))
    workshop, _ = workshop_at(tmp_path, slow)
    async with serve(workshop) as served, served.client() as client:
        queued = await client.responses.create(model="main", input="hello", background=True)
        assert queued.status == "queued"
        assert (await client.responses.retrieve(queued.id)).status in ("queued", "in_progress")
        await client.responses.cancel(queued.id)
        await finished(served.engine, await served.engine.runs.get(OWNER, RunId(queued.id.removeprefix("resp_"))))
        assert (await client.responses.retrieve(queued.id)).status == "cancelled"


async def test_what_is_not_whole_says_why(tmp_path: Path) -> None:
    workshop, _ = workshop_at(
        tmp_path, Turn(text="A long sto", finish=Finish.LENGTH), more={"send": (calls("mark.send", text="x"),)}
    )
    workshop.settings = EngineSettings(waits_headless=True)
    async with serve(workshop) as served, served.client() as client:
        cut = await client.responses.create(model="main", input="hello", max_output_tokens=4)
        assert cut.incomplete_details is not None
        assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        held = await client.responses.create(model="main", input="send it")
        assert (held.status, held.to_dict()["incomplete_details"]) == ("incomplete", {"reason": "approval_required"})
        assert "/#/approvals/" in held.output_text


async def test_a_failed_run_is_a_failed_response(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path)
    async with serve(workshop) as served, served.client() as client:
        with pytest.raises(openai.APIStatusError):
            await client.responses.create(model="main", input="hello")
        events = [event async for event in await client.responses.create(model="main", input="hello", stream=True)]
        assert events[-1].type == "response.failed"
        assert events[-1].response.error is not None


async def test_texts_are_embedded_where_there_is_an_embedder(tmp_path: Path) -> None:
    workshop, _ = workshop_at(tmp_path)
    async with serve(workshop) as served, served.client() as client:
        with pytest.raises(openai.InternalServerError) as missing:
            await client.embeddings.create(model="any", input="abc")
        assert (missing.value.status_code, missing.value.code) == (503, "embedder_missing")
        served.engine.embedder = LengthEmbedder()
        answer = await client.embeddings.create(model="any", input=["abc", "de"])
        assert [item.embedding for item in answer.data] == [[3.0, 1.0], [2.0, 1.0]]
        plain = await client.embeddings.create(model="any", input="abc", encoding_format="float")
        assert plain.data[0].embedding == [3.0, 1.0]
        cases: list[dict[str, Any]] = [{"input": []}, {"input": ""}, {"input": "a", "dimensions": 7}]
        for wrong in cases:
            with pytest.raises(openai.BadRequestError):
                await client.embeddings.create(**{"model": "any", **wrong})


@pytest.mark.parametrize("kind", ["OpenAIChatModel", "OpenAIResponsesModel"])
async def test_an_agent_of_pydantic_ai_uses_it_as_its_model(tmp_path: Path, kind: str) -> None:
    agents, models = pytest.importorskip("pydantic_ai"), pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")
    workshop, _ = workshop_at(tmp_path, IN_PARIS, says("It rains."))
    async with serve(workshop) as served, served.client() as client:
        model = getattr(models, kind)("main", provider=providers.OpenAIProvider(openai_client=client))
        agent = agents.Agent(model, instructions="Be brief.")

        @agent.tool_plain
        def get_weather(city: str) -> str:
            return f"rain in {city}"

        result = await agent.run("How is the weather?")
        assert result.output == "It rains."
