"""The Prices port. Owns: what a call costs. Not: what it used, nor budgets (core)."""

from typing import Protocol

from palyra.core.events.model import Usage


class Prices(Protocol):
    def cost_nano_usd(self, model: str, usage: Usage) -> int | None:
        """In billionths of a dollar; None where the model's price is not known."""
        ...
