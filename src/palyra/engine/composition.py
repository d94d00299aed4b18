"""Wires the parts of the engine that drive sessions.

Owns: which part receives which other. Does not own: adapters (app), services (engine.engine), any behaviour.
"""

import asyncio
from dataclasses import dataclass

from palyra.core.ids import NodeId, SessionId, derive_node_id
from palyra.core.redaction import Redactor
from palyra.engine.agents import AgentDirectory
from palyra.engine.api.service_runs import ServiceRuns
from palyra.engine.hub import Hub
from palyra.engine.new_ids import IdSource
from palyra.engine.session.answer_builder import AnswerBuilder
from palyra.engine.session.caller_results import CallerResults
from palyra.engine.session.commit_builder import CommitBuilder
from palyra.engine.session.compaction_builder import CompactionBuilder
from palyra.engine.session.context_assembler import ContextAssembler
from palyra.engine.session.deadlines import SessionDeadlines
from palyra.engine.session.draft_card import DraftCard
from palyra.engine.session.draft_gate import DraftGate
from palyra.engine.session.earlier_answers import EarlierAnswers
from palyra.engine.session.effect_runner import EffectParts
from palyra.engine.session.event_redactor import EventRedactor
from palyra.engine.session.follow_up_jobs import FollowUpJobs
from palyra.engine.session.full_previews import FullPreviews
from palyra.engine.session.gate import Gate
from palyra.engine.session.heartbeats import Heartbeats
from palyra.engine.session.instruction_files import InstructionFiles
from palyra.engine.session.memory_recall import MemoryRecall
from palyra.engine.session.memory_reference import MemoryReader
from palyra.engine.session.model_call import ModelCaller
from palyra.engine.session.objective_check import ObjectiveChecker, Review
from palyra.engine.session.prompt_base import PromptBases
from palyra.engine.session.real_arguments import ArgumentRestorer
from palyra.engine.session.reference_judge import ReferenceJudge
from palyra.engine.session.reference_records import RecordReader
from palyra.engine.session.reference_resolver import ReferenceResolver
from palyra.engine.session.session_loader import SessionLoader
from palyra.engine.session.session_loop import LoopParts
from palyra.engine.session.session_loops import SessionLoops
from palyra.engine.session.slots import RunSlots
from palyra.engine.session.tool_call import ToolExecutor
from palyra.engine.setup import EngineSetup
from palyra.engine.spend.ledger import Ledger
from palyra.engine.spend.route_planner import RoutePlanner
from palyra.engine.system_tape import SystemTape
from palyra.engine.tasks import TaskSupervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """The parts that the engine itself starts and ends, and from which its services are made."""

    node: NodeId
    agents: AgentDirectory
    ids: IdSource
    redactor: Redactor
    ledger: Ledger
    hub: Hub
    system_tape: SystemTape
    tasks: TaskSupervisor
    slots: RunSlots
    deadlines: SessionDeadlines
    loader: SessionLoader
    loops: SessionLoops
    services: ServiceRuns
    heartbeats: Heartbeats
    jobs_queued: asyncio.Event
    references: ReferenceResolver
    assembler: ContextAssembler


def build_parts(setup: EngineSetup) -> EngineParts:
    def wake(session_id: SessionId) -> None:
        loops.wake(session_id)

    agents = AgentDirectory(setup.agents, setup.settings.default_agent)
    node, redactor = derive_node_id(setup.ports.signer.public_key), Redactor(setup.ports.sealer.marker_key, setup.known)
    hub, tasks = Hub(setup.journal), TaskSupervisor()
    slots = RunSlots(setup.settings.runs_active_max, setup.settings.origins_max)
    ledger, deadlines = Ledger(setup.views.usage, setup.budgets, wake), SessionDeadlines(setup.clock, wake)
    jobs_queued, loader, ids = asyncio.Event(), SessionLoader(setup.journal, setup.views), IdSource(setup.clock)
    shared = _Shared(hub, tasks, ledger, lambda request: services.perform(request))
    effects = _wire_effects(setup, agents, redactor, shared)
    answers = _wire_answers(setup, effects, agents, loader, deadlines)
    cleaner = EventRedactor(redactor, setup.ports.sealer)
    follow_ups = FollowUpJobs(ids, setup.clock, setup.settings.learning)
    builder = CommitBuilder(
        node=node,
        clock=setup.clock,
        redactor=cleaner,
        follow_ups=follow_ups,
        effects=effects,
        answers=answers,
        compactions=CompactionBuilder(clock=setup.clock, redactor=cleaner, follow_ups=follow_ups, effects=effects),
        ledger=ledger,
        slots=slots,
        runs_queued_max=setup.settings.runs_queued_max,
    )
    parts = LoopParts(
        journal=setup.journal,
        ledger=ledger,
        hub=hub,
        tasks=tasks,
        loader=loader,
        builder=builder,
        effects=effects,
        end_processes=setup.ports.processes.end_run,
        wake_jobs=jobs_queued.set,
    )
    loops = SessionLoops(parts, setup.views, slots, deadlines)
    services = ServiceRuns(ids, loops, hub, setup.views.runs)
    return EngineParts(
        node=node,
        agents=agents,
        ids=ids,
        redactor=redactor,
        ledger=ledger,
        hub=hub,
        system_tape=SystemTape(node=node, journal=setup.journal, hub=hub),
        tasks=tasks,
        slots=slots,
        deadlines=deadlines,
        loader=loader,
        loops=loops,
        services=services,
        heartbeats=Heartbeats(journal=setup.journal, loops=loops, hub=hub, clock=setup.clock),
        jobs_queued=jobs_queued,
        references=effects.references,
        assembler=effects.assembler,
    )


