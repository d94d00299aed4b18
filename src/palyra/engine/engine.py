"""The engine: its services, its start and its end.

Owns: assembling its services, resuming at the start, draining, signing checkpoints.
Does not own: adapters (app), how its parts are built (composition), rules (core).
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from palyra.core.errors import PalyraError, Unavailable
from palyra.core.events.system import AdminActed
from palyra.core.ids import Principal
from palyra.engine.api.admin_log import AdminLog
from palyra.engine.api.approvals import ApprovalService
from palyra.engine.api.artifacts import ArtifactService
from palyra.engine.api.compaction import CompactionService
from palyra.engine.api.context_preview import ContextPreviewer
from palyra.engine.api.feed import EventFeed
from palyra.engine.api.incidents import IncidentService
from palyra.engine.api.jobs import JobService
from palyra.engine.api.marks import MarkService
from palyra.engine.api.model_check import ModelCheckService
from palyra.engine.api.owners import OwnerLookup
from palyra.engine.api.policy_explainer import PolicyExplainer
from palyra.engine.api.processes import ProcessService
from palyra.engine.api.routines import RoutineService
from palyra.engine.api.run_tree import RunTreeService
from palyra.engine.api.runs import RunService
from palyra.engine.api.service_runs import ServiceRuns
from palyra.engine.api.sessions import SessionService
from palyra.engine.api.skills import SkillService
from palyra.engine.api.status import StatusService
from palyra.engine.api.taint import TaintService
from palyra.engine.api.usage import UsageService
from palyra.engine.api.workspace_documents import WorkspaceDocuments
from palyra.engine.compaction.compactor import Compactor
from palyra.engine.composition import EngineParts, build_parts
from palyra.engine.delegation import Delegations
from palyra.engine.healing.assembly import build_watchdog
from palyra.engine.jobs.compaction import CompactionJob
from palyra.engine.jobs.kinds import JobHandlers, job_types
from palyra.engine.jobs.maintenance import BackgroundVerify, StoreUpkeep
from palyra.engine.jobs.session_cleanup import SessionCleanup
from palyra.engine.jobs.upkeep import Upkeep
from palyra.engine.jobs.worker import JobWorker
from palyra.engine.routines.fire_handler import ROUTINE_KIND, RoutineFireHandler
from palyra.engine.routines.routine_tape import RoutineTape
from palyra.engine.routines.scheduler import RoutineScheduler
from palyra.engine.session.attached_texts import TextIntake
from palyra.engine.session.attachments import AttachmentIntake
from palyra.engine.session.session_loop import JOURNAL_CLOSED
from palyra.engine.setup import EngineSetup

CHECKPOINT_EVERY_S = 5.0

log = structlog.get_logger()

Verify = Callable[[], Awaitable[dict[str, object]]]


class Services:
    """What a gateway may ask the engine for: one service for each noun."""

    def __init__(self, setup: EngineSetup, parts: EngineParts, verify: Verify) -> None:
        views, ports, journal, clock = setup.views, setup.ports, setup.journal, setup.clock
        self.acts = AdminLog(system=parts.system_tape, clock=clock)
        self.sessions = SessionService(
            views=views.sessions,
            state=views.state,
            journal=journal,
            loader=parts.loader,
            loops=parts.loops,
            hub=parts.hub,
            agents=parts.agents,
            ids=parts.ids,
            artifacts=ports.artifacts,
            clock=clock,
            forget=ports.forget,
        )
        self.runs = RunService(
            sessions=self.sessions,
            views=views.runs,
            journal=journal,
            hub=parts.hub,
            loops=parts.loops,
            agents=parts.agents,
            ids=parts.ids,
            attachments=AttachmentIntake(
                artifacts=ports.artifacts,
                state=views.state,
                texts=TextIntake(ports.documents, ports.artifacts, lambda text: parts.redactor.text(text).text),
            ),
            schemas=ports.schemas,
            catalog=ports.catalog,
            processes=ProcessService(views.runs, ports.processes, parts.redactor),
            settings=setup.settings,
        )
        self.approvals = ApprovalService(
            views=views.approvals, runs=views.runs, provenance=views.provenance, journal=journal, loops=parts.loops
        )
        self.taint = TaintService(self.sessions, views.provenance, parts.loops)
        self.feed = EventFeed(sessions=self.sessions, journal=journal, state=views.state, hub=parts.hub)
        self.artifacts = ArtifactService(artifacts=ports.artifacts, journal=journal, state=views.state, clock=clock)
        self.usage, self.owners = UsageService(views.usage, clock), OwnerLookup(views)
        self.skills = SkillService(skills=ports.skills, catalog=ports.catalog, agents=parts.agents, acts=self.acts)
        self._add_questions(setup, parts)
        self._add_context(setup, parts)
        self.services = ServiceRuns(parts.ids, parts.loops, parts.hub)
        self._add_status(setup, parts, verify)
        self._add_background(setup, parts)

    def _add_questions(self, setup: EngineSetup, parts: EngineParts) -> None:
        """Adds services that tell what would happen, and change nothing."""
        self.explaining = PolicyExplainer(
            sessions=self.sessions,
            agents=parts.agents,
            catalog=setup.ports.catalog,
            schemas=setup.ports.schemas,
            policy=setup.ports.policy,
            skills=setup.ports.skills,
            provenance=setup.views.provenance,
            ids=parts.ids,
        )

    def _add_context(self, setup: EngineSetup, parts: EngineParts) -> None:
        """Adds what shows and names places of a session's context."""
        self.previews = ContextPreviewer(
            sessions=self.sessions,
            agents=parts.agents,
            provenance=setup.views.provenance,
            resolver=parts.references,
            redactor=parts.redactor,
            ids=parts.ids,
        )
        self.marks = MarkService(
            sessions=self.sessions,
            views=setup.views.marks,
            journal=setup.journal,
            loader=parts.loader,
            loops=parts.loops,
            ids=parts.ids,
        )

    def _add_status(self, setup: EngineSetup, parts: EngineParts, verify: Verify) -> None:
        self.status = StatusService(
            state=setup.views.state,
            slots=parts.slots,
            catalog=setup.ports.catalog,
            directory=parts.agents,
            router=setup.ports.router,
            checks=ModelCheckService(setup.ports.router, self.services),
            policy_state=setup.policy_state,
            verifier=verify,
            open_incidents=lambda: self.incidents.count_open(),
            incidents_seen=lambda: self.watchdog.open_count,
        )

    def _add_delegation(self, setup: EngineSetup, parts: EngineParts) -> None:
        self.documents = _wire_documents(setup, parts, self.sessions)
        self.delegations = _wire_delegations(setup, parts)
        self.trees = RunTreeService(setup.views.runs, setup.journal)

    def _job_handlers(self, setup: EngineSetup, fires: RoutineFireHandler) -> JobHandlers:
        cleanup = SessionCleanup(
            sessions=self.sessions,
            artifacts=self.artifacts,
            views=setup.views.sessions,
            clock=setup.clock,
            retention_ms=setup.settings.retention_ms,
            kept=setup.ports.kept,
            forget=setup.ports.forget,
        )
        upkeep = StoreUpkeep(
            upkeep=setup.ports.upkeep,
            clock=setup.clock,
            journal=setup.journal,
            jobs=setup.views.jobs,
            kept_ms={ROUTINE_KIND.name: ROUTINE_KIND.kept_days * 86_400_000},
        )
        return JobHandlers(
            compaction=CompactionJob(self.compactor).perform,
            delegation=self.delegations.end_children,
            session_cleanup=cleanup.perform,
            maintenance=upkeep.perform,
            verify=BackgroundVerify(self.status.verify).perform,
            routine=fires.perform,
        )

    def _add_background(self, setup: EngineSetup, parts: EngineParts) -> None:
        """Adds what runs unattended, and the services that show it."""
        self._add_delegation(setup, parts)
        self.compactor = Compactor(
            loader=parts.loader, loops=parts.loops, services=self.services, assembler=parts.assembler
        )
        self.compaction = CompactionService(self.sessions, self.compactor)
        tape = RoutineTape(system=parts.system_tape, clock=setup.clock)
        fires = RoutineFireHandler(views=setup.views.routines, runs=self.runs, tape=tape)
        types = job_types(self._job_handlers(setup, fires))
        self.worker = JobWorker(
            node=parts.node,
            journal=setup.journal,
            views=setup.views.jobs,
            hub=parts.hub,
            clock=setup.clock,
            tasks=parts.tasks,
            types=types,
            clean=lambda text: parts.redactor.text(text).text,
            queued=parts.jobs_queued,
        )
        self.jobs = JobService(
            journal=setup.journal,
            views=setup.views.jobs,
            ids=parts.ids,
            clock=setup.clock,
            types=types,
            stop_attempt=self.worker.stop_attempt,
            wake=parts.jobs_queued.set,
        )
        self.upkeep = Upkeep(self.jobs.enqueue, setup.views.jobs, self.worker.ended)
        self.watchdog = build_watchdog(setup, parts, self.worker, self.artifacts.sweep)
        self.incidents = IncidentService(views=setup.views.incidents, journal=setup.journal, watchdog=self.watchdog)
        self._add_routines(setup, parts, tape)

    def _add_routines(self, setup: EngineSetup, parts: EngineParts, tape: RoutineTape) -> None:
        self.scheduler = RoutineScheduler(
            views=setup.views.routines,
            tape=tape,
            jobs=self.jobs,
            cron=setup.ports.cron,
            clock=setup.clock,
            changed=asyncio.Event(),
        )
        self.routines = RoutineService(
            views=setup.views.routines,
            tape=tape,
            jobs=self.jobs,
            ids=parts.ids,
            agents=parts.agents,
            cron=setup.ports.cron,
            clean=lambda text: parts.redactor.text(text).text,
            changed=self.scheduler.changed.set,
        )


