"""The Prices port: what a call costs. Does not own: what the call used, budgets (core.budget)."""

from typing import Protocol

from palyra.core.events.model import Usage


class Prices(Protocol):
    def cost_nano_usd(self, model: str, usage: Usage) -> int | None:
        """Returns the cost in billionths of a dollar; None if the model's price is not known."""
        ...