def _wire_references(setup: EngineSetup, redactor: Redactor) -> ReferenceResolver:
    ports, views = setup.ports, setup.views
    return ReferenceResolver(
        judge=ReferenceJudge(catalog=ports.catalog, schemas=ports.schemas, policy=ports.policy),
        readers=ports.references,
        memory=MemoryReader(stores=views.memory, clock=setup.clock),
        records=RecordReader(sessions=views.sessions, runs=views.runs, journal=setup.journal),
        provenance=views.provenance,
        redactor=redactor,
    )


def _wire_instruction_files(setup: EngineSetup, references: ReferenceResolver) -> InstructionFiles:
    return InstructionFiles(
        judge=references.judge,
        files=setup.ports.references.files,
        provenance=setup.views.provenance,
        redactor=references.redactor,
        sealer=setup.ports.sealer,
        clock=setup.clock,
        notes=setup.ports.document_files,
        notes_root=setup.ports.notes_root,
    )


@dataclass(frozen=True, slots=True)
class _Shared:
    hub: Hub
    tasks: TaskSupervisor
    ledger: Ledger
    review: Review


def _wire_assembler(setup: EngineSetup, agents: AgentDirectory, prompts: PromptBases) -> ContextAssembler:
    ports, compaction = setup.ports, setup.settings.compaction
    return ContextAssembler(
        agents=agents, prompts=prompts, router=ports.router, counter=ports.counter, compaction=compaction
    )


def _wire_gate(setup: EngineSetup, restorer: ArgumentRestorer, ledger: Ledger) -> Gate:
    ports = setup.ports
    return Gate(
        catalog=ports.catalog,
        schemas=ports.schemas,
        policy=ports.policy,
        restorer=restorer,
        earlier=EarlierAnswers(setup.views.approvals, setup.journal),
        ledger=ledger,
        provenance=setup.views.provenance,
        clock=setup.clock,
        approval_timeout_ms=setup.settings.approval_timeout_ms,
    )


def _wire_draft_gate(setup: EngineSetup, ledger: Ledger, full: FullPreviews) -> DraftGate:
    ports = setup.ports
    return DraftGate(
        drafts=ports.drafts,
        catalog=ports.catalog,
        policy=ports.policy,
        ledger=ledger,
        card=DraftCard(ports.drafts, full),
        clock=setup.clock,
        approval_timeout_ms=setup.settings.approval_timeout_ms,
    )


def _wire_tools(setup: EngineSetup, redactor: Redactor, restorer: ArgumentRestorer, hub: Hub) -> ToolExecutor:
    return ToolExecutor(
        restorer=restorer,
        provenance=setup.views.provenance,
        artifacts=setup.ports.artifacts,
        redactor=redactor,
        sealer=setup.ports.sealer,
        signer=setup.ports.signer,
        clock=setup.clock,
        hub=hub,
    )


def _wire_answers(
    setup: EngineSetup, effects: EffectParts, agents: AgentDirectory, loader: SessionLoader, deadlines: SessionDeadlines
) -> AnswerBuilder:
    return AnswerBuilder(
        gate=effects.gate,
        draft_gate=effects.draft_gate,
        agents=agents,
        clock=setup.clock,
        fold_run=loader.fold_run,
        look_at_clock=deadlines.look_at_clock,
    )


def _wire_effects(setup: EngineSetup, agents: AgentDirectory, redactor: Redactor, shared: _Shared) -> EffectParts:
    ports, clock, hub, ledger = setup.ports, setup.clock, shared.hub, shared.ledger
    timeout_ms = setup.settings.approval_timeout_ms
    restorer = ArgumentRestorer(setup.views.state, ports.sealer)
    prompts = PromptBases(ports.catalog, ports.skills)
    references = _wire_references(setup, redactor)
    tools = _wire_tools(setup, redactor, restorer, hub)
    full = FullPreviews(ports.artifacts, redactor)
    return EffectParts(
        agents=agents,
        prompts=prompts,
        catalog=ports.catalog,
        gate=_wire_gate(setup, restorer, ledger),
        draft_gate=_wire_draft_gate(setup, ledger, full),
        full=full,
        drafts=ports.drafts,
        references=references,
        objectives=ObjectiveChecker(
            judge=references.judge,
            files=ports.references.files,
            agents=agents,
            review=shared.review,
            hub=hub,
            clock=clock,
        ),
        instruction_files=_wire_instruction_files(setup, references),
        recall=MemoryRecall(stores=setup.views.memory, clock=clock, is_on=setup.settings.recalls_memory),
        assembler=_wire_assembler(setup, agents, prompts),
        planner=RoutePlanner(
            agents=agents,
            prompts=prompts,
            router=ports.router,
            prices=ports.prices,
            ledger=ledger,
            hub=hub,
            clock=clock,
            policy=ports.policy,
            approval_timeout_ms=timeout_ms,
        ),
        models=ModelCaller(
            router=ports.router,
            prices=ports.prices,
            schemas=ports.schemas,
            artifacts=ports.artifacts,
            redactor=redactor,
            hub=hub,
            bounds_output=ledger.has_budgets,
        ),
        tools=tools,
        caller_results=CallerResults(tools),
        tasks=shared.tasks,
        clock=clock,
    )
