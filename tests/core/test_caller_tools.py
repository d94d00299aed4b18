"""Calls that the caller executes: handed out, waited for on disk, and finished by the caller's result."""

import pytest

from palyra.core.caller_tools import CALLER_TOOLS_MAX, require_caller_tools, spec_of
from palyra.core.errors import Invalid
from palyra.core.events.run import CallerTool, ResumeCause, RunCancelled, RunResumed, RunWaiting, WaitKind
from palyra.core.events.tool import Outcome, ToolFinished, ToolStarted, Verdict
from palyra.core.run.deadlines import CALLER_GONE, next_deadline_ms, overdue
from palyra.core.run.decide import wanted
from palyra.core.run.effects import Execute
from palyra.core.run.state import calls_handed_out
from palyra.core.run.states import RunState
from tests.support.runs import Script, call_id, fold_tape

TIMEOUT_MS = 5_000


def handed_out(count: int = 1) -> Script:
    script = Script(caller_tools=("look_up",)).begin()
    calls: list[tuple[str, dict[str, object]]] = [("look_up", {"n": n}) for n in range(count)]
    script.propose(*calls)
    for number in range(1, count + 1):
        script.hand_out(number, TIMEOUT_MS)
    return script


def test_a_callers_call_has_a_verdict_and_an_intent_and_is_never_executed_here() -> None:
    script = handed_out()
    assert script.types()[-3:] == ["tool.judged", "tool.started", "run.waiting"]
    assert not [effect for effect in wanted(script.state) if isinstance(effect, Execute)]
    (started,) = script.data(ToolStarted)
    assert isinstance(started, ToolStarted)
    assert started.expires_at_ms == script.now_ms + TIMEOUT_MS


def test_the_run_waits_for_the_caller_and_says_so() -> None:
    script = handed_out(2)
    (waiting,) = script.data(RunWaiting)
    assert isinstance(waiting, RunWaiting)
    assert (waiting.kind, waiting.call_ids) == (WaitKind.CALLER_TOOL, (call_id(1), call_id(2)))
    assert script.is_in(RunState.WAITING)


def test_more_calls_are_handed_out_at_once_than_tools_run_here() -> None:
    assert len(calls_handed_out(handed_out(9).state)) == 9


def test_the_run_goes_on_when_every_result_has_come() -> None:
    script = handed_out(2).finish(1)
    assert script.is_in(RunState.WAITING)
    script.finish(2)
    (resumed,) = script.data(RunResumed)
    assert isinstance(resumed, RunResumed)
    assert resumed.cause is ResumeCause.CALLER_TOOL
    assert script.is_in(RunState.IN_PROGRESS)
    assert script.answer("done").is_in(RunState.DONE)


def test_a_result_that_comes_twice_counts_once() -> None:
    script = handed_out(2).finish(1)
    with pytest.raises(Invalid, match="outcome_impossible"):
        script.finish(1)


def test_a_restart_leaves_a_handed_out_call_as_it_is() -> None:
    script = Script(caller_tools=("look_up",)).begin()
    script.propose(("look_up", {}), ("fs.read", {})).hand_out(1).judge(2)
    assert script.is_in(RunState.IN_PROGRESS)
    script.restart()
    assert [call.call_id for call in calls_handed_out(script.state)] == [call_id(1)]
    script.finish(2)
    assert script.is_in(RunState.WAITING)
    assert fold_tape(script.events()) == script.state


def test_a_caller_who_does_not_answer_in_time_ends_the_run_without_another_model_call() -> None:
    script = handed_out()
    assert next_deadline_ms(script.state) == script.now_ms + TIMEOUT_MS
    script.now_ms += TIMEOUT_MS
    script.feed_drafts(*overdue(script.state, script.now_ms))
    assert script.is_in(RunState.CANCELLED)
    (ended,) = script.data(RunCancelled)
    assert isinstance(ended, RunCancelled)
    assert ended.message == CALLER_GONE


def test_a_message_instead_of_a_result_ends_the_wait() -> None:
    script = handed_out().say("never mind")
    (finished,) = script.data(ToolFinished)
    assert isinstance(finished, ToolFinished)
    assert (finished.outcome, finished.error and finished.error.code) == (Outcome.CANCELLED, "superseded")
    assert script.is_in(RunState.IN_PROGRESS)


def test_cancel_works_while_the_caller_is_waited_for() -> None:
    assert handed_out().cancel().is_in(RunState.CANCELLED)


def test_an_open_question_and_a_callers_call_are_waited_for_together() -> None:
    script = Script(caller_tools=("look_up",)).begin()
    script.propose(("look_up", {}), ("fs.write", {})).hand_out(1).judge(2, Verdict.ASK)
    (waiting,) = script.data(RunWaiting)
    assert isinstance(waiting, RunWaiting)
    assert waiting.kind is WaitKind.APPROVAL
    assert waiting.call_ids == (call_id(1),)
    script.resolve()
    script.finish(1)
    assert [effect.call_id for effect in wanted(script.state) if isinstance(effect, Execute)] == [call_id(2)]


def test_no_verdict_makes_a_tool_of_ours_the_callers_or_the_other_way_round() -> None:
    with pytest.raises(Invalid, match="executor_mismatch"):
        Script().begin().propose(("fs.read", {})).hand_out(1)
    with pytest.raises(Invalid, match="executor_mismatch"):
        Script(caller_tools=("look_up",)).begin().propose(("look_up", {})).judge(1)


@pytest.mark.parametrize(
    ("tools", "code"),
    [
        ([CallerTool(name="a.b")], "tool_name_invalid"),
        ([CallerTool(name="")], "tool_name_invalid"),
        ([CallerTool(name="x" * 65)], "tool_name_invalid"),
        ([CallerTool(name="a"), CallerTool(name="a")], "tool_twice"),
        ([CallerTool(name="fs__read")], "tool_name_taken"),
        ([CallerTool(name=f"t{n}") for n in range(CALLER_TOOLS_MAX + 1)], "tools_too_many"),
    ],
)
def test_tools_that_could_not_be_offered_or_told_from_ours_are_refused(tools: list[CallerTool], code: str) -> None:
    with pytest.raises(Invalid) as refused:
        require_caller_tools(tuple(tools), ("fs.read",))
    assert refused.value.code == code


def test_a_tool_without_parameters_is_offered_with_an_empty_object() -> None:
    assert spec_of(CallerTool(name="now")).input_schema == {"type": "object", "properties": {}}
