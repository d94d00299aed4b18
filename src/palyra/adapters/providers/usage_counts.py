"""Checks the token counts that a provider reported, before anything is paid or learned from them.

Does not own: the largest count a call can have (core.estimate), or what is paid instead (engine.spend.bill).
"""

from palyra.core.estimate import CALL_TOKENS_MAX, is_possible
from palyra.core.events.model import Usage

Count = int | float | str | bool | None  # What a provider may send as a count.


def whole(count: Count) -> int:
    """Returns a count that is a whole number, else 0: an answer is not thrown away for a count that cannot be read."""
    return count if type(count) is int else 0


def believe(counts: Usage) -> Usage | None:
    """Returns the counts, or None where the provider did not count or said what cannot be.

    A call always sends something and answers something, so zero is no count. A part that cannot be is left out: some
    vendors count reasoning apart from the output, so a part may be larger than its whole.
    """
    if counts.input_tokens <= 0 or counts.output_tokens <= 0:
        return None
    bounded = Usage(
        input_tokens=counts.input_tokens,
        output_tokens=counts.output_tokens,
        cached_tokens=_part(counts.cached_tokens),
        reasoning_tokens=_part(counts.reasoning_tokens),
        cache_write_tokens=_part(counts.cache_write_tokens),
    )
    return bounded if is_possible(bounded) else None


def _part(count: int) -> int:
    return count if 0 <= count <= CALL_TOKENS_MAX else 0
