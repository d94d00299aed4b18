"""The Router port. Owns: which model takes a turn, and the provider behind it. Not: budgets' rules (later, core)."""

from typing import Protocol

import msgspec

from palyra.core.events.model import ModelError, RoutePlanned
from palyra.ports.provider import Provider


class RouteQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan depends on. `model` is the run's own wish (a model or a route), else the agent's route counts."""

    turn: int
    route: str
    model: str | None
    is_budget_approved: bool


class Router(Protocol):
    def plan(self, question: RouteQuestion) -> RoutePlanned:
        """The UsageRoutingPlan of one turn; `chosen` is null when no model can take it."""
        ...

    def provider(self, model: str) -> Provider: ...

    def begin(self, model: str) -> None:
        """A call is about to be made; what came of it is told with one of the next three."""
        ...

    def succeed(self, model: str) -> None: ...

    def fail(self, model: str, code: ModelError) -> None: ...

    def abandon(self, model: str) -> None: ...
