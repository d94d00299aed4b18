"""The walk of a run through `decide`: one claim a test, no engine."""

import pytest

from palyra.core.errors import Invalid
from palyra.core.events import Draft
from palyra.core.events.model import BudgetState, Finish, ModelError, ModelOutput
from palyra.core.events.run import (
    AnswerRejected,
    EndReason,
    GuardTripped,
    MessageAssistant,
    ResumeCause,
    RunCancelled,
    RunDone,
    RunFailed,
    RunResumed,
    RunWaiting,
)
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    EffectClass,
    Outcome,
    ParallelClass,
    ToolFinished,
    ToolStarted,
    ToolUncertain,
    Verdict,
)
from palyra.core.ids import digest_call
from palyra.core.run.deadlines import next_deadline_ms, overdue
from palyra.core.run.effects import Assemble, CallModel, Execute, Judge, PlanRoute, Stop
from palyra.core.run.fold import fold
from palyra.core.run.loop import make_limits
from palyra.core.run.states import RunState
from palyra.core.trust import Trust
from tests.support.runs import ALICE, MODEL, RUN, Script, call_id

Proposal = tuple[str, dict[str, object]]
READ: Proposal = ("fs.read", {"path": "a"})
SEND: Proposal = ("channel.send", {"text": "hi"})


def test_accepted_run_waits_to_be_started() -> None:
    script = Script()
    assert script.types() == ["run.accepted", "message.user"]
    assert script.is_in(RunState.ACCEPTED)
    assert script.effects == ()


def test_started_run_plans_its_first_route() -> None:
    assert Script().begin().effects == (Assemble(1),)


def test_route_leads_to_a_recorded_request_and_the_call() -> None:
    script = Script().begin().route()
    assert script.types()[-2:] == ["route.planned", "model.requested"]
    assert script.effects == (CallModel(1, MODEL),)


def test_plain_answer_ends_the_run_in_the_same_record() -> None:
    script = Script().begin().answer("forty-two")
    assert script.types()[-3:] == ["model.output", "message.assistant", "run.done"]
    assert script.is_in(RunState.DONE)
    assert script.effects == ()


def test_answer_has_the_lowest_trust_of_what_the_run_saw() -> None:
    script = Script().begin().propose(READ).judge(1)
    call = script.state.calls[0]
    finished = ToolFinished(
        call_id=call.call_id,
        effect_id=call.effect_id,
        outcome=Outcome.OK,
        error=None,
        attestation=None,
        output="web",
    )
    script.feed(finished, trust=Trust.EXTERNAL)
    script.answer("so it says")
    assert next(d.trust for d in script.tape if isinstance(d.data, MessageAssistant)) is Trust.EXTERNAL


def test_every_proposal_is_recorded_and_judged_before_anything_starts() -> None:
    script = Script().begin().propose(READ, SEND)
    assert script.types()[-3:] == ["model.output", "tool.proposed", "tool.proposed"]
    assert script.effects == (Judge(call_id(1)), Judge(call_id(2)))


def test_allowed_call_is_started_on_the_tape_before_it_executes() -> None:
    script = Script().begin().propose(READ).judge(1)
    assert script.types()[-2:] == ["tool.judged", "tool.started"]
    assert script.effects == (Execute(call_id(1), script.state.calls[0].effect_id, 1),)


def test_denied_call_is_never_started_and_the_run_goes_on() -> None:
    script = Script().begin().propose(READ).judge(1, Verdict.DENY)
    assert script.types()[-2:] == ["tool.judged", "tool.finished"]
    assert script.effects == (Assemble(2),)
    assert script.data(ToolStarted) == []


def test_ask_holds_the_run_without_anything_in_flight() -> None:
    script = Script().begin().propose(SEND).judge(1, Verdict.ASK, EffectClass.ONCE)
    assert script.types()[-3:] == ["tool.judged", "approval.requested", "run.waiting"]
    assert script.is_in(RunState.WAITING)
    assert script.effects == ()


