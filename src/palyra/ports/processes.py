"""The Processes port. Owns: programs that go on after the call that started them. Not: starting them (the shell tool).

Each is owned by a run and ends with it; none outlives the daemon.
"""

from typing import Protocol

import msgspec

from palyra.core.ids import RunId, SessionId


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`exit_code` is None while it runs. `command` is redacted as everything shown is."""

    id: str
    run_id: RunId
    session_id: SessionId
    command: str
    started_at_ms: int
    exit_code: int | None = None


class Processes(Protocol):
    def list(self, run_id: RunId | None = None) -> tuple[ProcessRecord, ...]:
        """Those of one run, or all; the ones that have ended stay listed until their run does."""
        ...

    async def stop(self, process_id: str) -> bool:
        """Ends it and everything it started; False when there is no such process."""
        ...

    async def end_run(self, run_id: RunId) -> None:
        """The run is over: nothing of it goes on."""
        ...


class NoProcesses:
    """Where nothing can be started in the background."""

    def list(self, run_id: RunId | None = None) -> tuple[ProcessRecord, ...]:
        return ()

    async def stop(self, process_id: str) -> bool:
        return False

    async def end_run(self, run_id: RunId) -> None:
        return
