"""An engine that does nothing but answer. Owns: the facade's methods over fixed records. Not: any rule of the real one.

Every call is written down in `asked`; `failure` is raised by whatever is called next. Streams come from `Script`s.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from palyra.core.agents import AgentSpec
from palyra.core.errors import NotFound
from palyra.core.events import Data, Event
from palyra.core.events.model import Usage
from palyra.core.events.run import EndReason, MessageUser, RunDone
from palyra.core.events.system import AdminActed
from palyra.core.events.tool import Verdict
from palyra.core.ids import ApprovalId, ArtifactId, GrantId, Principal, RunId, SessionId, StreamId
from palyra.core.projections.rows import SessionRow
from palyra.core.skills import SkillPlace, SkillStatus
from palyra.core.tools import Capability, MissingTool, ToolSpec
from palyra.core.trust import Trust
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
    RunUsage,
    SessionRequest,
    StartedRun,
    TaintRecord,
    UsageQuery,
)
from palyra.engine.api.skills import SkillChange, SkillQuery, SkillRecord
from palyra.engine.hub import Frame, Frames, LiveFrame
from palyra.engine.wakeup import Wakeup
from palyra.ports.processes import ProcessRecord
from palyra.ports.router import ModelCard
from palyra.ports.views import UsageReport, UsageSum

SESSION = SessionId(StreamId("01ARZ3NDEKTSV4RRFFQ69G5FAV"))
RUN = RunId("01ARZ3NDEKTSV4RRFFQ69G5FAW")
APPROVAL = ApprovalId("Z" * 26)
GRANT = GrantId("G" * 26)
ARTIFACT = ArtifactId("ab" * 32)
MODEL = "org/qwen"
TAKEN_MAX = 10  # Frames at once.


def session_row(session_id: str = SESSION) -> SessionRow:
    return SessionRow(
        id=SessionId(StreamId(session_id)),
        owner=Principal("user:owner"),
        agent="default",
        key=None,
        label=None,
        parent_id=None,
        parent_seq=None,
        reset_seq=0,
        compacted_seq=0,
        active_run_id=None,
        is_erased=False,
        created_at_ms=1,
        updated_at_ms=1,
        seq=1,
    )


def run_record(run_id: str = RUN) -> RunRecord:
    return RunRecord(
        id=RunId(run_id),
        session_id=SESSION,
        state="accepted",
        reason=None,
        answer=None,
        error=None,
        usage=RunUsage(input_tokens=0, output_tokens=0, cost_usd=None),
        agent="default",
        origin="http",
        principal="user:owner",
        accepted_seq=1,
        ended_seq=None,
        created_at_ms=1,
        updated_at_ms=1,
    )


def approval_record() -> ApprovalRecord:
    return ApprovalRecord(
        id=APPROVAL,
        kind="tool",
        run_id=RUN,
        session_id=SESSION,
        call_id="c0_x",
        tool="shell.run",
        arguments={"command": "make"},
        status="pending",
        rule="shell_asks",
        policies=(),
        risk="high",
        taint=(),
        digest="0" * 64,
        preview=None,
        options=(),
        created_at_ms=1,
        expires_at_ms=None,
        decided_by=None,
    )


def grant_record() -> GrantRecord:
    return GrantRecord(
        id=GRANT,
        session_id=SESSION,
        approval_id=APPROVAL,
        tool="shell.run",
        scope="session",
        constraints=(),
        principal="user:owner",
        agent="default",
        is_revoked=False,
        created_at_ms=1,
        expires_at_ms=None,
    )


def taint_record() -> TaintRecord:
    return TaintRecord(source="http:example.org", since_seq=7, call_id="c0_x", tool="http.fetch", is_trusted=False)


def skill_record() -> SkillRecord:
    return SkillRecord(
        id="home:tidy",
        name="tidy",
        description="Tidies.",
        place=SkillPlace.HOME,
        root=None,
        trust=Trust.OPERATOR,
        status=SkillStatus.ACTIVE,
        can_open=True,
        sha256="ab" * 32,
        allowed_tools=("fs.read",),
        unknown_tools=(),
        missing_tools=(),
        files=(),
        problem=None,
        notes=(),
    )


def model_info() -> ModelCard:
    return ModelCard(
        name=MODEL,
        provider="local",
        kind="openai-chat",
        id="qwen3:8b",
        window_tokens=32_768,
        routes=("default",),
        is_default=True,
    )


def model_check(name: str) -> ModelCheck:
    usage = Usage(input_tokens=12, output_tokens=1)
    return ModelCheck(
        model=name,
        ok=True,
        code=None,
        message="It answers.",
        first_token_ms=5,
        total_ms=9,
        text="ok",
        usage=usage,
        cost_usd=None,
        run_id=RUN,
        session_id=SESSION,
    )


def event(seq: int, data: Data | None = None) -> Event:
    data = data if data is not None else MessageUser(text=f"line one\nline two of {seq} é")
    return Event(
        seq=seq,
        position=1000 + seq,
        stream=SESSION,
        run_id=RUN,
        type=data.TYPE,
        at_ms=1_700_000_000_000 + seq,
        actor=Principal("user:owner"),
        trust=Trust.OPERATOR,
        data=data,
        hash="ef" * 32,
        salt=None,
        digest="cd" * 32,
    )


def last_event(seq: int) -> Event:
    return event(seq, RunDone(reason=EndReason.FINAL_ANSWER, message=""))


def delta(text: str, offset: int = 0) -> LiveFrame:
    return LiveFrame(SESSION, RUN, "model.delta", {"turn": 1, "offset": offset, "text": text})


class Given:
    """What a test has for a stream; None is its end."""

    def __init__(self) -> None:
        self.items: deque[Frame | Exception | None] = deque()
        self.bell = Wakeup()

    def put_nowait(self, item: Frame | Exception | None) -> None:
        self.items.append(item)
        self.bell.ring()


class Script(Frames):
    """A stream under a test's control: frames are given, and it can be seen whether it was closed."""

    def __init__(self, *frames: Frame, is_over: bool = False) -> None:
        super().__init__()
        self.queue = Given()
        self.closed = asyncio.Event()
        self.given_count = 0
        for frame in frames:
            self.queue.put_nowait(frame)
        if is_over:
            self.queue.put_nowait(None)

    async def take(self) -> Sequence[Frame]:
        self.queue.bell.still()
        if not self.queue.items:
            await self.queue.bell.wait()
        taken: list[Frame] = []
        while self.queue.items and len(taken) < TAKEN_MAX and not self.is_over:
            item = self.queue.items.popleft()
            if isinstance(item, Exception):
                raise item
            self.is_over = item is None
            taken += [item] if item is not None else []
        self.given_count += len(taken)
        return taken

    def wake(self) -> None:
        self.queue.bell.ring()

    def close(self) -> None:
        self.closed.set()


