"""The daemon's status: readiness of its parts, and its configured tools, agents and models.

Does not own: the form on the wire (gateway).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from palyra.core.agents import AgentSpec
from palyra.core.errors import PalyraError
from palyra.core.ids import Principal
from palyra.core.tools import MissingTool, ToolSpec
from palyra.engine.agents import AgentDirectory
from palyra.engine.api.metrics import MetricsService
from palyra.engine.api.model_check import ModelCheck, ModelCheckService
from palyra.engine.session.slots import RunSlots
from palyra.ports.router import ModelCard, Router
from palyra.ports.state import State
from palyra.ports.tools import Catalog


@dataclass(slots=True, kw_only=True)
class StatusService:
    state: State
    can_record: Callable[[], bool]
    slots: RunSlots
    catalog: Catalog
    directory: AgentDirectory
    router: Router
    checks: ModelCheckService
    policy_state: Callable[[], str]
    verifier: Callable[[], Awaitable[dict[str, object]]]
    open_incidents: Callable[[], Awaitable[int]]
    measured: MetricsService
    is_draining: bool = False

    async def parts(self) -> dict[str, str]:
        """Returns `ok` for each part, or what is wrong with it."""
        try:
            await self.state.last_position()
            journal = "ok" if self.can_record() else "its writer has ended; the daemon ends and is started again"
        except PalyraError as error:
            journal = str(error)
        runs = "draining" if self.is_draining else "ok"
        return {"journal": journal, "policy": self.policy_state(), "runs": runs}

    @property
    def active_count(self) -> int:
        """Counts the sessions with an active run."""
        return self.slots.taken_count

    async def incidents_count(self) -> int:
        """Counts open incidents. They do not make the daemon unready: most of them concern one run or one model."""
        try:
            return await self.open_incidents()
        except PalyraError:
            return 0  # The journal's own part says why.

    async def verify(self) -> dict[str, object]:
        return await self.verifier()

    async def metrics(self, gauges: dict[str, float]) -> bytes:
        return await self.measured.render(gauges)

    def tools(self) -> tuple[ToolSpec, ...]:
        return self.catalog.specs()

    def missing_tools(self) -> tuple[MissingTool, ...]:
        return self.catalog.missing()

    def agents(self) -> tuple[AgentSpec, ...]:
        return tuple(self.directory.agents.values())

    def default_agent(self) -> str:
        return self.directory.default

    def models(self) -> tuple[ModelCard, ...]:
        return self.router.models()

    async def check_model(self, principal: Principal, name: str) -> ModelCheck:
        return await self.checks.check(principal, name)
