"""The Processes port: programs that go on after the call that started them.

Does not own: starting them (the shell tool).
Invariant: each process is owned by a run and ends with it; none outlives the daemon.
"""

from typing import Protocol

import msgspec

from palyra.core.ids import RunId, SessionId


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`exit_code` is None while the process runs. `command` is redacted, as everything shown is."""

    id: str
    run_id: RunId
    session_id: SessionId
    command: str
    started_at_ms: int
    exit_code: int | None = None


class Processes(Protocol):
    def list(self, run_id: RunId | None = None) -> tuple[ProcessRecord, ...]:
        """Returns the processes of one run, or all. Ended processes stay listed until their run ends."""
        ...

    async def stop(self, process_id: str) -> bool:
        """Ends the process and everything it started; returns False if there is no such process."""
        ...

    async def end_run(self, run_id: RunId) -> None:
        """Ends every process of a run that is over."""
        ...


class NoProcesses:
    """Used where nothing can be started in the background."""

    def list(self, run_id: RunId | None = None) -> tuple[ProcessRecord, ...]:
        return ()

    async def stop(self, process_id: str) -> bool:
        return False

    async def end_run(self, run_id: RunId) -> None:
        return