@dataclass
class Notes:
    """What was asked, and what the next call is to fail with."""

    asked: list[tuple[object, ...]] = field(default_factory=list)
    failure: Exception | None = None
    script: Frames = field(default_factory=lambda: Script(event(1), last_event(2), is_over=True))

    def note(self, *call: object) -> None:
        self.asked.append(call)
        if self.failure is not None:
            raise self.failure

    def last(self) -> tuple[object, ...]:
        return self.asked[-1]


@dataclass
class FakeSessions:
    notes: Notes
    rows: tuple[SessionRow, ...] = (session_row(),)
    events: tuple[Event, ...] = tuple(event(seq) for seq in range(1, 8))

    async def resolve(self, principal: Principal, request: SessionRequest) -> SessionRow:
        self.notes.note("resolve", principal, request)
        return session_row()

    async def get(self, principal: Principal, session_id: SessionId) -> SessionRow:
        self.notes.note("get", principal, session_id)
        if session_id != SESSION:
            raise NotFound("session_unknown", "there is no such session")
        return session_row()

    async def list(self, principal: Principal | None, after: str, limit: int) -> tuple[SessionRow, ...]:
        self.notes.note("list", principal, after, limit)
        return tuple(row for row in self.rows if row.id > after)[:limit]

    async def reset(self, principal: Principal, session_id: SessionId) -> SessionRow:
        self.notes.note("reset", principal, session_id)
        return session_row()

    async def label(self, principal: Principal, session_id: SessionId, label: str | None) -> SessionRow:
        self.notes.note("label", principal, session_id, label)
        return session_row()

    async def branch(self, principal: Principal, session_id: SessionId, at_seq: int, label: str | None) -> SessionRow:
        self.notes.note("branch", principal, session_id, at_seq, label)
        return session_row()

    async def delete(self, principal: Principal, session_id: SessionId) -> None:
        self.notes.note("delete", principal, session_id)

    async def tape(self, principal: Principal, session_id: SessionId, after_seq: int, limit: int) -> tuple[Event, ...]:
        self.notes.note("tape", principal, session_id, after_seq, limit)
        return tuple(event for event in self.events if event.seq > after_seq)[:limit]


