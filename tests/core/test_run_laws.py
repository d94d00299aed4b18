"""Laws of a run over arbitrary histories: a world that answers effects in any order, people who interfere, restarts,
and facts that have no business there."""

import random
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.errors import Invalid
from palyra.core.events import Draft
from palyra.core.events.draft import ConflictCause, DraftApplying, DraftConflicted, DraftJudged, ToolDrafted
from palyra.core.events.model import BudgetState, Finish, ModelError
from palyra.core.events.run import (
    CancelRequested,
    EndReason,
    MessageAssistant,
    MessageUser,
    ObjectiveResult,
    ObjectivesChecked,
    ObjectiveState,
    ResumeCause,
    RunResumed,
    RunStarted,
    RunWaiting,
    WaitKind,
)
from palyra.core.events.session import SessionCreated
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
    ToolJudged,
    ToolProposed,
    ToolStarted,
    Verdict,
)
from palyra.core.ids import CallId, EffectId, GrantId, digest_call, digest_calls
from palyra.core.offers import make_options
from palyra.core.projections.project import RowKey, keys_of, project
from palyra.core.projections.rows import Row, RunRow
from palyra.core.run.deadlines import overdue
from palyra.core.run.decide import wanted
from palyra.core.run.due import next_record
from palyra.core.run.effects import (
    ApplyDraft,
    Assemble,
    CallModel,
    CheckObjectives,
    DiscardDraft,
    Effect,
    Execute,
    ForgetDraft,
    Judge,
    JudgeDraft,
    PlanRoute,
    ResolveReferences,
    Stop,
)
from palyra.core.run.fold import fact_of, fold
from palyra.core.run.loop import make_limits
from palyra.core.run.replay import replay
from palyra.core.run.state import calls_handed_out, holding_questions
from palyra.core.run.states import RunState, is_terminal
from palyra.core.trust import Trust
from tests.support.runs import ALICE, RUN, Script, fold_tape
from tests.support.traits import shape_of

STEPS_MAX = 40
CALLERS = "look_up"  # A tool that the caller supplied and executes.
OBJECTIVES = ("file:a exists", "It is short.")
BUSY = (Execute, CallModel, ApplyDraft, DiscardDraft)
TOOLS = ("fs.read", "fs.write", "channel.send", "shell.run")
CLASSES = dict(
    zip(TOOLS, (EffectClass.READ_ONLY, EffectClass.IDEMPOTENT, EffectClass.ONCE, EffectClass.DRAFTED), strict=True)
)