def test_approval_is_bound_to_the_digest_of_the_call() -> None:
    script = Script().begin().propose(SEND).judge(1, Verdict.ASK)
    request = script.data(ApprovalRequested)[0]
    assert isinstance(request, ApprovalRequested)
    assert request.digest == digest_call(*SEND)
    forged = ApprovalResolved(
        approval_id=request.approval_id,
        status=ApprovalStatus.ALLOWED,
        decision=Decision.ALLOW,
        decided_by=ALICE,
        digest=digest_call("channel.send", {"text": "other"}),
    )
    before = script.state
    with pytest.raises(Invalid, match="approval_mismatch"):
        script.feed(forged)
    assert script.state is before


def test_allowed_approval_resumes_and_starts_the_call() -> None:
    script = Script().begin().propose(SEND).judge(1, Verdict.ASK).resolve()
    assert script.types()[-3:] == ["approval.resolved", "run.resumed", "tool.started"]
    assert len(script.effects) == 1
    assert isinstance(script.effects[0], Execute)


def test_denied_approval_is_a_result_and_the_run_goes_on() -> None:
    script = Script().begin().propose(SEND).judge(1, Verdict.ASK).resolve(Decision.DENY)
    assert script.types()[-3:] == ["approval.resolved", "tool.finished", "run.resumed"]
    assert script.effects == (Assemble(2),)


def test_denied_approval_with_end_run_ends_it() -> None:
    script = Script().begin().propose(SEND).judge(1, Verdict.ASK).resolve(Decision.DENY, end_run=True)
    assert script.data(RunFailed) == [
        RunFailed(
            reason=EndReason.APPROVAL_DENIED,
            message="The call of channel.send was refused, and the run cannot go on without it.",
        )
    ]


def test_denial_of_a_required_tool_ends_the_run() -> None:
    script = Script(must_call=("channel.send",)).begin().propose(SEND).judge(1, Verdict.ASK).resolve(Decision.DENY)
    assert script.is_in(RunState.FAILED)


def test_an_approval_is_decided_once() -> None:
    script = Script().begin().propose(SEND).judge(1, Verdict.ASK)
    answer = script.state.questions[0]
    script.resolve()
    again = ApprovalResolved(
        approval_id=answer.approval_id,
        status=ApprovalStatus.ALLOWED,
        decision=Decision.ALLOW,
        decided_by=ALICE,
        digest=answer.digest,
    )
    with pytest.raises(Invalid, match="approval_unknown"):
        script.feed(again)


def test_ask_is_illegal_where_nobody_can_be_asked() -> None:
    script = Script(can_ask=False).begin().propose(SEND)
    with pytest.raises(Invalid, match="nobody_to_ask"):
        script.judge(1, Verdict.ASK)


def test_calls_behind_an_open_question_wait_for_it() -> None:
    script = Script().begin().propose(READ, SEND, READ).judge(1).judge(2, Verdict.ASK).judge(3)
    assert [call.phase.value for call in script.state.calls] == ["started", "pending", "cleared"]
    assert script.is_in(RunState.IN_PROGRESS)
    script.finish(1)
    assert script.is_in(RunState.WAITING)


def test_parallel_reads_start_together_up_to_the_limit() -> None:
    script = Script().begin().propose(*[READ] * 6)
    for number in range(1, 7):
        script.judge(number)
    assert [call.phase.value for call in script.state.calls] == ["started"] * 4 + ["cleared"] * 2
    script.finish(2)
    assert script.state.calls[4].phase.value == "started"


def test_never_parallel_call_runs_alone() -> None:
    script = Script().begin().propose(READ, SEND, READ)
    script.judge(1).judge(2, parallel_class=ParallelClass.NEVER).judge(3)
    assert [call.phase.value for call in script.state.calls] == ["started", "cleared", "cleared"]
    script.finish(1)
    assert [call.phase.value for call in script.state.calls] == ["finished", "started", "cleared"]


def test_writes_to_nested_paths_do_not_run_together() -> None:
    script = Script().begin().propose(READ, READ, READ)
    for number, path in ((1, "src"), (2, "docs/a"), (3, "src/a.py")):
        script.judge(number, parallel_class=ParallelClass.PATH_SCOPED, paths=(path,))
    assert [call.phase.value for call in script.state.calls] == ["started", "started", "cleared"]


def test_steering_reaches_the_next_model_call() -> None:
    script = Script().begin().route().say()
    assert script.state.unseen_count == 1
    script.answer("first thought")
    assert script.is_in(RunState.IN_PROGRESS)
    assert script.data(MessageAssistant) == []
    script.answer("with your words in mind")
    assert script.is_in(RunState.DONE)


