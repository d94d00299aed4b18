"""The engine as the gateway sees it. Owns: putting its parts together, starting and draining. Not: adapters (app)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from palyra.core.agents import AgentSpec
from palyra.core.budget import Budget
from palyra.core.errors import PalyraError, Unavailable
from palyra.core.events.system import AdminActed
from palyra.core.ids import Principal, derive_node_id
from palyra.core.redaction import KnownSecrets, Redactor
from palyra.core.tools import MissingTool, ToolSpec
from palyra.engine.api.admin_log import AdminLog
from palyra.engine.api.approvals import ApprovalService
from palyra.engine.api.artifacts import ArtifactService
from palyra.engine.api.feed import EventFeed
from palyra.engine.api.model_check import ModelCheck, ModelCheckService
from palyra.engine.api.owners import OwnerLookup
from palyra.engine.api.policy_explainer import PolicyExplainer
from palyra.engine.api.runs import RunService
from palyra.engine.api.sessions import SessionService
from palyra.engine.api.skills import SkillService
from palyra.engine.api.taint import TaintService
from palyra.engine.api.usage import UsageService
from palyra.engine.context import EngineContext, EngineSettings, Parts, RunSlots, TaskSupervisor, Views
from palyra.engine.hub import Hub
from palyra.engine.session.prompt_base import PromptBases
from palyra.engine.session.session_loop import JOURNAL_CLOSED
from palyra.engine.session.session_loops import SessionLoops
from palyra.engine.spend.ledger import Ledger
from palyra.ports.clock import Clock
from palyra.ports.journal import Journal
from palyra.ports.router import ModelCard
from palyra.ports.services import Service

CHECKPOINT_EVERY_S = 5.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """What the app hands over."""

    journal: Journal
    views: Views
    parts: Parts
    clock: Clock
    agents: dict[str, AgentSpec]
    settings: EngineSettings
    budgets: tuple[Budget, ...] = ()
    known: KnownSecrets | None = None
    policy_state: Callable[[], str] = lambda: "ok"
    services: tuple[Service, ...] = ()


class StatusService:
    """What the daemon says of itself."""

    def __init__(
        self, office: EngineContext, verify: Callable[[], Awaitable[dict[str, object]]], policy_state: Callable[[], str]
    ) -> None:
        self._office = office
        self._policy_state = policy_state
        self._verify = verify
        self._checks = ModelCheckService(office)
        self.is_draining = False

    async def parts(self) -> dict[str, str]:
        """Each part is `ok`, or says what is wrong with it."""
        try:
            await self._office.views.state.last_position()
            journal = "ok"
        except PalyraError as error:
            journal = str(error)
        runs = "draining" if self.is_draining else "ok"
        return {"journal": journal, "policy": self._policy_state(), "runs": runs}

    async def verify(self) -> dict[str, object]:
        return await self._verify()

    def metrics(self) -> str:
        active = self._office.slots.taken_count
        return f"# TYPE palyra_runs_active gauge\npalyra_runs_active {active}\n"

    def tools(self) -> tuple[ToolSpec, ...]:
        return self._office.parts.catalog.specs()

    def missing_tools(self) -> tuple[MissingTool, ...]:
        return self._office.parts.catalog.missing()

    def agents(self) -> tuple[AgentSpec, ...]:
        return tuple(self._office.agents.values())

    def default_agent(self) -> str:
        return self._office.settings.default_agent

    def models(self) -> tuple[ModelCard, ...]:
        return self._office.parts.router.models()

    async def check_model(self, principal: Principal, name: str) -> ModelCheck:
        return await self._checks.check(principal, name)


class Engine:
    def __init__(self, setup: EngineSetup, verify: Callable[[], Awaitable[dict[str, object]]]) -> None:
        desks = SessionLoops()
        self._office = EngineContext(
            node=derive_node_id(setup.parts.signer.public_key),
            journal=setup.journal,
            views=setup.views,
            parts=setup.parts,
            hub=Hub(setup.journal),
            clock=setup.clock,
            redactor=Redactor(setup.parts.sealer.marker_key, setup.known),
            agents=setup.agents,
            settings=setup.settings,
            tasks=TaskSupervisor(),
            slots=RunSlots(setup.settings.runs_active_max),
            desks=desks,
            ledger=Ledger(setup.views.usage, setup.budgets, desks.wake),
            kits=PromptBases(setup.parts.catalog, setup.parts.skills),
        )
        desks.bind(self._office)
        self.sessions = SessionService(self._office)
        self.runs = RunService(self._office, self.sessions)
        self.approvals = ApprovalService(self._office)
        self.taint = TaintService(self._office, self.sessions)
        self.feed = EventFeed(self._office, self.sessions)
        self.artifacts = ArtifactService(self._office)
        self.usage = UsageService(self._office)
        self.owners = OwnerLookup(self._office)
        self.acts = AdminLog(self._office)
        self.skills = SkillService(self._office)
        self.explaining = PolicyExplainer(self._office, self.sessions)
        self.status = StatusService(self._office, verify, setup.policy_state)
        self.failed = asyncio.Event()
        self._services = setup.services

    async def start(self) -> int:
        """Takes up what an earlier process left; gives the number of sessions with work."""
        self._office.tasks.spawn(self._office.desks.keep_time(), "deadlines")
        self._office.tasks.spawn(self._sign_regularly(), "checkpoints")
        self._office.tasks.spawn(self._sweep(), "artifacts")
        for service in self._services:
            await service.start()
        return await self._office.desks.resume_all()

    def note(self, principal: Principal, act: AdminActed) -> None:
        """Puts an act on record from where nobody can wait for it."""
        self._office.tasks.spawn(self.acts.record(principal, act), "note")

    async def wait_for(self, stop: asyncio.Event) -> None:
        """Until it is asked to stop; raises if the journal's writer ended on its own, for then nothing may go on."""
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
        """Takes no new runs and lets active ones finish, up to the time given. What is left resumes at the next start."""
        self.runs.is_draining = self.status.is_draining = self._office.slots.is_closed = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._office.slots.wait_until_free()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stops effects without a word: what they were doing is on the tape as begun, and resume knows what to do."""
        await self._office.tasks.close()
        for service in self._services:
            await service.close()
        await self._office.journal.close()

    async def _sign_regularly(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_EVERY_S)
            await self._sign_once()

    async def _sign_once(self) -> None:
        try:
            self._office.hub.publish(await self._office.journal.checkpoint())
        except PalyraError as error:
            log.warning("checkpoint_failed", code=error.code, message=error.message)
            if error.code == JOURNAL_CLOSED:
                # The writer ended on its own. Nothing can be recorded any more, so nothing may go on.
                self.failed.set()

    async def _sweep(self) -> None:
        try:
            removed_count = await self.artifacts.sweep()
        except PalyraError as error:
            log.warning("artifact_sweep_failed", code=error.code, message=error.message)
        else:
            log.info("artifacts_swept", removed_count=removed_count)
