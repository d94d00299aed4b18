"""The engine as the gateway sees it. Owns: the methods routes call. Not: what they do (engine).

Every method takes the principal in whose eyes it is asked for, None for everyone, and raises errors of the one tree. Who
may look through other eyes than their own the gateway asks the access policy (oversight); `by` then says who acts (L11).
A frame is a recorded event or a live one.
"""

from typing import Protocol

from palyra.core.agents import AgentSpec
from palyra.core.events import Event
from palyra.core.events.system import AdminActed
from palyra.core.ids import ApprovalId, ArtifactId, GrantId, Principal, RunId, SessionId
from palyra.core.projections.rows import SessionRow
from palyra.core.tools import MissingTool, ToolSpec
from palyra.engine.api.model_check import ModelCheck
from palyra.engine.api.policy_explainer import ExplainRequest, Explanation
from palyra.engine.api.requests import (
    ApprovalAnswer,
    ApprovalRecord,
    ApprovalsQuery,
    ArtifactRecord,
    GrantRecord,
    RunRecord,
    RunRequest,
    RunsQuery,
    SessionRequest,
    StartedRun,
    TaintRecord,
    UsageQuery,
)
from palyra.engine.api.skills import SkillChange, SkillQuery, SkillRecord
from palyra.engine.hub import Frames
from palyra.ports.processes import ProcessRecord
from palyra.ports.router import ModelCard
from palyra.ports.views import UsageReport


class Sessions(Protocol):
    async def resolve(self, principal: Principal, request: SessionRequest, /) -> SessionRow: ...

    async def get(self, principal: Principal, session_id: SessionId, /) -> SessionRow: ...

    async def list(self, principal: Principal | None, after: str, limit: int, /) -> tuple[SessionRow, ...]: ...

    async def reset(self, principal: Principal, session_id: SessionId, /) -> SessionRow: ...

    async def label(self, principal: Principal, session_id: SessionId, label: str | None, /) -> SessionRow: ...

    async def branch(
        self, principal: Principal, session_id: SessionId, at_seq: int, label: str | None, /
    ) -> SessionRow: ...

    async def delete(self, principal: Principal, session_id: SessionId, /) -> None: ...

    async def tape(
        self, principal: Principal, session_id: SessionId, after_seq: int, limit: int, /
    ) -> tuple[Event, ...]: ...


class Processes(Protocol):
    async def list(self, principal: Principal, run_id: RunId, /) -> tuple[ProcessRecord, ...]: ...

    async def stop(self, principal: Principal, run_id: RunId, process_id: str, /) -> ProcessRecord: ...


class Runs(Protocol):
    @property
    def processes(self) -> Processes: ...

    async def start(self, principal: Principal, request: RunRequest, /) -> RunRecord: ...

    async def start_and_follow(self, principal: Principal, request: RunRequest, /) -> tuple[StartedRun, Frames]: ...

    async def get(self, principal: Principal, run_id: RunId, /) -> RunRecord: ...

    async def list(self, principal: Principal | None, query: RunsQuery, /) -> tuple[RunRecord, ...]: ...

    async def send_input(self, principal: Principal, run_id: RunId, text: str, /) -> RunRecord: ...

    async def cancel(self, principal: Principal, run_id: RunId, /, *, by: Principal | None = None) -> RunRecord: ...

    async def follow(self, principal: Principal, run_id: RunId, after_seq: int | None, /) -> Frames:
        """Ends by itself after the run's terminal event; None is from the run's first event on."""
        ...


class Approvals(Protocol):
    async def list(self, principal: Principal | None, query: ApprovalsQuery, /) -> tuple[ApprovalRecord, ...]: ...

    async def get(self, principal: Principal, approval_id: ApprovalId, /) -> ApprovalRecord: ...

    async def answer(
        self, principal: Principal, approval_id: ApprovalId, answer: ApprovalAnswer, /, *, by: Principal | None = None
    ) -> ApprovalRecord: ...

    async def grants(self, principal: Principal | None, after: str, limit: int, /) -> tuple[GrantRecord, ...]: ...

    async def revoke(
        self, principal: Principal, grant_id: GrantId, /, *, by: Principal | None = None
    ) -> GrantRecord: ...


