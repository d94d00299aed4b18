"""Effects: the closed union of what the engine is asked to do.

Does not own: performing them (engine.session.effect_runner).
Every effect is keyed by its purpose, so that effects in flight can be compared with the wanted ones. An `is_inert`
effect touches nothing outside the daemon and may be performed before its cause is durable. The others may not (L1).
"""

import msgspec

from palyra.core.ids import CallId, EffectId


class Assemble(msgspec.Struct, frozen=True):
    """Choose what this turn's model call is sent; answered by context.assembled."""

    turn: int


class ResolveReferences(msgspec.Struct, frozen=True):
    """Reads what a message refers to; answered by one reference.resolved for each reference, in order.

    The message itself is the intent: it is on the tape before anything is read (L1).
    """

    number: int
    text: str


class PlanRoute(msgspec.Struct, frozen=True):
    """Choose a model for this turn and reserve its budget; answered by route.planned."""

    turn: int
    is_budget_approved: bool


class CallModel(msgspec.Struct, frozen=True):
    """Answered by model.output or model.failed."""

    turn: int
    model: str


class CheckObjectives(msgspec.Struct, frozen=True):
    """Checks the run's objectives against the answer of this turn; answered by objectives.checked."""

    turn: int


class Judge(msgspec.Struct, frozen=True):
    """Answered by tool.judged."""

    call_id: CallId


class Execute(msgspec.Struct, frozen=True):
    """Executes a call whose intent is on the tape. Answered by tool.finished."""

    call_id: CallId
    effect_id: EffectId
    attempt: int


class JudgeDraft(msgspec.Struct, frozen=True):
    call_id: CallId


class ApplyDraft(msgspec.Struct, frozen=True):
    """Applies a sealed draft whose intent is on the tape. Answered by tool.finished or draft.conflicted."""

    call_id: CallId
    effect_id: EffectId
    digest: str


class DiscardDraft(msgspec.Struct, frozen=True):
    """Reports a command whose changes may not be applied. Answered by tool.finished."""

    call_id: CallId
    effect_id: EffectId
    digest: str


class ForgetDraft(msgspec.Struct, frozen=True):
    """Removes the files of a draft whose call is finished. Nothing answers it; a leftover is removed later."""

    effect_id: EffectId


class Stop(msgspec.Struct, frozen=True):
    """Ends a model call or a tool that is no longer wanted. The stopped effect still reports its outcome."""

    effect: CallModel | Execute | ResolveReferences | CheckObjectives


DraftEffect = JudgeDraft | ApplyDraft | DiscardDraft | ForgetDraft
Effect = Assemble | PlanRoute | ResolveReferences | CallModel | CheckObjectives | Judge | Execute | Stop | DraftEffect


def is_inert(effect: Effect) -> bool:
    return isinstance(effect, Assemble | PlanRoute | Judge | JudgeDraft)
