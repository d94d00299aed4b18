"""The WatchedService port: how a service beside the engine tells whether it works, and is restarted.

Does not own: what is done about a failure (core.healing), nor starting and ending a service (ports.services).
"""

from enum import Enum
from typing import Protocol

FAILED = "failed"  # The one state that is a finding. `ok` and `idle` are none.


class HealthAnswer(Protocol):
    """`reason` is for people. It never holds a secret."""

    @property
    def state(self) -> Enum: ...

    @property
    def reason(self) -> str: ...


class WatchedService(Protocol):
    """`domain` is a HealingDomain's value. A service that `restarts_itself` is reported and never restarted."""

    @property
    def name(self) -> str: ...

    @property
    def domain(self) -> str: ...

    @property
    def restarts_itself(self) -> bool: ...

    async def health(self) -> HealthAnswer: ...

    async def restart(self) -> None: ...


class BlockReport(Protocol):
    """A time in which the event loop stood. `is_from_before` means that it made an earlier process exit."""

    @property
    def at_ms(self) -> int: ...

    @property
    def blocked_s(self) -> float: ...

    @property
    def stack(self) -> str: ...

    @property
    def is_from_before(self) -> bool: ...