def test_steering_a_waiting_run_supersedes_the_question() -> None:
    script = Script().begin().propose(SEND).judge(1, Verdict.ASK).say("do not send, write it down")
    resolved = script.data(ApprovalResolved)[0]
    assert isinstance(resolved, ApprovalResolved)
    assert (resolved.status, resolved.reason) == (ApprovalStatus.DENIED, "superseded")
    assert script.is_in(RunState.IN_PROGRESS)
    assert script.effects == (Assemble(2),)


def test_cancel_of_a_queued_run_ends_it_at_once() -> None:
    script = Script().cancel()
    assert script.types()[-2:] == ["cancel.requested", "run.cancelled"]


def test_cancel_while_waiting_closes_question_and_call() -> None:
    script = Script().begin().propose(SEND).judge(1, Verdict.ASK).cancel()
    assert script.types()[-4:] == ["cancel.requested", "approval.resolved", "tool.finished", "run.cancelled"]


def test_cancel_stops_the_model_and_ends_when_it_came_home() -> None:
    script = Script().begin().route().cancel()
    assert script.effects == (Stop(CallModel(1, MODEL)),)
    assert script.is_in(RunState.IN_PROGRESS)
    script.answer("half an ans", Finish.INTERRUPTED)
    assert script.types()[-2:] == ["model.output", "run.cancelled"]


def test_cancel_stops_tools_and_records_what_they_came_to() -> None:
    script = Script().begin().propose(READ).judge(1).cancel()
    assert [type(effect) for effect in script.effects] == [Stop]
    script.finish(1, Outcome.CANCELLED)
    assert script.types()[-2:] == ["tool.finished", "run.cancelled"]


def test_wall_clock_counts_active_time_only() -> None:
    script = Script(limits=make_limits(wall_clock_ms=10_000)).begin()
    script.now_ms += 4_000
    script.propose(SEND).judge(1, Verdict.ASK)
    script.now_ms += 500_000
    assert [type(fact.data) for fact in overdue(script.state, script.now_ms)] == []
    script.resolve()
    assert next_deadline_ms(script.state) == script.now_ms + 6_000
    script.now_ms += 6_000
    script.feed_drafts(*overdue(script.state, script.now_ms)).finish(1, Outcome.CANCELLED)
    assert script.data(RunCancelled)[0].reason is EndReason.WALL_CLOCK  # type: ignore[union-attr]


def test_approval_expires_to_deny() -> None:
    script = Script().begin().propose(SEND).judge(1, Verdict.ASK)
    deadline_ms = next_deadline_ms(script.state)
    assert deadline_ms == script.now_ms + 900_000
    script.now_ms = deadline_ms
    script.feed_drafts(*overdue(script.state, script.now_ms))
    assert script.state.progress.denials_count == 1
    assert script.is_in(RunState.IN_PROGRESS)


def test_restart_repeats_a_read_under_the_same_effect_id() -> None:
    script = Script().begin().propose(READ).judge(1)
    effect_id = script.state.calls[0].effect_id
    script.restart()
    assert script.types()[-2:] == ["run.resumed", "tool.started"]
    assert script.effects == (Execute(call_id(1), effect_id, 2),)


def test_restart_never_repeats_a_once_effect() -> None:
    script = Script().begin().propose(SEND).judge(1, effect_class=EffectClass.ONCE).restart()
    assert script.types()[-3:] == ["run.resumed", "tool.uncertain", "approval.requested"]
    assert script.is_in(RunState.IN_PROGRESS)
    assert not any(isinstance(effect, Execute) for effect in script.effects)


def test_uncertain_effect_is_retried_only_by_a_person() -> None:
    script = Script().begin().propose(SEND).judge(1, effect_class=EffectClass.ONCE).restart()
    script.route().resolve(Decision.RETRY)
    started = script.data(ToolStarted)
    assert [item.attempt for item in started if isinstance(item, ToolStarted)] == [1, 2]
    script.finish(1)
    assert script.state.has_news
    script.answer("not yet told")
    assert script.is_in(RunState.IN_PROGRESS)
    script.answer("told now")
    assert script.is_in(RunState.DONE)


