"""The Service port: starts, ends, checks and restarts what runs beside the engine, such as MCP servers and proxies.

Does not own: what the service does, when it is checked or restarted (engine.healing).
"""

from enum import Enum
from typing import Protocol

import msgspec

# Each domain can be healed or only observed by itself (`[healing.domains]`).
DOMAINS = frozenset({"browser", "mcp", "sandbox", "channel", "embedder", "process"})
HEALTH_S_MAX = 1.0  # An answer about health takes no longer, so that one look at all services stays quick.


class ServiceState(Enum):
    OK = "ok"
    IDLE = "idle"  # Nothing of it runs, and nothing is wrong: it starts at its next use.
    FAILED = "failed"


class ServiceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """`reason` is for people: it says what is wrong, or why nothing runs. It never holds a secret.

    With `needs_person` a restart cannot help, and `reason` says what can.
    """

    state: ServiceState
    reason: str = ""
    needs_person: bool = False


class Service(Protocol):
    @property
    def name(self) -> str:
        """Returns the name that people read; no two services of a daemon have the same."""
        ...

    @property
    def domain(self) -> str:
        """Returns one of DOMAINS."""
        ...

    @property
    def restarts_itself(self) -> bool:
        """Tells whether the service mends itself. A failure is then reported, and `restart` is not called."""
        ...

    async def start(self) -> None:
        """Returns soon; work that takes long goes on in the background."""
        ...

    async def close(self) -> None:
        """Ends the service; nothing of it is left running. A second call does nothing."""
        ...

    async def health(self) -> ServiceHealth:
        """Takes less than HEALTH_S_MAX and never raises. A service before its start or after its end is idle."""
        ...

    async def restart(self) -> None:
        """Ends the service and starts it anew, or lets its next use do that.

        Raises Unavailable if it cannot be started. It does nothing if the service restarts itself.
        """
        ...
