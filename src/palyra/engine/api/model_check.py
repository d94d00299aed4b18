"""Checks of models: one small real call, and its outcome.

Owns: the question, the times, and one check of a model at a time.
Does not own: the call, which is a service run (service_runs).
"""

import asyncio

import msgspec

from palyra.core.errors import Conflict, NotFound
from palyra.core.events.model import Usage
from palyra.core.events.run import EndReason
from palyra.core.ids import Principal, RunId, SessionId
from palyra.core.service_runs import MODEL_CHECK, ServiceOutcome, ServiceRequest
from palyra.engine.api.service_runs import ServiceRuns
from palyra.engine.hub import Frame
from palyra.ports.router import Router

CHECK_TIMEOUT_S = MODEL_CHECK.wall_clock_ms / 1000
PROMPT = "Reply with the word ok."
SHOWN_LENGTH_MAX = 200
_WORDS = frozenset({"model.delta", "reasoning.delta"})


class ModelCheck(msgspec.Struct, frozen=True, kw_only=True):
    """`code` and `message` say what failed and what to do. `run_id` is the service run that made the call."""

    model: str
    ok: bool
    code: str | None
    message: str
    first_token_ms: int | None
    total_ms: int
    text: str
    usage: Usage | None
    cost_usd: float | None
    run_id: RunId
    session_id: SessionId


class ModelCheckService:
    """Runs one check of a model at a time: a second one would say nothing more and cost twice."""

    def __init__(self, router: Router, services: ServiceRuns) -> None:
        self._router = router
        self._services = services
        self._under_way: set[str] = set()

    async def check(self, principal: Principal, name: str) -> ModelCheck:
        if name not in {model.name for model in self._router.models()}:
            raise NotFound("model_unknown", "there is no model of this name; GET /api/v1/models lists those there are")
        if name in self._under_way:
            raise Conflict("check_under_way", f"model {name} is being checked already; wait for that check to end")
        self._under_way.add(name)
        try:
            return await self._check(principal, name)
        finally:
            self._under_way.discard(name)

    async def _check(self, principal: Principal, name: str) -> ModelCheck:
        now_s = asyncio.get_running_loop().time
        began_s, first_s = now_s(), None

        def watch(frame: Frame) -> None:
            nonlocal first_s
            if first_s is None and frame.type in _WORDS:
                first_s = now_s()

        request = ServiceRequest(spec=MODEL_CHECK, principal=principal, text=PROMPT, model=name)
        outcome = await self._services.perform(request, watch)
        code, message = _failure(outcome)
        return ModelCheck(
            model=name,
            ok=code is None,
            code=code,
            message=message,
            first_token_ms=None if first_s is None else round((first_s - began_s) * 1000),
            total_ms=round((now_s() - began_s) * 1000),
            text=outcome.text[:SHOWN_LENGTH_MAX],
            usage=outcome.usage,
            cost_usd=outcome.cost_usd,
            run_id=outcome.run_id,
            session_id=outcome.session_id,
        )


def _failure(outcome: ServiceOutcome) -> tuple[str | None, str]:
    """Returns the failure, if any. A model that answers anything passes, whatever it says."""
    if outcome.code == EndReason.WALL_CLOCK.value:
        advice = "Look at the provider, or at base_url and the network."
        return "timeout", f"No answer within {CHECK_TIMEOUT_S:g} s. {advice}"
    is_answered = bool(outcome.text) and outcome.code in (None, *_POOR_ANSWERS)
    return (None, "It answers.") if is_answered else (outcome.code or "empty", outcome.message or "It said nothing.")


_POOR_ANSWERS = (EndReason.INCOMPLETE_ANSWER.value, EndReason.MAX_TURNS.value)
