"""Estimates how many tokens a turn is likely to send, before a provider has counted them.

The estimate errs upwards: three bytes a token, where English has four and most other scripts about three. The error is
learned from settled calls (engine.spend.ledger). A wrong estimate never changes what is sent.
"""

from palyra.core.events.model import Usage

BYTES_A_TOKEN = 3
# More than any model can take or write in one call. A larger count is a provider's mistake, and is not paid.
CALL_TOKENS_MAX = 20_000_000


def estimate_tokens(bytes_count: int) -> int:
    return -(-bytes_count // BYTES_A_TOKEN)


def text_bytes(text: str) -> int:
    """Returns the size in UTF-8. Python knows whether a string is ASCII without reading it."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def is_possible(usage: Usage) -> bool:
    """Tells whether one call can have used that much."""
    counts = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    parts = (usage.reasoning_tokens, usage.cache_write_tokens)
    return all(0 <= count <= CALL_TOKENS_MAX for count in (*counts, *parts))
