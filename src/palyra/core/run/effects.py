"""Effects: what the engine is asked to do. Owns: the closed union. Not: doing it.

Every effect is keyed by what it is for, so the ones in flight can be told from the wanted ones. `is_inert` effects
touch nothing outside the daemon and may be performed before their cause is durable; the others may not (L1).
"""

import msgspec

from palyra.core.ids import CallId, EffectId


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
    """Its intent is on the tape. Answered by tool.finished."""

    call_id: CallId
    effect_id: EffectId
    attempt: int


class Stop(msgspec.Struct, frozen=True):
    """End a model call or a tool that is no longer wanted. The stopped one still reports what it came to."""

    effect: CallModel | Execute


Effect = PlanRoute | CallModel | Judge | Execute | Stop


def is_inert(effect: Effect) -> bool:
    return isinstance(effect, PlanRoute | Judge)
