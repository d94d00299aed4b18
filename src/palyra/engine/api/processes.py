"""Background processes of one principal's runs (L11).

Owns: showing and stopping them. Does not own: keeping them (ports).
"""

from dataclasses import dataclass

from msgspec.structs import replace

from palyra.core.errors import NotFound
from palyra.core.ids import Principal, RunId
from palyra.core.redaction import Redactor
from palyra.ports.processes import Processes, ProcessRecord
from palyra.ports.views import RunViews


@dataclass(frozen=True, slots=True)
class ProcessService:
    runs: RunViews
    processes: Processes
    redactor: Redactor

    async def list(self, principal: Principal, run_id: RunId) -> tuple[ProcessRecord, ...]:
        await self._require_run(principal, run_id)
        return self._of(run_id)

    async def stop(self, principal: Principal, run_id: RunId, process_id: str) -> ProcessRecord:
        """Stops a process and everything it started. Stopping one that has ended changes nothing and is no error."""
        await self._require_run(principal, run_id)
        before = self._found(run_id, process_id)
        if before is None:
            raise NotFound(
                "process_unknown", f"run {run_id} has no such process; palyra runs processes shows those it has"
            )
        if before.exit_code is None:
            await self.processes.stop(process_id)
        return self._found(run_id, process_id) or before

    def _found(self, run_id: RunId, process_id: str) -> ProcessRecord | None:
        return next((each for each in self._of(run_id) if each.id == process_id), None)

    def _of(self, run_id: RunId) -> tuple[ProcessRecord, ...]:
        return tuple(
            replace(record, command=self.redactor.text(record.command).text)
            for record in self.processes.list(run_id)
            if record.run_id == run_id
        )

    async def _require_run(self, principal: Principal, run_id: RunId) -> None:
        if await self.runs.run(run_id, principal) is None:
            raise NotFound("run_unknown", f"there is no run {run_id}")
