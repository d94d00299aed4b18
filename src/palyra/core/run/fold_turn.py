"""Folds turns: routing, the model call and its output. Does not own: tool calls (fold_calls)."""

from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.events.model import (
    BudgetState,
    ContextAssembled,
    Finish,
    ModelError,
    ModelFailed,
    ModelOutput,
    ModelRequested,
    Reservation,
    RoutePlanned,
    ToolCall,
    UsageRecorded,
)
from palyra.core.events.run import EndReason, ObjectivesChecked
from palyra.core.ids import derive_effect_id, digest_call, make_call_id
from palyra.core.run.answer import answer_problems
from palyra.core.run.call import Call, CallPhase, is_settled
from palyra.core.run.loop import CALLS_A_TURN_MAX
from palyra.core.run.state import (
    ChosenRoute,
    ContextSize,
    PlannedEnd,
    Run,
    TurnPhase,
    Unsettled,
    calls_in_flight,
    tell_room,
)
from palyra.core.run.states import RunState


def begin_turn(run: Run) -> Run:
    """Begins a new turn. Calls that the last one left uncertain are kept for a person's retry."""
    open_calls = tuple(call for call in (*run.earlier, *run.calls) if call.phase is not CallPhase.FINISHED)
    return replace(
        run,
        phase=TurnPhase.PLANNING,
        turn=run.turn + 1,
        context=None,
        route=None,
        output=None,
        is_checking=False,
        checked=None,
        calls=(),
        earlier=open_calls,
    )


def assemble(run: Run, data: ContextAssembled) -> Run:
    _require(run, TurnPhase.PLANNING, data.turn, ContextAssembled.TYPE)
    return replace(run, context=ContextSize(data.input_tokens, data.budget_tokens, data.is_over), wants_room=False)


def plan(run: Run, data: RoutePlanned) -> Run:
    """Takes a plan. Tapes of earlier releases have one without a context before it."""
    _require(run, TurnPhase.PLANNING, data.turn, RoutePlanned.TYPE)
    route = ChosenRoute(
        data.chosen, data.budget, data.message, data.fallbacks, data.reserved, data.code, data.expires_in_ms
    )
    return replace(run, phase=TurnPhase.ROUTED, route=route)


def request(run: Run, data: ModelRequested) -> Run:
    """Marks everything said so far as seen, because this call carries it."""
    _require(run, TurnPhase.ROUTED, data.turn, ModelRequested.TYPE)
    route = run.route
    if route is None or route.budget is not BudgetState.OK or route.chosen != data.model:
        raise Invalid("route_mismatch", f"turn {data.turn} of run {run.run_id} has no route to {data.model}")
    loop = replace(run.loop, turns_count=run.loop.turns_count + 1)
    return replace(run, phase=TurnPhase.CALLING, loop=loop, unseen_count=0, is_spoken_to=False, has_news=False)


def receive(run: Run, data: ModelOutput) -> Run:
    _require(run, TurnPhase.CALLING, data.turn, ModelOutput.TYPE)
    if data.finish is Finish.INTERRUPTED:
        # A half answer stays on the tape and is never continued: a new turn replaces it.
        count = run.interruptions_count + 1
        return begin_turn(replace(run, interruptions_count=count, interruption=data.cause or ""))
    received = replace(run, output=data, interruptions_count=0, interruption="", restarts_count=0)
    if len(data.tool_calls) > CALLS_A_TURN_MAX:
        raise Invalid(
            "calls_too_many", f"one output calls {len(data.tool_calls)} tools; the most is {CALLS_A_TURN_MAX}"
        )
    if data.tool_calls:
        return _draw_up(received, data.tool_calls)
    answering = settle_phase(replace(received, phase=TurnPhase.ANSWERING))
    is_checkable = bool(run.objectives) and answering.phase is TurnPhase.ANSWERING and not answer_problems(answering)
    return replace(answering, is_checking=True) if is_checkable else answering


