"""The circuit breaker of one model: when a failing provider is left alone, and when it is tried again.

Does not own: calling the provider.
The breaker is closed while the provider works. Several failures in a row open it, for a time that doubles with every
failed probe. Then it is half open: one call may try, and its outcome decides.
Only failures that say something about the provider's health count.
"""

from enum import Enum

import msgspec
from msgspec.structs import replace

from palyra.core.events.model import ModelError

FAILURES_MAX = 3
OPEN_MS_FIRST = 10_000
OPEN_MS_MAX = 300_000

# A refused request or a full context says nothing about the provider; the others do.
UNHEALTHY = frozenset(
    {
        ModelError.AUTH,
        ModelError.QUOTA,
        ModelError.RATE,
        ModelError.OVERLOADED,
        ModelError.NETWORK,
        ModelError.TIMEOUT,
        ModelError.PROTOCOL,
    }
)


class ModelHealth(Enum):
    OK = "ok"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    failures_count: int = 0
    open_until_ms: int = 0
    open_ms: int = OPEN_MS_FIRST
    is_probing: bool = False


def health(breaker: Breaker, now_ms: int) -> ModelHealth:
    if breaker.failures_count < FAILURES_MAX:
        return ModelHealth.OK
    if now_ms < breaker.open_until_ms or breaker.is_probing:
        return ModelHealth.OPEN
    return ModelHealth.HALF_OPEN


def begin(breaker: Breaker, now_ms: int) -> Breaker:
    """Notes that a call is about to be made. The first one after the open time is the probe; others wait for it."""
    return replace(breaker, is_probing=True) if health(breaker, now_ms) is ModelHealth.HALF_OPEN else breaker


def succeed(_breaker: Breaker) -> Breaker:
    return Breaker()


def fail(breaker: Breaker, code: ModelError, now_ms: int) -> Breaker:
    if code not in UNHEALTHY:
        return replace(breaker, is_probing=False)
    failures_count = breaker.failures_count + 1
    if failures_count < FAILURES_MAX:
        return replace(breaker, failures_count=failures_count)
    open_ms = min(2 * breaker.open_ms, OPEN_MS_MAX) if breaker.is_probing else breaker.open_ms
    return Breaker(failures_count=failures_count, open_until_ms=now_ms + open_ms, open_ms=open_ms)


def abandon(breaker: Breaker) -> Breaker:
    """Notes that the call was stopped before it could tell anything."""
    return replace(breaker, is_probing=False)


def trip(breaker: Breaker, now_ms: int) -> Breaker:
    """Opens the breaker at once: something else than a failed call showed that the provider does not answer."""
    failures_count = max(FAILURES_MAX, breaker.failures_count)
    return Breaker(failures_count=failures_count, open_until_ms=now_ms + breaker.open_ms, open_ms=breaker.open_ms)
