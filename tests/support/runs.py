"""Runs for tests: short functions for facts, and a script that feeds them to `decide` and keeps the tape."""

from collections.abc import Iterable

from palyra.core.caller_tools import CALLER_RULE
from palyra.core.events import Data, Draft, Event
from palyra.core.events.model import (
    BudgetState,
    ContextAssembled,
    Finish,
    ModelError,
    ModelFailed,
    ModelOutput,
    RouteMode,
    RoutePlanned,
    ToolCall,
)
from palyra.core.events.run import (
    CallerTool,
    CancelRequested,
    EndReason,
    MessageUser,
    ObjectiveResult,
    ObjectivesChecked,
    ObjectiveState,
    ResumeCause,
    RunAccepted,
    RunLimits,
    RunResumed,
    RunStarted,
)
from palyra.core.events.tool import (
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    EffectClass,
    Outcome,
    ParallelClass,
    ToolError,
    ToolFinished,
    ToolJudged,
    Verdict,
)
from palyra.core.ids import CallId, Principal, RunId, StreamId, make_call_id
from palyra.core.run.decide import Record, decide_all
from palyra.core.run.effects import Effect
from palyra.core.run.fold import accept, fact_of, fold
from palyra.core.run.loop import make_limits
from palyra.core.run.state import Run, TurnPhase, find_question
from palyra.core.run.states import RunState
from palyra.core.trust import Trust

RUN = RunId("01JZ0000000000000000RUN001")
SESSION = StreamId("01JZ0000000000000000SESS01")
ALICE = Principal("user:alice")
MODEL = "scripted"
START_MS = 1_750_000_000_000


