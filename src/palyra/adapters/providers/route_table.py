"""Routes over the configured models. Owns: which model takes a turn, in which order others follow, and their health.

Not: prices and budgets. A route is models in order: the first one that is healthy is chosen, the others stand behind it.
Health is this process's own memory: a restart begins with trust.
"""

from collections.abc import Mapping

from palyra.core.breaker import Breaker, Health, abandon, begin, fail, health, succeed
from palyra.core.errors import Invalid
from palyra.core.events.model import BudgetState, ModelError, RouteCandidate, RoutePlanned
from palyra.ports.clock import Clock
from palyra.ports.provider import Provider
from palyra.ports.router import RouteQuestion

DEFAULT_ROUTE = ""


class RouteTable:
    """`routes` maps a route's name to models in order; the empty name is the default."""

    def __init__(self, providers: Mapping[str, Provider], routes: Mapping[str, tuple[str, ...]], clock: Clock) -> None:
        unknown = sorted({name for models in routes.values() for name in models} - set(providers))
        if unknown or not routes.get(DEFAULT_ROUTE):
            raise Invalid("route_invalid", f"there is no default route, or these models have no provider: {unknown}")
        self._providers = dict(providers)
        self._routes = dict(routes)
        self._clock = clock
        self._breakers: dict[str, Breaker] = {}

    def plan(self, question: RouteQuestion) -> RoutePlanned:
        now_ms = self._clock.now_ms()
        candidates = tuple(self._candidate(name, now_ms) for name in self._wanted(question))
        usable = [candidate.model for candidate in candidates if not candidate.reasons]
        return RoutePlanned(
            turn=question.turn,
            mode="enforced",
            chosen=usable[0] if usable else None,
            fallbacks=tuple(usable[1:]),
            budget=BudgetState.OK,
            candidates=candidates,
            message="" if usable else self._nothing_usable(candidates),
        )

    def provider(self, model: str) -> Provider:
        return self._providers[model]

    def begin(self, model: str) -> None:
        self._breakers[model] = begin(self._breaker(model), self._clock.now_ms())

    def succeed(self, model: str) -> None:
        self._breakers[model] = succeed(self._breaker(model))

    def fail(self, model: str, code: ModelError) -> None:
        self._breakers[model] = fail(self._breaker(model), code, self._clock.now_ms())

    def abandon(self, model: str) -> None:
        self._breakers[model] = abandon(self._breaker(model))

    def _wanted(self, question: RouteQuestion) -> tuple[str, ...]:
        if question.model is not None:
            return self._routes.get(question.model, (question.model,))
        return self._routes.get(question.route, self._routes[DEFAULT_ROUTE])

    def _candidate(self, name: str, now_ms: int) -> RouteCandidate:
        if name not in self._providers:
            return RouteCandidate(model=name, reasons=("unknown",))
        state = health(self._breaker(name), now_ms)
        reasons = ("circuit_open",) if state is Health.OPEN else ()
        return RouteCandidate(model=name, reasons=reasons, health=state.value)

    def _nothing_usable(self, candidates: tuple[RouteCandidate, ...]) -> str:
        why = ", ".join(f"{candidate.model} ({', '.join(candidate.reasons)})" for candidate in candidates)
        known = ", ".join(sorted(self._providers))
        return f"No model can take this call: {why}. Configured: {known}. A model whose circuit is open is tried again soon."

    def _breaker(self, model: str) -> Breaker:
        return self._breakers.get(model, Breaker())
