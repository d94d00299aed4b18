"""The probes: one look for each domain, as a table.

Owns: collecting observations. Does not own: what is a finding (core.healing.rules), time limits (watchdog).
A probe only reads. One whose port is missing looks at nothing.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from palyra.core.events.tool import ApprovalStatus
from palyra.core.healing.model import Finding, HealingDomain
from palyra.core.healing.rules import (
    MARGIN_MS,
    STUCK_MS,
    ApprovalObservation,
    JobObservation,
    ModelObservation,
    Moment,
    RunObservation,
    approval_findings,
    artifact_findings,
    blocked_service_finding,
    clock_findings,
    disk_findings,
    job_findings,
    log_findings,
    loop_findings,
    model_findings,
    policy_findings,
    run_findings,
    service_finding,
)
from palyra.core.ids import RunId, SessionId
from palyra.core.jobs.model import Job, JobKind, JobState
from palyra.core.run.state import Run, TurnPhase, calls_in_flight
from palyra.core.writes import Heartbeat
from palyra.engine.jobs.worker import JobWorker
from palyra.engine.session.pending_commit import SessionState
from palyra.engine.setup import HealingSetup, Views
from palyra.ports.jobs import JobFilter
from palyra.ports.router import Router
from palyra.ports.services import ServiceState
from palyra.ports.tools import Catalog

FOUND_MAX = 100  # The oldest so many of a domain; more incidents at once help nobody.

Probe = Callable[[Moment], Awaitable[tuple[Finding, ...]]]
SERVICE_DOMAINS = (
    HealingDomain.MCP,
    HealingDomain.BROWSER,
    HealingDomain.SANDBOX,
    HealingDomain.PROCESS,
    HealingDomain.CHANNEL,
    HealingDomain.EMBEDDER,
)
# These compare times of the wall clock, so they say nothing in the cycle in which it jumped.
TIMED_DOMAINS = frozenset({HealingDomain.RUN, HealingDomain.PROVIDER, HealingDomain.JOB, HealingDomain.APPROVAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """What the probes look at. `running_states` are the sessions with a run in progress in this process."""

    views: Views
    router: Router
    catalog: Catalog
    worker: JobWorker
    running_states: Callable[[], list[SessionState]]
    policy_state: Callable[[], str]
    healing: HealingSetup

    def table(self) -> Mapping[HealingDomain, Probe]:
        return {
            HealingDomain.JOURNAL: self._look_at_log,
            HealingDomain.DISK: self._look_at_disk,
            HealingDomain.ARTIFACT: self._look_at_artifacts,
            HealingDomain.CLOCK: self._look_at_clock,
            HealingDomain.LOOP: self._look_at_loop,
            HealingDomain.POLICY: self._look_at_policy,
            HealingDomain.PROVIDER: self._look_at_models,
            **{domain: partial(self._look_at_services, domain) for domain in SERVICE_DOMAINS},
            HealingDomain.JOB: self._look_at_jobs,
            HealingDomain.RUN: self._look_at_runs,
            HealingDomain.APPROVAL: self._look_at_approvals,
        }

    async def _look_at_log(self, _moment: Moment) -> tuple[Finding, ...]:
        log = self.healing.log
        return log_findings((await log.size()).log_bytes) if log is not None else ()

    async def _look_at_disk(self, _moment: Moment) -> tuple[Finding, ...]:
        machine = self.healing.machine
        return disk_findings(await machine.free_bytes()) if machine is not None else ()

    async def _look_at_artifacts(self, _moment: Moment) -> tuple[Finding, ...]:
        machine = self.healing.machine
        return artifact_findings(await machine.artifacts_problem()) if machine is not None else ()

    async def _look_at_clock(self, moment: Moment) -> tuple[Finding, ...]:
        return clock_findings(moment.jump_ms)

    async def _look_at_loop(self, _moment: Moment) -> tuple[Finding, ...]:
        blocks = self.healing.loop_blocks()
        if not blocks:
            return ()
        longest = max(blocks, key=lambda block: (block.is_from_before, block.blocked_s))
        return loop_findings(longest.blocked_s, longest.stack, longest.is_from_before)

    async def _look_at_policy(self, _moment: Moment) -> tuple[Finding, ...]:
        return policy_findings(self.policy_state())

    async def _look_at_services(self, domain: HealingDomain, _moment: Moment) -> tuple[Finding, ...]:
        found: list[Finding] = []
        for service in self.healing.services:
            if service.domain != domain.value:
                continue
            answer = await service.health()
            if answer.state is not ServiceState.FAILED:
                continue
            if answer.needs_person:
                found.append(blocked_service_finding(domain, service.name, answer.reason))
            else:
                itself = service.restarts_itself
                found.append(service_finding(domain, service.name, answer.reason, restarts_itself=itself))
        return tuple(found)

    async def _look_at_models(self, moment: Moment) -> tuple[Finding, ...]:
        stalled = await self._stalled_runs(moment)
        waits: dict[str, int] = {}
        for run in stalled:
            if run.model is not None and run.is_here:
                waits[run.model] = max(waits.get(run.model, 0), moment.age_ms(run.progress_at_ms))
        return model_findings(
            ModelObservation(
                model=card.name,
                provider=card.provider,
                is_open=card.health == "open",
                waiting_ms=waits.get(card.name, 0),
                patience_ms=self.healing.model_patience_ms,
            )
            for card in self.router.models()
        )

    async def _look_at_runs(self, moment: Moment) -> tuple[Finding, ...]:
        return run_findings(await self._stalled_runs(moment), moment)

    async def _stalled_runs(self, moment: Moment) -> list[RunObservation]:
        """Observes only runs that gave no sign for a while, so a busy daemon pays for none of the others."""
        beats = await self.views.state.stalled_heartbeats(moment.now_ms - STUCK_MS, FOUND_MAX)
        here = {state.active.run_id: state for state in self.running_states() if state.active is not None}
        return [await self._observe_run(beat, here.get(beat.run_id)) for beat in beats]

    async def _observe_run(self, beat: Heartbeat, state: SessionState | None) -> RunObservation:
        run = state.active if state is not None else None
        if state is None or run is None:
            return RunObservation(
                run_id=beat.run_id,
                session_id=await self._session_of(beat.run_id),
                at_ms=beat.at_ms,
                progress_at_ms=beat.progress_at_ms,
                is_here=False,
            )
        is_calling = run.phase is TurnPhase.CALLING and run.route is not None
        return RunObservation(
            run_id=beat.run_id,
            session_id=state.session_id,
            at_ms=beat.at_ms,
            progress_at_ms=beat.progress_at_ms,
            patience_ms=self._patience_ms(run),
            model=run.route.chosen if is_calling and run.route is not None else None,
            tool=next((call.tool for call in calls_in_flight(run)), None),
        )

    def _patience_ms(self, run: Run) -> int:
        """Returns how long the run may be silent: a quiet tool has its own time, and a budget may have to free up.

        The review of an answer is a run of its own, which is looked at by itself.
        """
        tools = [self.catalog.find(call.tool) for call in calls_in_flight(run)]
        if tools:
            longest_s = max(tool.spec.timeout_s if tool is not None else 0.0 for tool in tools)
            return max(STUCK_MS, int(longest_s * 1000) + MARGIN_MS)
        if run.phase is TurnPhase.PLANNING or run.is_checking:
            return run.limits.wall_clock_ms + MARGIN_MS
        return self.healing.model_patience_ms if run.phase is TurnPhase.CALLING else STUCK_MS

    async def _session_of(self, run_id: RunId) -> SessionId | None:
        row = await self.views.runs.run(run_id, None)
        return row.session_id if row is not None else None

    async def _look_at_jobs(self, moment: Moment) -> tuple[Finding, ...]:
        running = await self.views.jobs.running_jobs(FOUND_MAX)
        dead = await self.views.jobs.list_jobs(None, JobFilter(state=JobState.DEAD, limit=FOUND_MAX))
        here = {one.job.id: one for one in self.worker.running}
        return job_findings(
            [
                JobObservation(job=job, timeout_ms=self._timeout_ms(job), is_here=job.id in here)
                for job in (*running, *dead)
            ],
            moment,
        )

    def _timeout_ms(self, job: Job) -> int:
        found = self.worker.types.get(job.kind)
        kind = found.kind if found is not None else JobKind(name=job.kind, summary="")
        return int(kind.timeout_s * 1000)

    async def _look_at_approvals(self, moment: Moment) -> tuple[Finding, ...]:
        pending = await self.views.approvals.list_approvals(None, ApprovalStatus.PENDING, "", FOUND_MAX)
        return approval_findings(
            [
                ApprovalObservation(
                    approval_id=row.id, created_at_ms=row.created_at_ms, expires_at_ms=row.expires_at_ms, tool=row.tool
                )
                for row in pending
            ],
            moment.now_ms,
        )