class World:
    """Answers effects with facts, keeps count of what it executed, and now and then does something else."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        limits = make_limits(max_tool_calls=6, wall_clock_ms=60_000)
        must_call = ("fs.read",) if self.random.random() < 0.2 else ()
        callers = (CALLERS,) if self.random.random() < 0.4 else ()
        self.script = Script(
            limits=limits,
            can_ask=self.random.random() < 0.8,
            must_call=must_call,
            caller_tools=callers,
            objectives=OBJECTIVES if self.random.random() < 0.4 else (),
        )
        self.leanings = self.random.choice([[5, 3, 2], [1, 12, 1]])
        self.tools = (*self.random.choice([TOOLS, TOOLS, TOOLS[1:2], TOOLS[2:]]), *callers * 5)
        self.in_flight: list[Effect] = []
        self.executed: list[tuple[EffectId, int]] = []

    def run(self, steps: int) -> "World":
        moves: list[tuple[Callable[[], None], int]] = [
            (self.answer_effect, 14),
            (self.interfere, 1),
            (self.decide_question, 5),
            (self.return_result, 5),
            (self.pass_time, 1),
            (self.restart, 2),
            (self.feed_nonsense, 2),
        ]
        self.feed(RunStarted())
        for _ in range(steps):
            move = self.random.choices([m for m, _ in moves], [weight for _, weight in moves])[0]
            move()
            self.check()
        return self

    def finish(self) -> "World":
        """Cancel, let what is out come home: then the run must be over."""
        if not is_terminal(self.script.state.state):
            self.feed(CancelRequested(reason=EndReason.CANCELLED))
        for _ in range(STEPS_MAX):
            if self.in_flight:
                self.answer_effect()
        return self

    def feed(self, *facts: object) -> bool:
        before = self.script.state
        try:
            self.script.feed(*facts)  # type: ignore[arg-type]
        except Invalid:
            assert self.script.state is before
            return False
        self.perform(self.script.effects)
        return True

    def perform(self, effects: tuple[Effect, ...]) -> None:
        # A plan that a person's new words overtook is made again once their context is assembled.
        now = wanted(self.script.state)
        self.in_flight = [one for one in self.in_flight if not isinstance(one, PlanRoute) or one in now]
        for effect in effects:
            if isinstance(effect, Stop):
                assert effect.effect in self.in_flight
                continue
            assert effect not in self.in_flight, "an effect in flight is never started again"
            if isinstance(effect, Execute):
                self.check_execution(effect)
                self.executed.append((effect.effect_id, effect.attempt))
            if isinstance(effect, ForgetDraft):
                continue
            if isinstance(effect, ApplyDraft):
                self.check_applying(effect)
            self.in_flight.append(effect)

    def check_applying(self, effect: ApplyDraft) -> None:
        """L1 and L7 for drafts: a yes to exactly this digest, and a durable intent with it, come before applying."""
        tape = [draft.data for draft in self.script.tape]
        intents = [d for d in tape if isinstance(d, DraftApplying) and d.effect_id == effect.effect_id]
        assert intents[-1].digest == effect.digest
        judged = [d for d in tape if isinstance(d, DraftJudged) and d.digest == effect.digest]
        answered = [
            d
            for d in tape
            if isinstance(d, ApprovalResolved) and d.digest == effect.digest and d.status is ApprovalStatus.ALLOWED
        ]
        assert judged[-1].verdict is Verdict.ALLOW or (judged[-1].verdict is Verdict.ASK and answered)

    def check_execution(self, effect: Execute) -> None:
        """L1: a verdict and a durable intent come before it. L2: no `once` effect twice but by a person's retry."""
        tape = [draft.data for draft in self.script.tape]
        intents = [d for d in tape if isinstance(d, ToolStarted) and d.effect_id == effect.effect_id]
        assert intents[-1].attempt == effect.attempt
        assert self.is_permitted(effect.call_id)
        judged = next(d for d in tape if isinstance(d, ToolJudged) and d.call_id == effect.call_id)
        if judged.effect_class is EffectClass.ONCE and effect.attempt > 1:
            retries = [d for d in tape if isinstance(d, ApprovalResolved) and d.decision is Decision.RETRY]
            assert len(retries) >= effect.attempt - 1

    def is_permitted(self, call_id: CallId) -> bool:
        """L7: allowed by its verdict, or by a timely answer to a question that names this call with its own digest."""
        digest = ""
        asked: dict[str, ApprovalRequested] = {}
        for draft in self.script.tape:
            match draft.data:
                case ToolProposed(call_id=proposed, tool=tool, arguments=arguments) if proposed == call_id:
                    digest = digest_call(tool, arguments)
                case ToolJudged(call_id=judged, verdict=Verdict.ALLOW) if judged == call_id:
                    return True
                case ApprovalRequested(kind=ApprovalKind.TOOL) as request if digest and digest in bound(
                    request, call_id
                ):
                    asked[request.approval_id] = request
                case ApprovalResolved(approval_id=answered, status=status) as answer if answered in asked:
                    expires_at_ms = asked[answered].expires_at_ms
                    is_timely = expires_at_ms is None or draft.at_ms < expires_at_ms
                    return status is ApprovalStatus.ALLOWED and is_timely and answer.digest == asked[answered].digest
                case _:
                    continue
        return False

    def check(self) -> None:
        state = self.script.state
        assert next_record(state, self.script.now_ms) is None, "every record closes its decisions"
        if is_terminal(state.state):
            self.in_flight = [effect for effect in self.in_flight if isinstance(effect, BUSY)]
            assert wanted(state) == frozenset()
        owed = calls_handed_out(state)
        assert not [e for e in wanted(state) if isinstance(e, Execute) and e.call_id in {c.call_id for c in owed}]
        if state.state is RunState.WAITING:
            assert owed or holding_questions(state)
            assert not [effect for effect in self.in_flight if isinstance(effect, BUSY)]

    def answer_effect(self) -> None:
        if not self.in_flight:
            return
        effect = self.in_flight.pop(self.random.randrange(len(self.in_flight)))
        self.script.now_ms += self.random.randrange(500)
        match effect:
            case Assemble(turn=turn):
                if self.script.state.turn == turn:
                    self.guarded(self.script.assemble)
            case PlanRoute(turn=turn):
                if self.script.state.turn == turn:
                    budget = self.random.choices(list(BudgetState), [20, 1, 0.3])[0]
                    self.guarded(lambda: self.script.route(budget))
            case CallModel():
                self.guarded(self.answer_model)
            case Judge(call_id=call_id):
                self.guarded(lambda: self.judge(call_id))
            case Execute():
                self.guarded(lambda: self.finish_call(effect))
            case JudgeDraft(call_id=call_id):
                self.guarded(lambda: self.judge_draft(call_id))
            case ApplyDraft() | DiscardDraft():
                self.guarded(lambda: self.settle_draft(effect))
            case CheckObjectives(turn=turn):
                self.guarded(lambda: self.check_objectives(turn))
            case Stop() | ForgetDraft() | ResolveReferences():
                raise AssertionError("it is never in flight")

    def guarded(self, act: Callable[[], object]) -> None:
        """An answer may come too late; then it is refused and nothing changed."""
        before = self.script.state
        try:
            act()
        except (Invalid, StopIteration):
            assert self.script.state is before
        else:
            self.perform(self.script.effects)

    def answer_model(self) -> None:
        pick = self.random.random()
        if pick < 0.5:
            count = self.random.randint(1, 4)
            self.script.propose(*[self.some_call() for _ in range(count)])
        elif pick < 0.8:
            self.script.answer(self.random.choice(["", "an answer", "<tool_call>", "fs.write ✅"]))
        elif pick < 0.95:
            self.script.answer("ha", Finish.INTERRUPTED)
        else:
            self.script.fail_model(self.random.choice(list(ModelError)))

    def check_objectives(self, turn: int) -> None:
        """What a check found, perhaps of an answer that was overtaken meanwhile."""
        state = self.random.choices(list(ObjectiveState), [3, 1, 1])[0]
        results = (ObjectiveResult(state=state), ObjectiveResult(state=ObjectiveState.MET))
        self.script.feed(ObjectivesChecked(turn=turn, results=results))

    def some_call(self) -> tuple[str, dict[str, object]]:
        tool = self.random.choice(self.tools)
        path = self.random.choice(["notes/a", "notes/b", "c"])
        return tool, {"path": path} if tool.startswith("fs.") else {"n": self.random.randint(0, 1)}

    def judge(self, call_id: CallId) -> None:
        call = next(c for c in self.script.state.calls if c.call_id == call_id)
        verdict = self.random.choices(list(Verdict), self.leanings)[0]
        if verdict is Verdict.ASK and (not self.script.state.can_ask or call.tool == CALLERS):
            verdict = Verdict.DENY
        assert isinstance(call.arguments, dict)
        judged = ToolJudged(
            call_id=call_id,
            verdict=verdict,
            rule=self.random.choices(["r", "uncertain_repeat"], [9, 1])[0],
            reason="",
            taint=self.random.choices([(), ("web:a",)], [4, 1])[0],
            options=make_options(call.tool, call.arguments, shape_of(call.tool)),
            expires_in_ms=self.random.choices([900_000, 2_000], [4, 1])[0],
            effect_class=CLASSES.get(call.tool, EffectClass.ONCE),
            parallel_class=self.random.choice(list(ParallelClass)),
            is_callers=call.tool == CALLERS,
            paths=(self.random.choice(["a", "a/b", "c"]),),
        )
        self.script.feed(judged)

    def judge_draft(self, call_id: CallId) -> None:
        call = next(c for c in self.script.state.calls if c.call_id == call_id)
        assert call.draft is not None
        verdict = self.random.choices(list(Verdict), self.leanings)[0]
        if verdict is Verdict.ASK and not self.script.state.can_ask:
            verdict = Verdict.DENY
        self.script.feed(
            DraftJudged(call_id=call_id, digest=call.draft.digest, verdict=verdict, rule="r", reason="", asking=("a",))
        )

    def settle_draft(self, effect: ApplyDraft | DiscardDraft) -> None:
        if isinstance(effect, ApplyDraft) and self.random.random() < 0.4:
            conflicted = DraftConflicted(
                call_id=effect.call_id,
                effect_id=effect.effect_id,
                digest=effect.digest,
                cause=ConflictCause.DRAFT,
                path="a",
            )
            return self.settle_conflict(effect, conflicted)
        outcome = Outcome.DENIED if isinstance(effect, DiscardDraft) else Outcome.OK
        self.settle_as(effect, outcome)

    def settle_conflict(self, effect: ApplyDraft, conflicted: DraftConflicted) -> None:
        try:
            self.script.feed(conflicted)
        except Invalid:
            self.settle_as(effect, Outcome.FAILED)  # It ran often enough.

    def settle_as(self, effect: ApplyDraft | DiscardDraft, outcome: Outcome) -> None:
        self.script.feed(
            ToolFinished(
                call_id=effect.call_id, effect_id=effect.effect_id, outcome=outcome, error=None, attestation=None
            )
        )

    def finish_call(self, effect: Execute) -> None:
        is_shell = any(
            c.call_id == effect.call_id and c.tool == "shell.run"
            for c in (*self.script.state.calls, *self.script.state.earlier)
        )
        if is_shell and self.random.random() < 0.7:
            digest = f"{effect.effect_id}/{effect.attempt}"
            drafted = ToolDrafted(
                call_id=effect.call_id,
                effect_id=effect.effect_id,
                exit_status=0,
                digest=digest,
                changes_count=1,
                trust=Trust.LOCAL,
            )
            self.script.feed(drafted)
            return
        outcome = self.random.choice([Outcome.OK, Outcome.OK, Outcome.FAILED, Outcome.TIMEOUT, Outcome.CANCELLED])
        finished = ToolFinished(
            call_id=effect.call_id,
            effect_id=effect.effect_id,
            outcome=outcome,
            error=None,
            attestation=None,
            output=str(self.random.randrange(3)),
        )
        self.script.feed(finished)

    def return_result(self) -> None:
        """The caller sends the result of a call of its own, now and then after its time."""
        owed = calls_handed_out(self.script.state)
        if not owed:
            return
        call = self.random.choice(owed)
        outcome = self.random.choice([Outcome.OK, Outcome.OK, Outcome.FAILED])
        finished = ToolFinished(
            call_id=call.call_id, effect_id=call.effect_id, outcome=outcome, error=None, attestation=None, output="7"
        )
        assert self.feed(finished)
        assert not self.feed(finished), "a result counts once"

    def interfere(self) -> None:
        if self.random.random() < 0.8:
            self.feed(MessageUser(text="wait"))
        else:
            self.feed(CancelRequested(reason=EndReason.CANCELLED))

    def decide_question(self) -> None:
        questions = self.script.state.questions
        if not questions:
            return
        question = self.random.choice(questions)
        fitting = [Decision.RETRY, Decision.DONE, Decision.GIVE_UP]
        if question.kind is not ApprovalKind.UNCERTAIN:
            fitting = [Decision.ALLOW, Decision.ALLOW, Decision.DENY]
        decision = self.random.choice(fitting if self.random.random() < 0.9 else list(Decision))
        is_yes = decision in (Decision.ALLOW, Decision.RETRY, Decision.DONE)
        is_late = question.expires_at_ms is not None and question.expires_at_ms <= self.script.now_ms
        is_heard = self.feed(
            ApprovalResolved(
                approval_id=question.approval_id,
                status=ApprovalStatus.ALLOWED if is_yes else ApprovalStatus.DENIED,
                decision=decision,
                decided_by=ALICE,
                digest=question.digest,
                end_run=self.random.random() < 0.1,
                covered_by=self.random.choice([None, GrantId("g")]),
            )
        )
        assert not (is_heard and is_late and is_yes), "no answer is a yes after its time"

    def pass_time(self) -> None:
        self.script.now_ms += self.random.choice([1_000, 1_000, 1_000, 70_000, 1_000_000])
        facts = overdue(self.script.state, self.script.now_ms)
        if facts and self.random.random() < 0.7:  # Else the clock is looked at later.
            self.guarded(lambda: self.script.feed_drafts(*facts))

    def restart(self) -> None:
        """The process dies: nothing is in flight, the state comes from the tape, a waiting run waits on."""
        if is_terminal(self.script.state.state):
            return
        self.in_flight = []
        folded = fold_tape(self.script.events())
        assert folded == self.script.state
        if folded.state is RunState.IN_PROGRESS:
            self.feed(RunResumed(cause=ResumeCause.RESTART))

    def feed_nonsense(self) -> None:
        """A fact picked from this very tape, out of its time."""
        stray = self.random.choice(self.script.tape)
        if not isinstance(stray.data, MessageUser | CancelRequested | RunResumed):
            self.guarded(lambda: self.script.feed_drafts(stray))
            # A stray fact that happened to be legal answered something: it is no longer out.
            self.in_flight = [
                e for e in self.in_flight if isinstance(e, Execute | CallModel) or e in wanted(self.script.state)
            ]