def _wire_documents(setup: EngineSetup, parts: EngineParts, sessions: SessionService) -> WorkspaceDocuments:
    return WorkspaceDocuments(
        sessions=sessions,
        agents=parts.agents,
        loops=parts.loops,
        files=setup.ports.document_files,
        artifacts=setup.ports.artifacts,
        provenance=setup.views.provenance,
        redactor=parts.redactor,
        clock=setup.clock,
    )


def _wire_delegations(setup: EngineSetup, parts: EngineParts) -> Delegations:
    delegations = Delegations(
        runs=setup.views.runs,
        provenance=setup.views.provenance,
        journal=setup.journal,
        hub=parts.hub,
        loops=parts.loops,
        loader=parts.loader,
        agents=parts.agents,
        ledger=parts.ledger,
        tasks=parts.tasks,
        clock=setup.clock,
        limits=setup.settings.limits,
    )
    setup.ports.delegation.fill(delegations)
    return delegations


class Engine(Services):
    def __init__(self, setup: EngineSetup, verify: Verify) -> None:
        self._setup = setup
        self._parts = build_parts(setup)
        super().__init__(setup, self._parts, verify)
        self.failed = asyncio.Event()

    async def start(self) -> int:
        """Resumes what an earlier process left. Returns the number of sessions with work."""
        self._parts.tasks.spawn(self._parts.deadlines.keep(), "deadlines")
        self._parts.tasks.spawn(self._sign_regularly(), "checkpoints")
        self._parts.tasks.spawn(self._parts.heartbeats.keep(), "heartbeats")
        self._parts.tasks.spawn(self._sweep(), "artifacts")
        # The file's routines first: a worker that skips a due time would change the same rows.
        await self.routines.sync(self._setup.routines)
        self._parts.tasks.spawn(self.worker.keep(), "jobs")
        self._parts.tasks.spawn(self.scheduler.keep(), "routines")
        self._parts.tasks.spawn(self.upkeep.keep(), "upkeep")
        self._parts.tasks.spawn(self.watchdog.keep(), "watchdog")
        for service in self._setup.services:
            await service.start()
        return await self._parts.loops.resume_all()

    def note(self, principal: Principal, act: AdminActed) -> None:
        """Records an act for a caller that cannot wait for it."""
        self._parts.tasks.spawn(self.acts.record(principal, act), "note")

    async def wait_for(self, stop: asyncio.Event) -> None:
        """Waits until a stop is asked for.

        Raises if the journal's writer ended on its own, because then nothing may continue.
        """
        waiting = [asyncio.ensure_future(event.wait()) for event in (stop, self.failed)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        if self.failed.is_set():
            raise Unavailable(
                JOURNAL_CLOSED, "the journal's writer ended; the log says why. Check the disk, then restart"
            )

    async def drain(self, timeout_s: float) -> bool:
        """Begins nothing new and lets active runs finish, up to the time limit. The next start resumes the rest."""
        self.scheduler.is_draining = self.worker.is_draining = True
        self.runs.is_draining = self.status.is_draining = self._parts.slots.is_closed = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._parts.slots.wait_until_free()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stops effects without recording it: the tape says that they began, and the next start resumes them."""
        await self._parts.tasks.close()
        for service in self._setup.services:
            await service.close()
        await self._setup.journal.close()

    async def _sign_regularly(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_EVERY_S)
            await self._sign_once()

    async def _sign_once(self) -> None:
        try:
            self._parts.hub.publish(await self._setup.journal.checkpoint())
        except PalyraError as error:
            log.warning("checkpoint_failed", code=error.code, message=error.message)
            if error.code == JOURNAL_CLOSED:
                # The writer ended on its own. Nothing can be recorded any more, so nothing may continue.
                self.failed.set()

    async def _sweep(self) -> None:
        try:
            removed_count = await self.artifacts.sweep()
        except PalyraError as error:
            log.warning("artifact_sweep_failed", code=error.code, message=error.message)
        else:
            log.info("artifacts_swept", removed_count=removed_count)