@dataclass
class FakeRuns:
    notes: Notes

    @property
    def processes(self) -> "FakeProcessDesk":
        return FakeProcessDesk(self.notes)

    async def start(self, principal: Principal, request: RunRequest) -> RunRecord:
        self.notes.note("start", principal, request)
        return run_record()

    async def start_and_follow(self, principal: Principal, request: RunRequest) -> tuple[StartedRun, Frames]:
        self.notes.note("start_and_follow", principal, request)
        return StartedRun(id=RUN, session_id=SESSION), self.notes.script

    async def get(self, principal: Principal, run_id: RunId) -> RunRecord:
        self.notes.note("get", principal, run_id)
        return run_record()

    async def list(self, principal: Principal | None, query: RunsQuery) -> tuple[RunRecord, ...]:
        self.notes.note("list", principal, query)
        return (run_record(),)

    async def send_input(self, principal: Principal, run_id: RunId, text: str) -> RunRecord:
        self.notes.note("send_input", principal, run_id, text)
        return run_record()

    async def cancel(self, principal: Principal, run_id: RunId, *, by: Principal | None = None) -> RunRecord:
        self.notes.note("cancel", principal, run_id)
        return run_record()

    async def follow(self, principal: Principal, run_id: RunId, after_seq: int | None) -> Frames:
        self.notes.note("follow", principal, run_id, after_seq)
        return self.notes.script


@dataclass
class FakeApprovals:
    notes: Notes

    async def list(self, principal: Principal | None, query: ApprovalsQuery) -> tuple[ApprovalRecord, ...]:
        self.notes.note("list", principal, query)
        return (approval_record(),)

    async def get(self, principal: Principal, approval_id: ApprovalId) -> ApprovalRecord:
        self.notes.note("get", principal, approval_id)
        return approval_record()

    async def answer(
        self, principal: Principal, approval_id: ApprovalId, answer: ApprovalAnswer, *, by: Principal | None = None
    ) -> ApprovalRecord:
        self.notes.note("answer", principal, approval_id, answer)
        return approval_record()

    async def grants(self, principal: Principal | None, after: str, limit: int) -> tuple[GrantRecord, ...]:
        self.notes.note("grants", principal, after, limit)
        return (grant_record(),)

    async def revoke(self, principal: Principal, grant_id: GrantId, *, by: Principal | None = None) -> GrantRecord:
        self.notes.note("revoke", principal, grant_id)
        return grant_record()


@dataclass
class FakeTaints:
    notes: Notes

    async def show(self, principal: Principal, session_id: SessionId) -> tuple[TaintRecord, ...]:
        self.notes.note("taint", principal, session_id)
        return (taint_record(),)

    async def trust(
        self, principal: Principal, session_id: SessionId, source: str, reason: str
    ) -> tuple[TaintRecord, ...]:
        self.notes.note("trust", principal, session_id, source, reason)
        return (taint_record(),)

    async def distrust(
        self, principal: Principal, session_id: SessionId, source: str, reason: str
    ) -> tuple[TaintRecord, ...]:
        self.notes.note("distrust", principal, session_id, source, reason)
        return (taint_record(),)


@dataclass
class FakeFeed:
    notes: Notes

    async def session(self, principal: Principal, session_id: SessionId, after_seq: int | None) -> Frames:
        self.notes.note("session", principal, session_id, after_seq)
        return self.notes.script

    async def all(self, principal: Principal | None, after_position: int | None) -> Frames:
        self.notes.note("all", principal, after_position)
        return self.notes.script


@dataclass
class FakeArtifacts:
    notes: Notes
    media_type: str = "text/html"

    async def put(self, principal: Principal, body: bytes, media_type: str) -> ArtifactRecord:
        self.notes.note("put", principal, len(body), media_type)
        return ArtifactRecord(id=ARTIFACT, bytes=len(body), media_type=media_type)

    async def get(self, principal: Principal, artifact_id: ArtifactId) -> tuple[ArtifactRecord, bytes]:
        self.notes.note("get", principal, artifact_id)
        return ArtifactRecord(id=ARTIFACT, bytes=5, media_type=self.media_type), b"bytes"