def bound(request: ApprovalRequested, call_id: CallId) -> list[str]:
    """The digests that a question is bound to for this call."""
    if not request.calls:
        return [request.digest] if request.call_id == call_id else []
    assert request.digest == digest_calls(zip(request.calls, request.digests, strict=True))
    assert request.count == len(request.calls) == len(set(request.calls)) > 1
    return [digest for each, digest in zip(request.calls, request.digests, strict=True) if each == call_id]


def test_the_histories_have_questions_about_several_calls() -> None:
    tapes = [World(seed).run(STEPS_MAX).script.tape for seed in range(200)]
    counts = [draft.data.count for tape in tapes for draft in tape if isinstance(draft.data, ApprovalRequested)]
    assert sum(count > 1 for count in counts) > 2


def test_the_histories_have_calls_that_the_caller_executes() -> None:
    tapes = [World(seed).run(STEPS_MAX).script.tape for seed in range(200)]
    waits = [draft.data for tape in tapes for draft in tape if isinstance(draft.data, RunWaiting)]
    assert sum(wait.kind is WaitKind.CALLER_TOOL for wait in waits) > 5
    assert any(wait.call_ids and wait.approval_ids for wait in waits)


def test_the_histories_have_answers_that_are_checked_overtaken_and_rejected() -> None:
    tapes = [World(seed).run(STEPS_MAX).script.tape for seed in range(600)]
    checks = [(tape, draft.data) for tape in tapes for draft in tape if isinstance(draft.data, ObjectivesChecked)]
    assert len(checks) > 20
    assert any(tape[-1].data.TYPE == "run.done" for tape, _ in checks)
    rejected = [draft for tape, _ in checks for draft in tape if draft.data.TYPE == "answer.rejected"]
    assert rejected