def fail(run: Run, data: ModelFailed) -> Run:
    _require(run, TurnPhase.CALLING, data.turn, ModelFailed.TYPE)
    is_full = data.code is ModelError.CONTEXT_LENGTH
    reason = EndReason.CONTEXT_EXHAUSTED if is_full else EndReason.PROVIDER_ERROR
    # The phase moves on, so that the call no longer counts as in flight.
    failed = begin_turn(run)
    if is_full and run.ending is None and not run.has_made_room:
        # The provider counts otherwise than we do. The next turn is sent less, once.
        return replace(failed, wants_room=True, has_made_room=True, room_words=data.message)
    message = tell_room(run.run_id, data.message) if is_full else data.message
    return failed if run.ending is not None else replace(failed, ending=PlannedEnd(reason, message))


def check(run: Run, data: ObjectivesChecked) -> Run:
    """Takes the results. Those of an earlier turn are about an answer that a person's words or news overtook."""
    if len(data.results) != len(run.objectives):
        raise Invalid("objectives_mismatch", f"run {run.run_id} has {len(run.objectives)} objectives")
    if data.turn < run.turn:
        return run
    _require(run, TurnPhase.ANSWERING, data.turn, ObjectivesChecked.TYPE)
    if not run.is_checking:
        raise Invalid("check_unexpected", f"run {run.run_id} has no answer to check in turn {run.turn}")
    return settle_phase(replace(run, is_checking=False, checked=data.results, restarts_count=0))


def reject_answer(run: Run) -> Run:
    if run.phase is not TurnPhase.ANSWERING or run.has_rejected_answer:
        raise Invalid("answer_unexpected", f"run {run.run_id} has no answer to reject while {run.phase.value}")
    return begin_turn(replace(run, has_rejected_answer=True))


def lose_call(run: Run) -> Run:
    """Repeats a model call that a restart cut off, as a new turn with its own route and reservation."""
    if run.phase is not TurnPhase.CALLING:
        return run
    match run.route:
        case ChosenRoute(chosen=str() as model, reserved=Reservation() as reserved):
            return begin_turn(replace(run, unsettled=Unsettled(run.turn, model, reserved)))
        case _:
            return begin_turn(run)


def settle_spend(run: Run, data: UsageRecorded) -> Run:
    """Notes that the spend of a lost call is settled. Spend changes nothing else."""
    is_lost = run.unsettled is not None and run.unsettled.turn == data.turn
    return replace(run, unsettled=None) if is_lost else run


def settle_phase(run: Run) -> Run:
    """Moves on to the next turn if all calls of this one are settled, or if the answer is older than the last input."""
    if calls_in_flight(run):
        return run
    is_acted = run.phase is TurnPhase.ACTING and all(is_settled(call) for call in run.calls)
    is_overtaken = run.phase is TurnPhase.ANSWERING and (run.unseen_count > 0 or run.has_news)
    return begin_turn(run) if is_acted or is_overtaken else run


def _draw_up(run: Run, tool_calls: tuple[ToolCall, ...]) -> Run:
    first = run.loop.tool_calls_count + 1
    calls = tuple(_draw_up_call(run, first + offset, call) for offset, call in enumerate(tool_calls))
    loop = replace(run.loop, tool_calls_count=run.loop.tool_calls_count + len(calls))
    return replace(run, phase=TurnPhase.ACTING, calls=calls, loop=loop)


def _draw_up_call(run: Run, index: int, call: ToolCall) -> Call:
    if call.call_id != make_call_id(run.run_id, index):
        raise Invalid("call_id_unexpected", f"call {call.call_id} of run {run.run_id} is not the one of index {index}")
    return Call(
        index=index,
        call_id=call.call_id,
        effect_id=derive_effect_id(run.run_id, index, call.tool, call.arguments),
        tool=call.tool,
        arguments=call.arguments,
        digest=digest_call(call.tool, call.arguments),
    )


def _require(run: Run, phase: TurnPhase, turn: int, type_name: str) -> None:
    if run.state is not RunState.IN_PROGRESS or run.phase is not phase or run.turn != turn:
        place = f"{run.state.value}, turn {run.turn}, {run.phase.value}"
        raise Invalid("turn_mismatch", f"{type_name} of turn {turn} is not possible for run {run.run_id} ({place})")