def test_uncertain_effect_can_be_marked_done_after_the_run_but_not_retried() -> None:
    script = Script().begin().propose(SEND).judge(1, effect_class=EffectClass.ONCE).restart().answer("unclear")
    assert script.is_in(RunState.DONE)
    with pytest.raises(Invalid, match="run_ended"):
        script.resolve(Decision.RETRY)
    script.resolve(Decision.DONE)
    assert script.state.questions == ()


def test_second_loss_of_a_retried_effect_asks_again() -> None:
    script = Script().begin().propose(SEND).judge(1, effect_class=EffectClass.ONCE).restart()
    script.resolve(Decision.RETRY).restart()
    assert len(script.data(ToolUncertain)) == 2
    kinds = [item.kind for item in script.data(ApprovalRequested) if isinstance(item, ApprovalRequested)]
    assert kinds == [ApprovalKind.UNCERTAIN] * 2


def test_restart_makes_an_interrupted_model_call_again() -> None:
    script = Script().begin().route().restart()
    assert script.effects == (Assemble(2),)


def test_restart_of_a_cancelled_run_ends_it() -> None:
    script = Script().begin().propose(SEND).judge(1, effect_class=EffectClass.ONCE).cancel().restart()
    assert script.types()[-4:] == ["run.resumed", "tool.uncertain", "approval.requested", "run.cancelled"]


def test_three_restarts_without_progress_end_the_run() -> None:
    script = Script().begin().restart().restart()
    assert script.is_in(RunState.IN_PROGRESS)
    script.restart()
    assert script.data(RunFailed)[0].reason is EndReason.NO_PROGRESS  # type: ignore[union-attr]


def test_progress_between_restarts_starts_the_count_again() -> None:
    script = Script().begin().restart().restart().propose(READ).judge(1).restart().restart()
    assert script.is_in(RunState.IN_PROGRESS)


def test_context_comes_before_the_plan_and_is_made_anew_after_new_words() -> None:
    assert Script().begin().assemble().effects == (PlanRoute(1, False),)
    assert Script().begin().assemble().say("wait").effects == (Assemble(1),)


def test_context_that_does_not_fit_ends_the_run_and_names_what_helps() -> None:
    script = Script().begin().assemble(budget_tokens=10, input_tokens=20, is_over=True)
    (failed,) = script.data(RunFailed)
    assert failed.reason is EndReason.CONTEXT_EXHAUSTED  # type: ignore[union-attr]
    assert "palyra runs context" in failed.message  # type: ignore[union-attr]


def test_budget_question_holds_the_call_and_approval_plans_again() -> None:
    script = Script().begin().route(BudgetState.ASK)
    assert script.types()[-2:] == ["approval.requested", "run.waiting"]
    script.resolve()
    assert script.effects == (PlanRoute(1, True),)


@pytest.mark.parametrize(
    ("budget", "chosen", "reason"),
    [(BudgetState.DENY, MODEL, EndReason.BUDGET), (BudgetState.OK, None, EndReason.PROVIDER_ERROR)],
)
def test_route_that_cannot_be_taken_ends_the_run(budget: BudgetState, chosen: str | None, reason: EndReason) -> None:
    script = Script().begin().route(budget, chosen)
    assert script.data(RunFailed)[0].reason is reason  # type: ignore[union-attr]


def test_budget_question_without_anybody_to_ask_ends_the_run() -> None:
    script = Script(can_ask=False).begin().route(BudgetState.ASK)
    assert script.data(RunFailed)[0].reason is EndReason.BUDGET  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("code", "reason"),
    [(ModelError.CONTEXT_LENGTH, EndReason.CONTEXT_EXHAUSTED), (ModelError.AUTH, EndReason.PROVIDER_ERROR)],
)
def test_failed_model_call_ends_the_run_with_its_reason(code: ModelError, reason: EndReason) -> None:
    script = Script().begin().fail_model(code)
    if code is ModelError.CONTEXT_LENGTH:
        assert script.effects == (Assemble(2),)
        script.fail_model(code)
    assert script.data(RunFailed)[0].reason is reason  # type: ignore[union-attr]


