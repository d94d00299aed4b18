"""The final answer contract."""

import pytest

from palyra.core.events.model import Finish
from palyra.core.events.tool import Outcome
from palyra.core.run.answer import AnswerCase, find_problems

FAILED_WRITE = {"fs.write": frozenset({Outcome.FAILED, Outcome.DENIED})}


def problems(
    text: str,
    finish: Finish = Finish.STOP,
    outcomes: dict[str, frozenset[Outcome]] | None = None,
    must_call: tuple[str, ...] = (),
    schema_errors: tuple[str, ...] = (),
) -> tuple[str, ...]:
    return find_problems(
        AnswerCase(text=text, finish=finish, schema_errors=schema_errors, must_call=must_call, outcomes=outcomes or {})
    )


@pytest.mark.parametrize(
    "text",
    [
        "Fertig.",
        "完成了。",
        "The tag `<tool_call>` opens a call.",
        "```\n<tool_call>{}</tool_call>\n```",
        "No: fs.write failed.",
        "fs.write was not done.",
        "{}",
    ],
)
def test_ordinary_answers_stand(text: str) -> None:
    assert problems(text, outcomes=FAILED_WRITE) == ()


@pytest.mark.parametrize("text", ["", "  \n\t"])
def test_an_empty_answer_does_not_stand(text: str) -> None:
    assert problems(text) == ("The answer is empty.",)


@pytest.mark.parametrize(
    "text",
    [
        'Sure. <tool_call>{"name": "fs.read"}</tool_call>',
        "[TOOL_CALLS] fs.read",
        '<invoke name="fs.read">',
        "<|python_tag|>fs.read()",
        '{"tool_calls": [{"name": "x"}]}',
        "<function=fs_read>{}</function>",
    ],
)
def test_raw_tool_markup_does_not_stand(text: str) -> None:
    assert len(problems(text)) == 1


def test_output_cut_at_the_limit_does_not_stand() -> None:
    assert len(problems("It begins like", Finish.LENGTH)) == 1


@pytest.mark.parametrize("text", ["fs.write ✅", "- fs.write: done", "I used `fs.write` successfully."])
def test_a_claim_the_tape_contradicts_does_not_stand(text: str) -> None:
    assert len(problems(text, outcomes=FAILED_WRITE)) == 1
    assert problems(text, outcomes={"fs.write": frozenset({Outcome.FAILED, Outcome.OK})}) == ()


def test_a_longer_tool_name_is_another_tool() -> None:
    assert problems("mcp.fs.write ✅ and fs.write_all ✅", outcomes=FAILED_WRITE) == ()


def test_required_calls_must_have_succeeded() -> None:
    assert len(problems("done", must_call=("fs.write",), outcomes=FAILED_WRITE)) == 1
    assert problems("done", must_call=("fs.read",), outcomes={"fs.read": frozenset({Outcome.OK})}) == ()


def test_schema_errors_are_passed_on_up_to_a_limit() -> None:
    assert len(problems("{}", schema_errors=tuple(f"error {n}" for n in range(9)))) == 5
