"""Settles model calls: the usage.recorded of one call, from the provider's count or our estimate, and its price."""

from palyra.core.estimate import estimate_tokens, text_bytes
from palyra.core.events.model import ModelOutput, Reservation, Usage, UsageRecorded
from palyra.ports.prices import Prices

NANO = 1_000_000_000


class Bill:
    """Settles one turn's call. `reserved` is what the plan reserved for it."""

    def __init__(self, prices: Prices, turn: int, reserved: Reservation | None) -> None:
        self._prices = prices
        self._turn = turn
        self._reserved = reserved

    def counted(self, model: str, usage: Usage) -> UsageRecorded:
        return self._recorded(model, usage, is_estimate=False)

    def guessed(self, model: str, output: ModelOutput) -> UsageRecorded:
        """Estimates usage that the provider did not count. What was sent and received must still be paid for."""
        arguments = sum(text_bytes(str(call.arguments)) for call in output.tool_calls)
        received = text_bytes(output.text) + text_bytes(output.reasoning or "") + arguments
        sent_tokens = self._reserved.input_tokens if self._reserved is not None else 0
        usage = Usage(input_tokens=sent_tokens, output_tokens=estimate_tokens(received))
        return self._recorded(model, usage, is_estimate=True)

    def _recorded(self, model: str, usage: Usage, *, is_estimate: bool) -> UsageRecorded:
        cost = self._prices.cost_nano_usd(model, usage)
        return UsageRecorded(
            model=model,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cost_usd=None if cost is None else cost / NANO,
            turn=self._turn,
            is_estimate=is_estimate,
        )