def test_interrupted_output_is_kept_and_the_turn_made_again() -> None:
    script = Script().begin().answer("half", Finish.INTERRUPTED)
    assert script.effects == (Assemble(2),)
    script.answer("half", Finish.INTERRUPTED).answer("half", Finish.INTERRUPTED)
    assert script.data(RunFailed)[0].reason is EndReason.PROVIDER_ERROR  # type: ignore[union-attr]


def test_tool_call_limit_ends_the_run_before_the_call_is_proposed() -> None:
    script = Script(limits=make_limits(max_tool_calls=1)).begin().propose(READ, READ)
    assert script.data(RunFailed)[0].reason is EndReason.MAX_TOOL_CALLS  # type: ignore[union-attr]
    assert "tool.proposed" not in script.types()


def test_turn_limit_ends_the_run() -> None:
    script = Script(limits=make_limits(max_tool_calls=0)).begin()
    for _ in range(8):
        script.route().say().answer("overtaken by your words")
    assert script.data(RunFailed)[0].reason is EndReason.MAX_TURNS  # type: ignore[union-attr]


def test_rejected_answer_gets_one_recovery_turn() -> None:
    script = Script().begin().answer("  ")
    assert len(script.data(AnswerRejected)) == 1
    script.answer("better")
    assert script.data(RunDone) == [RunDone(reason=EndReason.FINAL_ANSWER, message="")]


def test_second_bad_answer_is_an_incomplete_answer() -> None:
    script = Script().begin().answer("").answer("")
    assert script.data(RunFailed)[0].reason is EndReason.INCOMPLETE_ANSWER  # type: ignore[union-attr]


def test_guard_warns_once_then_ends_the_run() -> None:
    script = Script().begin()
    for number in range(1, 4):
        script.propose(READ).judge(number).finish(number, Outcome.FAILED, f"no such file {number}")
    assert [item.guard for item in script.data(GuardTripped) if isinstance(item, GuardTripped)] == ["equal_failures"]
    for number in range(4, 7):
        script.propose(READ).judge(number).finish(number, Outcome.FAILED, f"no such file {number}")
    assert script.data(RunFailed)[0].reason is EndReason.NO_PROGRESS  # type: ignore[union-attr]


def test_waiting_names_the_questions_it_waits_for() -> None:
    other: Proposal = ("channel.send", {"text": "ho"})
    script = Script().begin().propose(SEND, other).judge(1, Verdict.ASK).judge(2, Verdict.ASK)
    waiting = script.data(RunWaiting)
    assert len(waiting) == 1
    assert isinstance(waiting[0], RunWaiting)
    assert len(waiting[0].approval_ids) == 2


def test_call_named_by_another_index_is_refused() -> None:
    script = Script().begin().route()
    other = Script().begin().propose(READ, READ)
    second_only = ModelOutput(
        turn=1,
        text="",
        tool_calls=other.state.output.tool_calls[1:] if other.state.output else (),
        finish=Finish.TOOL_CALLS,
        usage=None,
    )
    with pytest.raises(Invalid, match="call_id_unexpected"):
        script.feed(second_only)


def test_a_second_budget_question_of_one_turn_is_another_question() -> None:
    script = Script().begin().route(BudgetState.ASK).resolve().route(BudgetState.ASK)
    requests = [item for item in script.data(ApprovalRequested) if isinstance(item, ApprovalRequested)]
    assert len({request.approval_id for request in requests}) == 2


def test_an_intent_to_repeat_a_lost_once_effect_is_illegal() -> None:
    script = Script().begin().propose(SEND).judge(1, effect_class=EffectClass.ONCE)
    call = script.state.calls[0]
    lost = fold(
        script.state,
        Draft(data=RunResumed(cause=ResumeCause.RESTART), actor=ALICE, trust=Trust.SYSTEM, at_ms=0, run_id=RUN),
    )
    again = ToolStarted(call_id=call.call_id, effect_id=call.effect_id, attempt=2)
    with pytest.raises(Invalid, match="effect_repeated"):
        fold(lost, Draft(data=again, actor=ALICE, trust=Trust.SYSTEM, at_ms=0, run_id=RUN))


def test_more_calls_in_one_output_than_the_limit_are_illegal() -> None:
    with pytest.raises(Invalid, match="calls_too_many"):
        Script(limits=make_limits(max_tool_calls=5_000)).begin().propose(*[READ] * 65)
