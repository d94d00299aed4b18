"""The office. Owns: what all desks share: the journal, the hub, the parts behind ports. Not: any one session."""

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from palyra.core.agents import AgentSpec
from palyra.core.errors import Invalid
from palyra.core.events.run import RunLimits
from palyra.core.ids import ULID_RANDOM_BYTES, NodeId, RunId, SessionId, StreamId, make_ulid
from palyra.core.redaction import Redactor
from palyra.core.run.loop import make_limits
from palyra.engine.hub import Hub
from palyra.engine.session.prompt_base import PromptBases
from palyra.engine.spend.ledger import Ledger
from palyra.ports.artifacts import Artifacts
from palyra.ports.clock import Clock
from palyra.ports.journal import Journal
from palyra.ports.policy import Policy
from palyra.ports.prices import Prices
from palyra.ports.processes import NoProcesses, Processes
from palyra.ports.router import Router
from palyra.ports.schemas import SchemaCheck
from palyra.ports.sealer import Sealer
from palyra.ports.signer import Signer
from palyra.ports.skills import NoSkills, Skills
from palyra.ports.state import State
from palyra.ports.tools import Catalog
from palyra.ports.views import ApprovalViews, ProvenanceViews, RunViews, SessionViews, UsageViews

log = structlog.get_logger()

if TYPE_CHECKING:
    from palyra.engine.session.session_loops import SessionLoops

QUEUED_RUNS_MAX = 32
ACTIVE_RUNS_MAX = 256
IDS_DRAWN_COUNT = 256


@dataclass(frozen=True, slots=True)
class EngineSettings:
    limits: RunLimits = field(default_factory=make_limits)
    approval_timeout_ms: int = 900_000
    waits_headless: bool = False
    runs_active_max: int = ACTIVE_RUNS_MAX
    runs_queued_max: int = QUEUED_RUNS_MAX
    default_agent: str = "main"


@dataclass(frozen=True, slots=True)
class Views:
    sessions: SessionViews
    runs: RunViews
    approvals: ApprovalViews
    state: State
    usage: UsageViews
    provenance: ProvenanceViews


async def _nothing_to_forget(_session_id: SessionId) -> None:
    """Where tools keep nothing of a session."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What stands behind the ports the effects need. `forget` ends what tools keep of a session that was deleted."""

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


@dataclass(frozen=True, slots=True)
class EngineContext:
    node: NodeId
    journal: Journal
    views: Views
    parts: Parts
    hub: Hub
    clock: Clock
    redactor: Redactor
    agents: dict[str, AgentSpec]
    settings: EngineSettings
    tasks: "TaskSupervisor"
    slots: "RunSlots"
    desks: "SessionLoops"
    ledger: Ledger
    kits: PromptBases

    def new_run_id(self) -> RunId:
        return RunId(make_ulid(self.clock.now_ms(), _entropy()))

    def new_session_id(self) -> SessionId:
        return SessionId(StreamId(make_ulid(self.clock.now_ms(), _entropy())))

    def agent(self, name: str | None) -> AgentSpec:
        wanted = name or self.settings.default_agent
        if wanted not in self.agents:
            raise Invalid("agent_unknown", f"there is no agent {wanted!r}; see GET /api/v1/agents")
        return self.agents[wanted]

    def agent_of(self, name: str) -> AgentSpec:
        """The agent of a run accepted earlier; one that is no longer configured may use nothing."""
        return self.agents.get(name) or AgentSpec(name=name, tools=())


_drawn: deque[bytes] = deque()


def _entropy() -> bytes:
    """Random bytes of one id. Asking the kernel hands the interpreter to another thread, so many are drawn at once."""
    if not _drawn:
        random_bytes = secrets.token_bytes(ULID_RANDOM_BYTES * IDS_DRAWN_COUNT)
        starts = range(0, len(random_bytes), ULID_RANDOM_BYTES)
        _drawn.extend(random_bytes[start : start + ULID_RANDOM_BYTES] for start in starts)
    return _drawn.pop()


class RunSlots:
    """Places for runs that are active at the same time. Queued runs wait for one without a coroutine."""

    def __init__(self, places_max: int) -> None:
        self._places_max = places_max
        self._taken: set[SessionId] = set()
        self._waiting: dict[SessionId, None] = {}
        self._is_free = asyncio.Event()
        self._is_free.set()
        self.is_closed = False

    def has_room(self, session_id: SessionId) -> bool:
        """Takes a place if there is one. A session that finds none is remembered, in order, and told when there is."""
        if session_id in self._taken and not self.is_closed:
            return True
        if self.is_closed or len(self._taken) >= self._places_max:
            self._waiting[session_id] = None
            return False
        self.take(session_id)
        return True

    def take(self, session_id: SessionId) -> None:
        """Also beyond the limit: a run that was active before a restart, or has its answer, is not held up."""
        self._waiting.pop(session_id, None)
        self._taken.add(session_id)
        self._is_free.clear()

    def leave(self, session_id: SessionId) -> None:
        self._taken.discard(session_id)
        if not self._taken:
            self._is_free.set()

    def next_waiting(self) -> SessionId | None:
        """Who has waited longest, if there is a place; whoever does not want it passes it on."""
        if self.is_closed or len(self._taken) >= self._places_max or not self._waiting:
            return None
        waiting = next(iter(self._waiting))
        del self._waiting[waiting]
        return waiting

    async def wait_until_free(self) -> None:
        await self._is_free.wait()

    @property
    def taken_count(self) -> int:
        return len(self._taken)


class TaskSupervisor:
    """The task supervisor: holds every task that outlives a call, and lets none fail unheard."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_closing = False

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("task_failed", task=task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancels what is left and waits for it."""
        self.is_closing = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
