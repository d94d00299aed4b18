"""Background processes for tests: a list of records without any real process."""

from msgspec.structs import replace

from palyra.core.ids import RunId
from palyra.engine.api.requests import RunRecord
from palyra.ports.processes import ProcessRecord

STOPPED = -15


class FakeProcesses:
    def __init__(self) -> None:
        self.records: dict[str, ProcessRecord] = {}
        self.stopped: list[str] = []

    def begin(self, run: RunRecord, command: str = "sleep 9") -> str:
        process_id = f"p{len(self.records) + 1}"
        self.records[process_id] = ProcessRecord(
            id=process_id, run_id=run.id, session_id=run.session_id, command=command, started_at_ms=1
        )
        return process_id

    def list(self, run_id: RunId | None = None) -> tuple[ProcessRecord, ...]:
        return tuple(record for record in self.records.values() if run_id in (None, record.run_id))

    async def stop(self, process_id: str) -> bool:
        self.stopped.append(process_id)
        if process_id not in self.records:
            return False
        self.records[process_id] = replace(self.records[process_id], exit_code=STOPPED)
        return True

    async def end_run(self, run_id: RunId) -> None:
        return
