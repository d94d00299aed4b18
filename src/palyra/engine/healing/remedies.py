"""The remedies: what the daemon itself can do about an incident.

Owns: doing one of them. Does not own: when (core.healing.reconcile), recording (watchdog).
Every remedy may be repeated: what is gone or mended already is left as it is.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import assert_never

from palyra.core.errors import NotFound, Unavailable
from palyra.core.healing.model import Remedy
from palyra.core.healing.rules import CALL_SUFFIX
from palyra.core.ids import JobId, Principal, RunId
from palyra.core.jobs.model import JobState
from palyra.core.projections.rows import RunRow
from palyra.core.run.states import is_terminal
from palyra.engine.jobs.worker import JobWorker
from palyra.engine.session.commands import CancelRun
from palyra.engine.session.session_loops import SessionLoops
from palyra.engine.setup import HealingSetup, Views
from palyra.ports.router import Router

HEALER = Principal("system:healing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedies:
    """`sweep` removes artifacts that nothing refers to, and returns their number."""

    views: Views
    loops: SessionLoops
    worker: JobWorker
    router: Router
    sweep: Callable[[], Awaitable[int]]
    healing: HealingSetup

    async def apply(self, remedy: Remedy, subject: str) -> str:
        """Does it and returns what was done. Raises if it could not be done."""
        match remedy:
            case Remedy.REDRIVE_RUN:
                run = await self._unfinished(RunId(subject))
                return await self.loops.redrive(run.session_id)
            case Remedy.CANCEL_RUN:
                run = await self._unfinished(RunId(subject))
                message = "The run gave no sign for too long and was ended by the watchdog."
                cancel = CancelRun(run_id=run.id, principal=HEALER, message=message)
                return await self.loops.end_run(run.session_id, cancel)
            case Remedy.REQUEUE_JOB:
                return await self._requeue(JobId(subject))
            case Remedy.STOP_JOB_ATTEMPT:
                return "stopped" if self.worker.stop_attempt(JobId(subject)) else "the attempt had ended already"
            case Remedy.OPEN_BREAKER:
                self.router.trip(subject.removesuffix(CALL_SUFFIX))
                return "the model is left alone"
            case Remedy.RESTART_SERVICE:
                return await self._restart(subject)
            case Remedy.SWEEP_ARTIFACTS:
                return f"{await self.sweep()} artifacts were removed"
            case Remedy.EMPTY_JOURNAL_LOG:
                return await self._empty_log()
            case _:
                assert_never(remedy)

    async def _unfinished(self, run_id: RunId) -> RunRow:
        run = await self.views.runs.run(run_id, None)
        if run is None or is_terminal(run.state):
            raise NotFound("run_ended", f"run {run_id} is over already")
        return run

    async def _requeue(self, job_id: JobId) -> str:
        job = await self.views.jobs.job(job_id)
        if job is None or job.state is not JobState.RUNNING:
            return "the job does not run any more"
        is_taken = await self.worker.take_from(job)
        return "the job is back in the queue" if is_taken else "the job has changed hands already"

    async def _restart(self, name: str) -> str:
        service = next((one for one in self.healing.services if one.name == name), None)
        if service is None or service.restarts_itself:
            raise NotFound("service_unknown", f"there is no service {name} that can be restarted")
        await service.restart()
        return "restarted"

    async def _empty_log(self) -> str:
        log = self.healing.log
        if log is None or not await log.empty_log():
            raise Unavailable("journal_log_held", "something reads the journal and holds its log; end it first")
        return "the log is empty"
