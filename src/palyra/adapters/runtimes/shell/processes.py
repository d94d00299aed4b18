"""Background processes: those that go on after the call that started them, each owned by one run.

Does not own: starting them (run).
Each process ends with its run, with the daemon, and when the daemon is killed. The end of an ended process's output
stays until its run ends.
"""

import asyncio
import secrets
from collections.abc import Callable

from palyra.adapters.runtimes.shell.child import Child
from palyra.adapters.runtimes.shell.output_buffer import WINDOW_LENGTH_MAX, OutputWindow
from palyra.adapters.runtimes.shell.sandbox import Order, Sandbox
from palyra.core.errors import Conflict
from palyra.core.ids import RunId, SessionId
from palyra.ports.processes import ProcessRecord
from palyra.ports.services import ServiceHealth, ServiceState

RUNNING_PER_RUN_MAX = 8
RUNNING_MAX = 32
LISTED_PER_RUN_MAX = 64  # The oldest ended ones are forgotten.
STOP_WAIT_S = 5.0  # Killing takes milliseconds. A disk that hangs may hold a process longer than anyone waits.
SHOWN_COMMAND_LENGTH_MAX = 500


class Background:
    """One background process. `command` is the text that may be shown."""

    def __init__(self, record: ProcessRecord) -> None:
        self._record = record
        self._child: Child | None = None
        self.window = OutputWindow(WINDOW_LENGTH_MAX)
        self.has_network = False

    def start(self, sandbox: Sandbox, order: Order) -> None:
        self.has_network = order.proxy is not None
        self._child = Child(sandbox, order, lambda _stream, text: self.window.add(text))

    @property
    def child(self) -> Child:
        if self._child is None:
            raise RuntimeError("it was never started")
        return self._child

    @property
    def record(self) -> ProcessRecord:
        if not self.child.is_over:
            return self._record
        code = self.child.exit_code
        return ProcessRecord(
            id=self._record.id,
            run_id=self._record.run_id,
            session_id=self._record.session_id,
            command=self._record.command,
            started_at_ms=self._record.started_at_ms,
            exit_code=code if code is not None else 137,
        )


class ShellProcesses:
    """All background processes. `redact` removes secrets from a command's text before it is shown."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._all: dict[str, Background] = {}

    async def begin(self, sandbox: Sandbox, order: Order, owner: tuple[RunId, SessionId], now_ms: int) -> Background:
        run_id, session_id = owner
        # A model chooses how long a command is, and searching it for secrets takes long.
        shown = (await asyncio.to_thread(self._redact, order.command))[:SHOWN_COMMAND_LENGTH_MAX]
        self._make_room(run_id)
        record = ProcessRecord(
            id=f"p{secrets.token_hex(4)}", run_id=run_id, session_id=session_id, command=shown, started_at_ms=now_ms
        )
        process = Background(record)
        process.start(sandbox, order)
        self._all[record.id] = process
        return process

    def list(self, run_id: RunId | None = None) -> tuple[ProcessRecord, ...]:
        records = [process.record for process in self._all.values()]
        return tuple(record for record in records if run_id is None or record.run_id == run_id)

    def find(self, run_id: RunId, process_id: str) -> Background | None:
        """Finds a process of this run. One run never sees another's."""
        process = self._all.get(process_id)
        return process if process is not None and process.record.run_id == run_id else None

    async def stop(self, process_id: str) -> bool:
        process = self._all.get(process_id)
        if process is None:
            return False
        await _stop(process)
        return True

    async def end_run(self, run_id: RunId) -> None:
        ended = [process for process in self._all.values() if process.record.run_id == run_id]
        for process in ended:
            process.child.end()
        for process in ended:
            await _stop(process)
            self._all.pop(process.record.id, None)

    async def close(self) -> None:
        """Ends all processes, because the daemon stops."""
        for run_id in {process.record.run_id for process in self._all.values()}:
            await self.end_run(run_id)

    def health(self) -> ServiceHealth:
        """Never fails: a process that ends is its run's affair, and none of them serves another."""
        is_running = any(not process.child.is_over for process in self._all.values())
        return ServiceHealth(state=ServiceState.OK if is_running else ServiceState.IDLE)

    def _make_room(self, run_id: RunId) -> None:
        running = [process.record for process in self._all.values() if not process.child.is_over]
        of_run = sum(record.run_id == run_id for record in running)
        if of_run >= RUNNING_PER_RUN_MAX or len(running) >= RUNNING_MAX:
            limit = f"{RUNNING_PER_RUN_MAX} of one run, {RUNNING_MAX} in all"
            raise Conflict("too_many_processes", f"too many processes run in the background ({limit}); stop one first")
        ended = [record for record in self.list(run_id) if record.exit_code is not None]
        for record in ended[: max(0, len(ended) - LISTED_PER_RUN_MAX)]:
            del self._all[record.id]


async def _stop(process: Background) -> None:
    process.child.end()
    await process.child.wait_at_most(STOP_WAIT_S)
