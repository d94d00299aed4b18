"""What the app passes to the engine: settings, the journal's views, and the adapter behind each port.

Owns: the records. Does not own: wiring the engine (engine.parts, engine.engine), choosing adapters (app).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from palyra.core.agents import AgentSpec
from palyra.core.budget import Budget
from palyra.core.events.run import RunLimits
from palyra.core.ids import SessionId
from palyra.core.redaction import KnownSecrets
from palyra.core.run.loop import make_limits
from palyra.ports.artifacts import Artifacts
from palyra.ports.clock import Clock
from palyra.ports.jobs import JobViews
from palyra.ports.journal import Journal
from palyra.ports.policy import Policy
from palyra.ports.prices import Prices
from palyra.ports.processes import NoProcesses, Processes
from palyra.ports.references import ReferenceReaders
from palyra.ports.router import Router
from palyra.ports.schemas import SchemaCheck
from palyra.ports.sealer import Sealer
from palyra.ports.services import Service
from palyra.ports.signer import Signer
from palyra.ports.skills import NoSkills, Skills
from palyra.ports.state import State
from palyra.ports.tools import Catalog
from palyra.ports.upkeep import JournalUpkeep, NoUpkeep
from palyra.ports.views import ApprovalViews, ProvenanceViews, RunViews, SessionViews, UsageViews

QUEUED_RUNS_MAX = 32
ACTIVE_RUNS_MAX = 256


@dataclass(frozen=True, slots=True)
class EngineSettings:
    limits: RunLimits = field(default_factory=make_limits)
    approval_timeout_ms: int = 900_000
    waits_headless: bool = False
    runs_active_max: int = ACTIVE_RUNS_MAX
    runs_queued_max: int = QUEUED_RUNS_MAX
    default_agent: str = "main"
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Views:
    sessions: SessionViews
    runs: RunViews
    approvals: ApprovalViews
    state: State
    usage: UsageViews
    provenance: ProvenanceViews
    jobs: JobViews


async def _nothing_to_forget(_session_id: SessionId) -> None:
    """For tools that keep nothing of a session."""


async def _nothing_kept() -> tuple[SessionId, ...]:
    """For tools that keep nothing of any session."""
    return ()


@dataclass(frozen=True, slots=True)
class EnginePorts:
    """`forget` ends what tools keep of a deleted session: browsers, processes. `kept` names sessions with such things."""

    router: Router
    prices: Prices
    policy: Policy
    catalog: Catalog
    schemas: SchemaCheck
    artifacts: Artifacts
    signer: Signer
    sealer: Sealer
    processes: Processes = field(default_factory=NoProcesses)
    skills: Skills = field(default_factory=NoSkills)
    forget: Callable[[SessionId], Awaitable[None]] = _nothing_to_forget
    kept: Callable[[], Awaitable[tuple[SessionId, ...]]] = _nothing_kept
    upkeep: JournalUpkeep = field(default_factory=NoUpkeep)
    references: ReferenceReaders = field(default_factory=ReferenceReaders)


@dataclass(frozen=True, slots=True)
class EngineSetup:
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
