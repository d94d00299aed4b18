"""decide(run, fact) → (run, effects): turns a fact into records and wanted effects.

Does not own: the rules (due, fold).
The first effect is always Record: the fact and every decision that follows from it, to be committed as one. The state
alone decides what the engine should have in flight (`wanted`). The other effects are the difference that a fact makes.
After a restart nothing is in flight, so everything wanted is started.
Invariant: effects other than inert ones are performed only once the record is durable: intent before effect (L1).
"""

from collections.abc import Sequence

import msgspec

from palyra.core.errors import Corrupt
from palyra.core.events import Draft
from palyra.core.events.run import ResumeCause, RunResumed
from palyra.core.run.call import IN_DRAFT, Call, CallPhase
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
from palyra.core.run.fold import accept, fold
from palyra.core.run.state import Run, TurnPhase
from palyra.core.run.states import RunState

Wanted = (
    Assemble | PlanRoute | ResolveReferences | CallModel | CheckObjectives | Judge | Execute | JudgeDraft | ApplyDraft
    | DiscardDraft
)  # fmt: skip

RECORDS_MAX = 1024  # Far above what CALLS_A_TURN_MAX calls need; reached only if two rules undo each other.


class Record(msgspec.Struct, frozen=True):
    """Commit these as one, in this order."""

    drafts: tuple[Draft, ...]


def decide(run: Run | None, fact: Draft) -> tuple[Run, tuple[Record | Effect, ...]]:
    """Returns the run after a fact, and what to do about it. An illegal fact raises Invalid and changes nothing."""
    return decide_all(run, (fact,))


def decide_all(run: Run | None, facts: Sequence[Draft]) -> tuple[Run, tuple[Record | Effect, ...]]:
    """Decides several facts that belong together, each followed by its decisions, as one record."""
    before = run
    drafts: list[Draft] = []
    for fact in facts:
        run = accept(fact) if run is None else fold(run, fact)
        drafts.append(fact)
        run = _close(run, fact.at_ms, drafts)
    if run is None:
        raise Corrupt("decide_nothing", "no fact was given and there is no run")
    return run, (Record(tuple(drafts)), *_difference(before, run, facts))


def wanted(run: Run) -> frozenset[Wanted]:
    """Returns what should be in flight in this state. An ending run wants nothing new, only what is in flight."""
    if run.state is not RunState.IN_PROGRESS:
        return frozenset()
    effects: set[Wanted] = set()
    if run.phase is TurnPhase.CALLING and run.route is not None and run.route.chosen is not None:
        effects.add(CallModel(run.turn, run.route.chosen))
    if run.referring and run.ending is None:
        first = run.referring[0]
        effects.add(ResolveReferences(first.number, first.text))
    elif run.phase is TurnPhase.PLANNING and run.ending is None:
        is_assembled = run.context is not None
        effects.add(PlanRoute(run.turn, run.is_budget_approved) if is_assembled else Assemble(run.turn))
    if run.is_checking and run.ending is None:
        effects.add(CheckObjectives(run.turn))
    for call in (*run.calls, *run.earlier):
        if call.phase is CallPhase.STARTED:
            effects.add(Execute(call.call_id, call.effect_id, call.attempt))
        if call.phase is CallPhase.PROPOSED and run.ending is None:
            effects.add(Judge(call.call_id))
        draft_effect = _wanted_of_draft(call, is_ending=run.ending is not None)
        if draft_effect is not None:
            effects.add(draft_effect)
    return frozenset(effects)


def _wanted_of_draft(call: Call, *, is_ending: bool) -> JudgeDraft | ApplyDraft | DiscardDraft | None:
    """After a restart an interrupted apply is simply wanted again: it goes on by hashes."""
    draft = call.draft
    if draft is None:
        return None
    if call.phase is CallPhase.DRAFTED and not is_ending:
        return JudgeDraft(call.call_id)
    if call.phase is CallPhase.APPLYING:
        return ApplyDraft(call.call_id, call.effect_id, draft.digest)
    return DiscardDraft(call.call_id, call.effect_id, draft.digest) if call.phase is CallPhase.DISCARDED else None


def _close(run: Run, now_ms: int, drafts: list[Draft]) -> Run:
    """Folds decisions until none is due."""
    for _ in range(RECORDS_MAX):
        record = next_record(run, now_ms)
        if record is None:
            return run
        run = fold(run, record)
        drafts.append(record)
    raise Corrupt("decide_unbounded", f"run {run.run_id} decides without end")


def _difference(before: Run | None, after: Run, facts: Sequence[Draft]) -> tuple[Effect, ...]:
    is_restart = any(isinstance(f.data, RunResumed) and f.data.cause is ResumeCause.RESTART for f in facts)
    in_flight = frozenset() if before is None or is_restart else wanted(before)
    started = wanted(after) - in_flight
    ordered = sorted(started, key=repr) if len(started) > 1 else started
    return (*ordered, *_stops(before, after, in_flight), *_forgets(before, after))


def _forgets(before: Run | None, after: Run) -> list[ForgetDraft]:
    """Returns an effect for each draft whose call is finished. A command that runs again makes its draft anew."""
    drafted = [call for call in (*before.calls, *before.earlier) if call.phase in IN_DRAFT] if before else []
    kept = {call.call_id for call in (*after.calls, *after.earlier) if call.phase is not CallPhase.FINISHED}
    return [ForgetDraft(call.effect_id) for call in drafted if call.call_id not in kept]


def _stops(before: Run | None, after: Run, in_flight: frozenset[Wanted]) -> list[Stop]:
    """Returns Stop effects for what is in flight when a run begins to end."""
    if after.ending is None or (before is not None and before.ending is not None):
        return []
    running = [effect for effect in wanted(after) & in_flight if isinstance(effect, CallModel | Execute)]
    # Nobody waits for what a reference brings or a check finds any more, so neither reports anything.
    reading = [effect for effect in in_flight if isinstance(effect, ResolveReferences | CheckObjectives)]
    return [Stop(effect) for effect in sorted([*running, *reading], key=repr)]
