"""A failing model is survived along the route, and what answered instead is on the tape."""

from pathlib import Path

import pytest

from palyra.adapters.providers.prepared_turns import PreparedFailure, Turn
from palyra.core.events.model import ModelError, ModelFailed, ModelOutput, RoutePlanned
from palyra.engine.hub import LiveFrame
from tests.support.asking import ask, finished, says
from tests.support.engines import OWNER, Workshop
from tests.support.scripts import play_turns

pytestmark = pytest.mark.anyio


def failing(code: ModelError, text: str = "") -> Turn:
    return Turn(text=text, failure=PreparedFailure(code, "Look at the provider's status page."))


def two_models(root: Path, first: Turn) -> Workshop:
    workshop = Workshop(root, [])
    workshop.providers = {"first": play_turns(*[first] * 9), "second": play_turns(says("Here I am."))}
    workshop.route = ("first", "second")
    return workshop


async def test_another_model_answers_before_the_first_word(tmp_path: Path) -> None:
    async with two_models(tmp_path, failing(ModelError.OVERLOADED)).open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask()))
    outputs = [event.data for event in events if isinstance(event.data, ModelOutput)]
    assert [(output.text, output.model) for output in outputs] == [("Here I am.", "second")]
    assert events[-1].type == "run.done"


async def test_words_of_the_model_that_answers_instead_are_live(tmp_path: Path) -> None:
    async with two_models(tmp_path, failing(ModelError.OVERLOADED)).open() as engine:
        _, frames = await engine.runs.start_and_follow(OWNER, ask())
        deltas = [each async for each in frames if isinstance(each, LiveFrame) and each.type == "model.delta"]
    assert "".join(str(delta.data["text"]) for delta in deltas) == "Here I am."


async def test_a_model_that_keeps_failing_is_left_alone_for_a_while(tmp_path: Path) -> None:
    async with two_models(tmp_path, failing(ModelError.NETWORK)).open() as engine:
        plans = []
        for _ in range(4):
            events = await finished(engine, await engine.runs.start(OWNER, ask()))
            plans += [event.data for event in events if isinstance(event.data, RoutePlanned)]
    assert [plan.chosen for plan in plans] == ["first", "first", "first", "second"]
    assert plans[-1].candidates[0].reasons == ("circuit_open",)


async def test_a_half_streamed_answer_is_kept_and_not_joined(tmp_path: Path) -> None:
    async with two_models(tmp_path, failing(ModelError.NETWORK, "Half an ans")).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        events = await finished(engine, record)
        answer = (await engine.runs.get(OWNER, record.id)).answer
    texts = [event.data.text for event in events if isinstance(event.data, ModelOutput)]
    assert texts[0] == "Half an ans"
    assert answer is None or "Half" not in answer


@pytest.mark.parametrize("code", [ModelError.CONTEXT_LENGTH, ModelError.BAD_REQUEST])
async def test_a_request_that_is_itself_at_fault_is_not_tried_elsewhere(tmp_path: Path, code: ModelError) -> None:
    async with two_models(tmp_path, failing(code)).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        events = await finished(engine, record)
        ended = await engine.runs.get(OWNER, record.id)
    assert {event.data.code for event in events if isinstance(event.data, ModelFailed)} == {code}
    assert ended.error is not None
    assert "status page" in ended.error.message
