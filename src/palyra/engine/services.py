"""The services of an engine: which part receives which other.

Owns: assembling them. Does not own: how the parts are built (composition), the start and the end (engine).
"""

import asyncio
from collections.abc import Awaitable, Callable

from palyra.core.channels.outbox import OUTBOX_KIND
from palyra.engine.api.admin_log import AdminLog
from palyra.engine.api.approvals import ApprovalService
from palyra.engine.api.artifacts import ArtifactService
from palyra.engine.api.caller_tools import CallerToolService
from palyra.engine.api.candidate_records import CandidateShower
from palyra.engine.api.candidates import CandidateService
from palyra.engine.api.compaction import CompactionService
from palyra.engine.api.context_preview import ContextPreviewer
from palyra.engine.api.feed import EventFeed
from palyra.engine.api.incidents import IncidentService
from palyra.engine.api.jobs import JobService
from palyra.engine.api.kept_changes import KeptChangeService
from palyra.engine.api.marks import MarkService
from palyra.engine.api.metrics import MetricsService
from palyra.engine.api.model_check import ModelCheckService
from palyra.engine.api.objectives import ObjectiveIntake
from palyra.engine.api.owners import OwnerLookup
from palyra.engine.api.policy_explainer import PolicyExplainer
from palyra.engine.api.processes import ProcessService
from palyra.engine.api.routines import RoutineService
from palyra.engine.api.run_changes import RunChangeService
from palyra.engine.api.run_tree import RunTreeService
from palyra.engine.api.runs import RunService
from palyra.engine.api.sessions import SessionService
from palyra.engine.api.skills import SkillService
from palyra.engine.api.status import StatusService
from palyra.engine.api.taint import TaintService
from palyra.engine.api.usage import UsageService
from palyra.engine.api.workspace_documents import WorkspaceDocuments
from palyra.engine.channels.assembly import (
    build_channels,
    build_live_answers,
    build_outbox,
    build_pairing,
    build_sender,
)
from palyra.engine.channels.commands import ChannelCommands
from palyra.engine.channels.directory import ChannelDirectory
from palyra.engine.compaction.compactor import Compactor
from palyra.engine.composition import EngineParts
from palyra.engine.delegation import Delegations
from palyra.engine.healing.assembly import build_watchdog
from palyra.engine.jobs.compaction import CompactionJob
from palyra.engine.jobs.kinds import REFLECTION, JobHandlers, job_types
from palyra.engine.jobs.maintenance import BackgroundVerify, StoreUpkeep
from palyra.engine.jobs.session_cleanup import SessionCleanup
from palyra.engine.jobs.upkeep import REGULAR_JOBS, Upkeep
from palyra.engine.jobs.vector_upkeep import VectorUpkeep
from palyra.engine.jobs.worker import JobWorker
from palyra.engine.learning.assembly import LearningNeeds, LearningParts, build_learning
from palyra.engine.memory.assembly import build_embedder, build_memory, build_planner
from palyra.engine.memory.item_review import ReviewOfItems
from palyra.engine.routines.fire_handler import ROUTINE_KIND, RoutineFireHandler
from palyra.engine.routines.routine_tape import RoutineTape
from palyra.engine.routines.scheduler import RoutineScheduler
from palyra.engine.session.attached_texts import TextIntake
from palyra.engine.session.attachments import AttachmentIntake
from palyra.engine.session.draft_sweep import DraftSweep
from palyra.engine.session.real_arguments import ArgumentRestorer
from palyra.engine.setup import EngineSetup

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
            forget_layers=ports.drafts.forget_layers,
        )
        self.runs = _wire_runs(setup, parts, self.sessions)
        self.directory = ChannelDirectory(setup.channels, setup.may_answer)
        self.pairing = build_pairing(setup, parts)
        self.approvals = ApprovalService(
            views=views.approvals,
            runs=views.runs,
            provenance=views.provenance,
            journal=journal,
            loops=parts.loops,
            pairing=self.pairing,
            token_holders=setup.token_holders,
            artifacts=ports.artifacts,
        )
        self.caller_tools = CallerToolService(
            views=views.runs,
            loops=parts.loops,
            loader=parts.loader,
            restorer=ArgumentRestorer(views.state, ports.sealer),
        )
        self.taint = TaintService(self.sessions, views.provenance, parts.loops)
        self.feed = EventFeed(sessions=self.sessions, journal=journal, state=views.state, hub=parts.hub)
        self.artifacts = ArtifactService(artifacts=ports.artifacts, journal=journal, state=views.state, clock=clock)
        self.draft_sweep = DraftSweep(
            leftovers=ports.draft_leftovers,
            drafts=ports.drafts,
            runs=views.runs,
            sessions=views.sessions,
            loader=parts.loader,
        )
        self.usage, self.owners = UsageService(views.usage, clock), OwnerLookup(views)
        self.skills = SkillService(skills=ports.skills, catalog=ports.catalog, agents=parts.agents, acts=self.acts)
        self._add_questions(setup, parts)
        self._add_context(setup, parts)
        self.memory = build_memory(setup, parts, self.sessions)
        self.services = parts.services
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
            router=setup.ports.router,
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
            can_record=lambda: setup.journal.is_open,
            slots=parts.slots,
            catalog=setup.ports.catalog,
            directory=parts.agents,
            router=setup.ports.router,
            checks=ModelCheckService(setup.ports.router, self.services),
            policy_state=setup.policy_state,
            verifier=verify,
            open_incidents=lambda: self.incidents.count_open(),
            measured=MetricsService(
                meter=setup.meter,
                workload=setup.views.workload,
                upkeep=setup.ports.upkeep,
                slots=parts.slots,
                incidents_seen=lambda: self.watchdog.open_count,
            ),
        )

    def _add_delegation(self, setup: EngineSetup, parts: EngineParts) -> None:
        self.documents = _wire_documents(setup, parts, self.sessions)
        self.delegations = _wire_delegations(setup, parts)
        self.trees = RunTreeService(setup.views.runs, setup.journal)

    def _job_handlers(self, setup: EngineSetup, fires: RoutineFireHandler, learning: LearningParts) -> JobHandlers:
        cleanup = SessionCleanup(
            sessions=self.sessions,
            artifacts=self.artifacts,
            views=setup.views.sessions,
            clock=setup.clock,
            retention_ms=setup.settings.retention_ms,
            kept=setup.ports.kept,
            forget=setup.ports.forget,
            sweep_drafts=self.draft_sweep.sweep,
        )
        upkeep = StoreUpkeep(
            upkeep=setup.ports.upkeep,
            clock=setup.clock,
            journal=setup.journal,
            jobs=setup.views.jobs,
            kept_ms={kind.name: kind.kept_days * 86_400_000 for kind in (ROUTINE_KIND, REFLECTION, OUTBOX_KIND)},
            forget_expired=self.memory.forget_expired,
        )
        return JobHandlers(
            compaction=CompactionJob(self.compactor).perform,
            delegation=self.delegations.end_children,
            session_cleanup=cleanup.perform,
            maintenance=upkeep.perform,
            verify=BackgroundVerify(self.status.verify).perform,
            routine=fires.perform,
            memory_erasure=self.memory.eraser.perform,
            re_embedding=self.vectors.perform,
            reflection=learning.reflection.perform,
            findings=learning.findings.perform,
            settle=learning.settle.perform,
            outbox=build_sender(setup, self.directory).perform,
        )

    def _add_background(self, setup: EngineSetup, parts: EngineParts) -> None:
        """Adds what runs unattended, and the services that show it."""
        self._add_delegation(setup, parts)
        self.compactor = Compactor(
            loader=parts.loader, loops=parts.loops, services=self.services, assembler=parts.assembler
        )
        self.compaction = CompactionService(self.sessions, self.compactor)
        tape = RoutineTape(system=parts.system_tape, clock=setup.clock)
        fires = RoutineFireHandler(views=setup.views.routines, runs=self.runs, tape=tape, channels=self.directory)
        self.embedder = build_embedder(setup, self.services)
        self.vectors = VectorUpkeep(setup.views.vectors, self.embedder, setup.journal)
        self.memory.stored = self.vectors.wake
        needs = LearningNeeds(
            services=self.services,
            documents=self.documents,
            compactor=self.compactor,
            memory=build_planner(setup, parts),
        )
        learning = build_learning(setup, parts, needs)
        self.memory.review = ReviewOfItems(learning.intake, learning.tape)
        types = job_types(self._job_handlers(setup, fires, learning))
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
            regular=frozenset(regular.kind for regular in REGULAR_JOBS),
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
        self._add_channels(setup, parts)
        connections = tuple(self.channels.connections.values())
        self.watchdog = build_watchdog(setup, parts, self.worker, self.artifacts.sweep, connections)
        self.incidents = IncidentService(views=setup.views.incidents, journal=setup.journal, watchdog=self.watchdog)
        self._add_routines(setup, parts, tape)
        self._add_candidates(setup, parts, learning)

    def _add_candidates(self, setup: EngineSetup, parts: EngineParts, learning: LearningParts) -> None:
        self.candidates = CandidateService(
            views=setup.views.learning,
            applier=learning.applier,
            shower=CandidateShower(
                setup.journal,
                setup.ports.document_files,
                setup.ports.notes_root,
                parts.agents,
                tuple(each.rules.name for each in setup.channels),
            ),
            tape=learning.tape,
            clean=lambda text: parts.redactor.text(text).text,
            wake=parts.jobs_queued.set,
            restore=self.marks.restore,
        )

    def _add_channels(self, setup: EngineSetup, parts: EngineParts) -> None:
        commands = ChannelCommands(
            sessions=self.sessions,
            runs=self.runs,
            approvals=self.approvals,
            compaction=self.compaction,
            outbox=setup.views.outbox,
            directory=self.directory,
        )
        self.outbox = build_outbox(setup, parts, self.directory, self.acts)
        self.channels = build_channels(setup, parts, commands, self.pairing, self.acts)
        self.pairing.on_answer(self.outbox.tell_linked)
        if setup.channels:
            parts.hub.observe(build_live_answers(setup, parts, self.directory))

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
            channels=self.directory,
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
        notes_root=setup.ports.notes_root,
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


def _wire_runs(setup: EngineSetup, parts: EngineParts, sessions: SessionService) -> RunService:
    views, ports, journal = setup.views, setup.ports, setup.journal
    return RunService(
        sessions=sessions,
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
            provenance=views.provenance,
        ),
        schemas=ports.schemas,
        catalog=ports.catalog,
        objectives=ObjectiveIntake(parts.references.judge),
        processes=ProcessService(views.runs, ports.processes, parts.redactor),
        changes=RunChangeService(
            runs=views.runs,
            journal=journal,
            artifacts=ports.artifacts,
            drafts=ports.drafts,
            loops=parts.loops,
            redactor=parts.redactor,
        ),
        kept=KeptChangeService(runs=views.runs, drafts=ports.drafts, loops=parts.loops, redactor=parts.redactor),
        settings=setup.settings,
        tools_begun=ports.tools_begun,
    )
