"""The HostMachine port: what the watchdog asks of the machine beneath the daemon.

Does not own: what is too little or too much (core.healing.rules).
"""

from typing import Protocol


class HostMachine(Protocol):
    def monotonic_ms(self) -> int:
        """Returns a time that nobody can set. Compared with the wall clock, it shows that the clock jumped."""
        ...

    async def free_bytes(self) -> int:
        """Returns the space that is left on the disk of the home."""
        ...

    async def artifacts_problem(self) -> str:
        """Says why artifacts cannot be read or written; empty if they can."""
        ...
