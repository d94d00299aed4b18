"""Estimates how many tokens a turn is likely to send, before a provider has counted them.

The estimate errs upwards: three bytes a token, where English has four and most other scripts about three. The error is
learned from settled calls (engine.spend.ledger). A wrong estimate never changes what is sent.
"""

BYTES_A_TOKEN = 3
MESSAGE_BYTES = 24  # Counts the roles and separators around every message.


def estimate_tokens(bytes_count: int) -> int:
    return -(-bytes_count // BYTES_A_TOKEN)


def text_bytes(text: str) -> int:
    """Returns the size in UTF-8. Python knows whether a string is ASCII without reading it."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
