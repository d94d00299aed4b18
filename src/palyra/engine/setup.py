"""What the app passes to the engine: settings, the journal's views, and the adapter behind each port.

Owns: the records. Does not own: wiring the engine (engine.parts, engine.engine), choosing adapters (app).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from palyra.core.agents import AgentSpec
from palyra.core.budget import Budget
from palyra.core.compaction.model import CompactionSettings
from palyra.core.events.run import RunLimits
from palyra.core.healing.model import HealingModes
from palyra.core.healing.rules import STUCK_MS
from palyra.core.ids import EffectId, Principal, SessionId
from palyra.core.learning.settings import NO_LEARNING, LearningRuntimeConfig
from palyra.core.redaction import KnownSecrets
from palyra.core.routines.wish import ConfiguredRoutine
from palyra.core.run.loop import make_limits
from palyra.engine.channels.directory import ConfiguredChannel, MayAnswer, nobody_may_answer
from palyra.engine.healing.loop_watch import LoopBlock
from palyra.ports.anchors import Anchors, NoAnchors
from palyra.ports.artifacts import Artifacts
from palyra.ports.channels import ChannelViews, OutboxViews, PairingViews, PositionViews
from palyra.ports.clock import Clock
from palyra.ports.cron import Cron
from palyra.ports.delegation import DelegationSlot
from palyra.ports.drafts import Drafts, NoDrafts
from palyra.ports.embedder import Embedder, EmbeddingBatches, NoEmbedder, NoVectors, VectorIndex
from palyra.ports.incidents import IncidentViews, NoIncidents
from palyra.ports.jobs import JobViews
from palyra.ports.journal import Journal
from palyra.ports.learned_skills import LearnedSkills, NoLearnedSkills
from palyra.ports.learning import LearningViews
from palyra.ports.machine import HostMachine
from palyra.ports.marks import MarkViews
from palyra.ports.memory import MemoryStores
from palyra.ports.policy import Policy
from palyra.ports.prices import Prices
from palyra.ports.processes import NoProcesses, Processes
from palyra.ports.readable import DocumentReader, NoDocumentReader
from palyra.ports.references import ReferenceReaders
from palyra.ports.router import Router
from palyra.ports.routines import RoutineViews
from palyra.ports.schemas import SchemaCheck
from palyra.ports.sealer import Sealer
from palyra.ports.services import Service
from palyra.ports.signer import Signer
from palyra.ports.skills import NoSkills, Skills
from palyra.ports.state import State
from palyra.ports.telemetry import Meter, NoMeter, NoWorkload, RunObserver, WorkloadViews
from palyra.ports.token_counter import EstimatedTokens, TokenCounter
from palyra.ports.tools import Catalog
from palyra.ports.upkeep import JournalUpkeep, NoUpkeep
from palyra.ports.views import ApprovalViews, ProvenanceViews, RunViews, SessionViews, UsageViews
from palyra.ports.workspace_documents import DocumentFiles, NoDocumentFiles

QUEUED_RUNS_MAX = 32
ACTIVE_RUNS_MAX = 256


@dataclass(frozen=True, slots=True)
class EngineSettings:
    limits: RunLimits = field(default_factory=make_limits)
    approval_timeout_ms: int = 900_000
    waits_headless: bool = False
    runs_active_max: int = ACTIVE_RUNS_MAX
    runs_queued_max: int = QUEUED_RUNS_MAX
    origins_max: Mapping[str, int] = field(default_factory=dict)
    default_agent: str = "main"
    retention_ms: int | None = None
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    recalls_memory: bool = True
    learning: LearningRuntimeConfig = NO_LEARNING


@dataclass(frozen=True, slots=True)
class Views:
    sessions: SessionViews
    runs: RunViews
    approvals: ApprovalViews
    state: State
    usage: UsageViews
    provenance: ProvenanceViews
    jobs: JobViews
    routines: RoutineViews
    marks: MarkViews
    memory: MemoryStores
    learning: LearningViews
    channels: ChannelViews
    positions: PositionViews
    pairing: PairingViews
    outbox: OutboxViews
    incidents: IncidentViews = field(default_factory=NoIncidents)
    vectors: VectorIndex = field(default_factory=NoVectors)
    workload: WorkloadViews = field(default_factory=NoWorkload)


async def _nothing_to_wait_for() -> None:
    """For tools that are there from the start."""


async def _nothing_to_forget(_session_id: SessionId) -> None:
    """For tools that keep nothing of a session."""


async def _nothing_kept() -> tuple[SessionId, ...]:
    """For tools that keep nothing of any session."""
    return ()


async def _no_leftovers() -> tuple[EffectId, ...]:
    """For an engine that keeps no drafts."""
    return ()


@dataclass(frozen=True, slots=True)
class EnginePorts:
    """`forget` ends what tools keep of a deleted session: browsers, processes. `kept` names sessions with such things.

    The engine fills `delegation`. `tools_begun` waits for tools whose servers are still starting.
    """

    router: Router
    prices: Prices
    policy: Policy
    catalog: Catalog
    schemas: SchemaCheck
    artifacts: Artifacts
    signer: Signer
    sealer: Sealer
    cron: Cron
    processes: Processes = field(default_factory=NoProcesses)
    skills: Skills = field(default_factory=NoSkills)
    delegation: DelegationSlot = field(default_factory=DelegationSlot)
    forget: Callable[[SessionId], Awaitable[None]] = _nothing_to_forget
    kept: Callable[[], Awaitable[tuple[SessionId, ...]]] = _nothing_kept
    upkeep: JournalUpkeep = field(default_factory=NoUpkeep)
    counter: TokenCounter = field(default_factory=EstimatedTokens)
    documents: DocumentReader = field(default_factory=NoDocumentReader)
    references: ReferenceReaders = field(default_factory=ReferenceReaders)
    document_files: DocumentFiles = field(default_factory=NoDocumentFiles)
    notes_root: str = ""
    embedder: Embedder | EmbeddingBatches = field(default_factory=NoEmbedder)
    learned_skills: LearnedSkills = field(default_factory=NoLearnedSkills)
    anchors: Anchors = field(default_factory=NoAnchors)
    tools_begun: Callable[[], Awaitable[None]] = _nothing_to_wait_for
    drafts: Drafts = field(default_factory=NoDrafts)
    draft_leftovers: Callable[[], Awaitable[tuple[EffectId, ...]]] = _no_leftovers


def _no_blocks() -> tuple[LoopBlock, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HealingSetup:
    """What the watchdog looks at besides the engine's own parts. What is None is not looked at.

    `model_patience_ms` is how long a model may take without a sign. `loop_blocks` returns each block of the event loop
    once.
    """

    modes: HealingModes = field(default_factory=HealingModes)
    model_patience_ms: int = STUCK_MS
    machine: HostMachine | None = None
    log: JournalUpkeep | None = None
    services: tuple[Service, ...] = ()
    loop_blocks: Callable[[], tuple[LoopBlock, ...]] = _no_blocks


def _no_tokens() -> tuple[Principal, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """`token_holders` returns whose tokens may start runs now."""

    journal: Journal
    views: Views
    ports: EnginePorts
    clock: Clock
    agents: dict[str, AgentSpec]
    settings: EngineSettings
    budgets: tuple[Budget, ...] = ()
    known: KnownSecrets | None = None
    policy_state: Callable[[], str] = lambda: "ok"
    services: tuple[Service, ...] = ()
    healing: HealingSetup = field(default_factory=HealingSetup)
    routines: tuple[ConfiguredRoutine, ...] = ()
    meter: Meter = field(default_factory=NoMeter)
    observers: tuple[RunObserver, ...] = ()
    channels: tuple[ConfiguredChannel, ...] = ()
    may_answer: MayAnswer = nobody_may_answer
    token_holders: Callable[[], tuple[Principal, ...]] = _no_tokens
