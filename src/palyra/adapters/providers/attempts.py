"""Decides whether a call that failed before its first token is made again, and after what wait.

Does not own: making the call (exchange).
After the first token a call is never repeated, because a person has read it. A wait that the provider asks for is kept,
unless it is longer than anybody should sit through. Then the failure says so, and the next route is better.
"""

import msgspec

from palyra.core.events.model import ModelError
from palyra.ports.provider import Failed

BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 8.0
RETRY_AFTER_MAX_S = 30.0
JITTER = 0.5  # A wait is shortened by up to this share, so that many callers do not return at once.
# A timeout is not retried: the tokens may be paid for already, and a route has a next model.
RETRIED = frozenset({ModelError.RATE, ModelError.OVERLOADED, ModelError.NETWORK})


class RetryPace(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how fast calls are retried. The wait doubles from `first_s` up to `most_s`."""

    retries: int = 2
    first_s: float = BACKOFF_FIRST_S
    most_s: float = BACKOFF_MAX_S
    retry_after_max_s: float = RETRY_AFTER_MAX_S


def next_wait_s(pace: RetryPace, failure: Failed, made_count: int, draw: float) -> float | None:
    """Returns seconds until the next attempt, or None if there is none. `draw` is a random number from 0 to 1."""
    if failure.code not in RETRIED or made_count > pace.retries:
        return None
    if failure.retry_after_s is not None:
        wait_s = failure.retry_after_s
        # Never earlier than asked; each caller a little later, by its own draw.
        return wait_s * (1 + 0.1 * draw) if wait_s <= pace.retry_after_max_s else None
    wait_s = min(pace.most_s, pace.first_s * 2.0 ** (made_count - 1))
    return wait_s * (1 - JITTER * draw)
