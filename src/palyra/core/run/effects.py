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


class Judge(msgspec.Struct, frozen=True):
    """Answered by tool.judged."""

    call_id: CallId


class Execute(msgspec.Struct, frozen=True):
    """Executes a call whose intent is on the tape. Answered by tool.finished."""

    call_id: CallId
    effect_id: EffectId
    attempt: int


class Stop(msgspec.Struct, frozen=True):
    """Ends a model call or a tool that is no longer wanted. The stopped effect still reports its outcome."""

    effect: CallModel | Execute | ResolveReferences


Effect = Assemble | PlanRoute | ResolveReferences | CallModel | Judge | Execute | Stop


def is_inert(effect: Effect) -> bool:
    return isinstance(effect, Assemble | PlanRoute | Judge)