class Script:
    """A run driven by hand: what it recorded so far (`tape`), and what it asked for last (`effects`)."""

    def __init__(
        self,
        *,
        limits: RunLimits | None = None,
        can_ask: bool = True,
        must_call: tuple[str, ...] = (),
        caller_tools: tuple[str, ...] = (),
        objectives: tuple[str, ...] = (),
    ) -> None:
        self.now_ms = START_MS
        self.run: Run | None = None
        self.tape: list[Draft] = []
        self.effects: tuple[Effect, ...] = ()
        accepted = RunAccepted(
            agent="main",
            origin="test",
            can_ask=can_ask,
            limits=limits or make_limits(),
            must_call=must_call,
            caller_tools=tuple(CallerTool(name=name) for name in caller_tools),
            objectives=objectives,
        )
        self.feed(accepted, MessageUser(text="do it"))

    @property
    def state(self) -> Run:
        assert self.run is not None
        return self.run

    def is_in(self, state: RunState) -> bool:
        return self.state.state is state

    def feed(self, *facts: Data, actor: Principal = ALICE, trust: Trust = Trust.OPERATOR) -> "Script":
        """Feeds facts that arrive together; raises Invalid and changes nothing if one is illegal."""
        drafts = [Draft(data=data, actor=actor, trust=trust, at_ms=self.now_ms, run_id=RUN) for data in facts]
        return self.feed_drafts(*drafts)

    def feed_drafts(self, *drafts: Draft) -> "Script":
        run, (record, *effects) = decide_all(self.run, drafts)
        assert isinstance(record, Record)
        self.run, self.effects = run, tuple(effect for effect in effects if not isinstance(effect, Record))
        self.tape.extend(record.drafts)
        return self

    def types(self, since: int = 0) -> list[str]:
        return [draft.data.TYPE for draft in self.tape[since:]]

    def data(self, data_type: type[Data]) -> list[Data]:
        return [draft.data for draft in self.tape if isinstance(draft.data, data_type)]

    def events(self) -> list[Event]:
        """Returns the tape as it would be read back."""
        return [
            Event(
                seq=seq,
                position=seq,
                stream=SESSION,
                run_id=draft.run_id,
                type=draft.data.TYPE,
                at_ms=draft.at_ms,
                actor=draft.actor,
                trust=draft.trust,
                data=draft.data,
                hash="",
                salt=None,
                digest="",
            )
            for seq, draft in enumerate(self.tape, start=1)
        ]

    def begin(self) -> "Script":
        return self.feed(RunStarted())

    def assemble(self, **fields: object) -> "Script":
        data = ContextAssembled(turn=self.state.turn, **{"budget_tokens": 0, "layers": (), **fields})  # type: ignore[arg-type]
        return self.feed(data)

    def route(self, budget: BudgetState = BudgetState.OK, chosen: str | None = MODEL) -> "Script":
        """Feeds a plan, after a context if the turn has none."""
        if self.state.context is None and self.state.phase is TurnPhase.PLANNING:
            self.assemble()
        return self.feed(RoutePlanned(turn=self.state.turn, mode=RouteMode.ENFORCED, chosen=chosen, budget=budget))

    def propose(self, *calls: tuple[str, dict[str, object]]) -> "Script":
        """Feeds a model output that calls tools; plans the route first if the run is at that point."""
        self._reach_call()
        return self.feed(output(self.state, calls=calls))

    def answer(self, text: str, finish: Finish = Finish.STOP) -> "Script":
        self._reach_call()
        return self.feed(output(self.state, text=text, finish=finish))

    def check(self, *states: ObjectiveState, note: str = "", is_reviewed: bool = False) -> "Script":
        """Feeds what a check of the objectives found, one state for each."""
        results = tuple(ObjectiveResult(state=state, note=note, is_reviewed=is_reviewed) for state in states)
        return self.feed(ObjectivesChecked(turn=self.state.turn, results=results))

    def fail_model(self, code: ModelError = ModelError.OVERLOADED) -> "Script":
        self._reach_call()
        return self.feed(ModelFailed(turn=self.state.turn, code=code, message="try later"))

    def judge(
        self,
        number: int,
        verdict: Verdict = Verdict.ALLOW,
        effect_class: EffectClass = EffectClass.READ_ONLY,
        parallel_class: ParallelClass = ParallelClass.READ_ONLY_SAFE,
        paths: tuple[str, ...] = (),
    ) -> "Script":
        judged = ToolJudged(
            call_id=call_id(number),
            verdict=verdict,
            rule="test_rule",
            reason="because",
            effect_class=effect_class,
            parallel_class=parallel_class,
            paths=paths,
        )
        return self.feed(judged)

    def hand_out(self, number: int, expires_in_ms: int = 900_000) -> "Script":
        """Feeds the verdict on a call that the caller executes."""
        judged = ToolJudged(
            call_id=call_id(number),
            verdict=Verdict.ALLOW,
            rule=CALLER_RULE,
            reason="",
            parallel_class=ParallelClass.READ_ONLY_SAFE,
            is_callers=True,
            expires_in_ms=expires_in_ms,
        )
        return self.feed(judged)

    def finish(self, number: int, outcome: Outcome = Outcome.OK, output_text: str = "out") -> "Script":
        error = None if outcome is Outcome.OK else ToolError(code="broken", message=output_text)
        call = next(c for c in (*self.state.calls, *self.state.earlier) if c.call_id == call_id(number))
        finished = ToolFinished(
            call_id=call.call_id,
            effect_id=call.effect_id,
            outcome=outcome,
            error=error,
            attestation=None,
            output=output_text,
        )
        return self.feed(finished)

    def resolve(self, decision: Decision = Decision.ALLOW, *, end_run: bool = False, index: int = 0) -> "Script":
        question = find_question(self.state, self.state.questions[index].approval_id)
        status = ApprovalStatus.DENIED if decision in (Decision.DENY, Decision.GIVE_UP) else ApprovalStatus.ALLOWED
        resolved = ApprovalResolved(
            approval_id=question.approval_id,
            status=status,
            decision=decision,
            decided_by=ALICE,
            digest=question.digest,
            end_run=end_run,
        )
        return self.feed(resolved)

    def say(self, text: str = "and this") -> "Script":
        return self.feed(MessageUser(text=text))

    def cancel(self) -> "Script":
        return self.feed(CancelRequested(reason=EndReason.CANCELLED))

    def restart(self) -> "Script":
        return self.feed(RunResumed(cause=ResumeCause.RESTART))

    def _reach_call(self) -> None:
        if self.state.phase.value == "planning":
            self.route()


def call_id(number: int) -> CallId:
    return make_call_id(RUN, number)


def output(
    run: Run, *, text: str = "", finish: Finish = Finish.STOP, calls: tuple[tuple[str, dict[str, object]], ...] = ()
) -> ModelOutput:
    first = run.loop.tool_calls_count + 1
    tool_calls = tuple(
        ToolCall(call_id=call_id(first + offset), tool=tool, arguments=arguments)
        for offset, (tool, arguments) in enumerate(calls)
    )
    return ModelOutput(
        turn=run.turn,
        text=text,
        tool_calls=tool_calls,
        finish=Finish.TOOL_CALLS if calls else finish,
        usage=None,
    )


def fold_tape(events: Iterable[Event]) -> Run | None:
    run: Run | None = None
    for event in events:
        fact = fact_of(event)
        run = accept(fact) if run is None else fold(run, fact)
    return run