@dataclass
class FakeProcessDesk:
    notes: Notes

    async def list(self, principal: Principal, run_id: RunId) -> tuple[ProcessRecord, ...]:
        self.notes.note("processes", principal, run_id)
        return (process_record(),)

    async def stop(self, principal: Principal, run_id: RunId, process_id: str) -> ProcessRecord:
        self.notes.note("stop", principal, run_id, process_id)
        return process_record()


def process_record() -> ProcessRecord:
    return ProcessRecord(id="p1", run_id=RUN, session_id=SESSION, command="sleep 9", started_at_ms=1)


@dataclass
class FakeUsage:
    notes: Notes
    sums: tuple[UsageSum, ...] = ()
    total: UsageSum = field(default_factory=lambda: UsageSum(key=""))

    async def report(self, principal: Principal, query: UsageQuery) -> UsageReport:
        self.notes.note("report", principal, query)
        return UsageReport(sums=tuple(found for found in self.sums if found.key > query.after), total=self.total)


@dataclass
class FakeOwners:
    """Everything is the caller's own: nothing is looked up, so nothing is written down."""

    async def of_session(self, principal: Principal, session_id: SessionId) -> Principal | None:
        return principal

    async def of_run(self, principal: Principal, run_id: RunId) -> Principal | None:
        return principal

    async def of_approval(self, principal: Principal, approval_id: ApprovalId) -> Principal | None:
        return principal

    async def of_grant(self, principal: Principal, grant_id: GrantId) -> Principal | None:
        return principal


@dataclass
class FakeActs:
    notes: Notes

    async def record(self, principal: Principal, act: AdminActed) -> None:
        self.notes.note("record", principal, act)


@dataclass
class FakeSkills:
    notes: Notes

    async def list(self, agent: str | None) -> tuple[SkillRecord, ...]:
        self.notes.note("skills", agent)
        return (skill_record(),)

    async def get(self, query: SkillQuery) -> SkillRecord:
        self.notes.note("skill", query)
        return replace(skill_record(), body="Do it.")

    async def change(self, principal: Principal, query: SkillQuery, change: SkillChange) -> SkillRecord:
        self.notes.note("change_skill", principal, query, change)
        return replace(skill_record(), status=change.status)


@dataclass
class FakeExplaining:
    notes: Notes

    async def explain(self, principal: Principal, request: ExplainRequest) -> Explanation:
        self.notes.note("explain", principal, request)
        return Explanation(verdict=Verdict.ASK, rule="network", policies=("network",), reason="It asks.")


@dataclass
class FakeStatus:
    notes: Notes
    is_draining: bool = False
    state: dict[str, str] = field(default_factory=lambda: {"journal": "ok"})

    async def parts(self) -> dict[str, str]:
        self.notes.note("parts")
        return self.state

    async def verify(self) -> dict[str, object]:
        self.notes.note("verify")
        return {"ok": True, "first_bad": None}

    def metrics(self) -> str:
        self.notes.note("metrics")
        return "palyra_up 1\n"

    def agents(self) -> tuple[AgentSpec, ...]:
        self.notes.note("agents")
        return (AgentSpec(name="main"),)

    def default_agent(self) -> str:
        return "main"

    def models(self) -> tuple[ModelCard, ...]:
        self.notes.note("models")
        return (model_info(),)

    async def check_model(self, principal: Principal, name: str) -> ModelCheck:
        self.notes.note("check_model", principal, name)
        return model_check(name)

    def missing_tools(self) -> tuple[MissingTool, ...]:
        return (MissingTool("shell.run", "there is no sandbox here; install bubblewrap"),)

    def tools(self) -> tuple[ToolSpec, ...]:
        self.notes.note("tools")
        capabilities = frozenset({Capability.NETWORK, Capability.FS_READ})
        return (ToolSpec(name="fs.read", description="Reads.", input_schema={}, capabilities=capabilities),)


class FakeEngine:
    def __init__(self) -> None:
        self.notes = Notes()
        self.sessions = FakeSessions(self.notes)
        self.runs = FakeRuns(self.notes)
        self.approvals = FakeApprovals(self.notes)
        self.taint = FakeTaints(self.notes)
        self.feed = FakeFeed(self.notes)
        self.artifacts = FakeArtifacts(self.notes)
        self.usage = FakeUsage(self.notes)
        self.owners = FakeOwners()
        self.acts = FakeActs(self.notes)
        self.skills = FakeSkills(self.notes)
        self.explaining = FakeExplaining(self.notes)
        self.status = FakeStatus(self.notes)
