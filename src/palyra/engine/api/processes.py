"""Background processes, asked for. Owns: showing and stopping those of one principal's run (L11). Not: keeping them (ports)."""

from msgspec.structs import replace

from palyra.core.errors import NotFound
from palyra.core.ids import Principal, RunId
from palyra.engine.context import EngineContext
from palyra.ports.processes import ProcessRecord


class ProcessService:
    def __init__(self, office: EngineContext) -> None:
        self._office = office

    async def list(self, principal: Principal, run_id: RunId) -> tuple[ProcessRecord, ...]:
        await self._require_run(principal, run_id)
        return self._of(run_id)

    async def stop(self, principal: Principal, run_id: RunId, process_id: str) -> ProcessRecord:
        """It and everything it started. Stopping what has ended changes nothing and is no error."""
        await self._require_run(principal, run_id)
        before = self._found(run_id, process_id)
        if before is None:
            raise NotFound("process_unknown", f"run {run_id} has no such process; see those it has")
        if before.exit_code is None:
            await self._office.parts.processes.stop(process_id)
        return self._found(run_id, process_id) or before

    def _found(self, run_id: RunId, process_id: str) -> ProcessRecord | None:
        return next((each for each in self._of(run_id) if each.id == process_id), None)

    def _of(self, run_id: RunId) -> tuple[ProcessRecord, ...]:
        redactor = self._office.redactor
        return tuple(
            replace(record, command=redactor.text(record.command).text)
            for record in self._office.parts.processes.list(run_id)
            if record.run_id == run_id
        )

    async def _require_run(self, principal: Principal, run_id: RunId) -> None:
        if await self._office.views.runs.run(run_id, principal) is None:
            raise NotFound("run_unknown", f"there is no run {run_id}")