@given(st.integers(0, 2**32))
def test_no_answer_stands_before_its_objectives_are_checked_and_none_is_unmet(seed: int) -> None:
    world = World(seed).run(STEPS_MAX)
    checked: ObjectivesChecked | None = None
    for draft in world.script.tape:
        match draft.data:
            case ObjectivesChecked() as data:
                checked = data
            case MessageAssistant() if world.script.state.objectives:
                assert checked is not None
                assert checked.turn == world.script.state.turn
                assert ObjectiveState.UNMET not in {result.state for result in checked.results}
            case _:
                continue


@given(st.integers(0, 2**32))
def test_no_history_executes_an_unjudged_call_or_a_once_effect_twice(seed: int) -> None:
    World(seed).run(STEPS_MAX)


@given(st.integers(0, 2**32))
def test_every_run_can_be_cancelled_to_its_end(seed: int) -> None:
    assert is_terminal(World(seed).run(STEPS_MAX // 2).finish().script.state.state)


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_folding_in_one_go_equals_folding_on_from_any_prefix(seed: int, cut: int) -> None:
    events = World(seed).run(STEPS_MAX).script.events()
    prefix = fold_tape(events[:cut])
    for event in events[cut:]:
        assert prefix is not None
        prefix = fold(prefix, fact_of(event))
    assert prefix == fold_tape(events)


@given(st.integers(0, 2**32))
def test_replay_of_any_history_comes_to_the_same_decisions(seed: int) -> None:
    script = World(seed).run(STEPS_MAX).script
    replayed = replay(script.events())
    assert replayed.difference is None
    assert replayed.run == script.state


@given(st.integers(0, 2**32), st.data())
def test_replay_finds_a_decision_that_was_left_out(seed: int, data: st.DataObject) -> None:
    script = World(seed).run(STEPS_MAX // 2).script
    events = script.events()
    decided = [index for index, event in enumerate(events) if event.actor == "system:run"]
    if not decided:
        return
    gone = data.draw(st.sampled_from(decided))
    replayed = replay(events[:gone] + events[gone + 1 :])
    assert replayed.difference is not None


@given(st.integers(0, 2**32))
def test_the_projections_accept_whatever_the_rules_record(seed: int) -> None:
    """Core must never decide what the journal would refuse: that run could not go on."""
    rows: dict[RowKey, Row] = {}
    created = SessionCreated(owner=ALICE, agent="main")
    first = Draft(data=created, actor=ALICE, trust=Trust.OPERATOR, at_ms=0)
    script = World(seed).run(STEPS_MAX).script
    script.tape.insert(0, first)
    for event in script.events():
        seen = {key: rows[key] for key in keys_of(event) if key in rows}
        rows |= {RowKey(type(row), row.id): row for row in project(event, seen)}
    run = rows[RowKey(RunRow, RUN)]
    assert isinstance(run, RunRow)
    assert run.state is script.state.state