class Taints(Protocol):
    async def show(self, principal: Principal, session_id: SessionId, /) -> tuple[TaintRecord, ...]: ...

    async def trust(
        self, principal: Principal, session_id: SessionId, source: str, reason: str, /
    ) -> tuple[TaintRecord, ...]: ...

    async def distrust(
        self, principal: Principal, session_id: SessionId, source: str, reason: str, /
    ) -> tuple[TaintRecord, ...]: ...


class Feed(Protocol):
    async def session(self, principal: Principal, session_id: SessionId, after_seq: int | None, /) -> Frames: ...

    async def all(self, principal: Principal | None, after_position: int | None, /) -> Frames: ...


class ArtifactDesk(Protocol):
    async def put(self, principal: Principal, body: bytes, media_type: str, /) -> ArtifactRecord: ...

    async def get(self, principal: Principal, artifact_id: ArtifactId, /) -> tuple[ArtifactRecord, bytes]: ...


class Usage(Protocol):
    async def report(self, principal: Principal, query: UsageQuery, /) -> UsageReport:
        """Of the principal's own runs, or of everyone's where the query says so: who may ask that is the caller's to check."""
        ...


class Owners(Protocol):
    """Whose a thing is: the principal who asks, if it is shown to them anyway; None where there is no such thing."""

    async def of_session(self, principal: Principal, session_id: SessionId, /) -> Principal | None: ...

    async def of_run(self, principal: Principal, run_id: RunId, /) -> Principal | None: ...

    async def of_approval(self, principal: Principal, approval_id: ApprovalId, /) -> Principal | None: ...

    async def of_grant(self, principal: Principal, grant_id: GrantId, /) -> Principal | None: ...


class Acts(Protocol):
    async def record(self, principal: Principal, act: AdminActed, /) -> None:
        """Durable when it returns."""
        ...


class Skills(Protocol):
    async def list(self, agent: str | None, /) -> tuple[SkillRecord, ...]: ...

    async def get(self, query: SkillQuery, /) -> SkillRecord: ...

    async def change(self, principal: Principal, query: SkillQuery, change: SkillChange, /) -> SkillRecord:
        """On record before it is done."""
        ...


class Explaining(Protocol):
    async def explain(self, principal: Principal, request: ExplainRequest, /) -> Explanation:
        """How a call would be judged; nothing is executed."""
        ...


class Status(Protocol):
    @property
    def is_draining(self) -> bool: ...

    async def parts(self) -> dict[str, str]:
        """Each part with "ok" or a reason."""
        ...

    async def verify(self) -> dict[str, object]: ...

    def metrics(self) -> str: ...

    def tools(self) -> tuple[ToolSpec, ...]: ...

    def missing_tools(self) -> tuple[MissingTool, ...]: ...

    def agents(self) -> tuple[AgentSpec, ...]: ...

    def default_agent(self) -> str: ...

    def models(self) -> tuple[ModelCard, ...]: ...

    async def check_model(self, principal: Principal, name: str, /) -> ModelCheck:
        """One small real call, and what came of it."""
        ...


class Engine(Protocol):
    @property
    def sessions(self) -> Sessions: ...

    @property
    def runs(self) -> Runs: ...

    @property
    def approvals(self) -> Approvals: ...

    @property
    def taint(self) -> Taints: ...

    @property
    def feed(self) -> Feed: ...

    @property
    def artifacts(self) -> ArtifactDesk: ...

    @property
    def usage(self) -> Usage: ...

    @property
    def owners(self) -> Owners: ...

    @property
    def acts(self) -> Acts: ...

    @property
    def skills(self) -> Skills: ...

    @property
    def explaining(self) -> Explaining: ...

    @property
    def status(self) -> Status: ...
