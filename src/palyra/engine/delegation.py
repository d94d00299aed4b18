"""Delegation: starts the child run of a tool call, and waits for its end.

Owns: starting a child once, following it, telling that it gets on, cancelling it, and its outcome.
Does not own: the rules (core.delegation), the tool, or driving the child (engine.session).
Invariants: the child's ids come from the call's effect_id. So a call that is repeated after a crash finds the same child,
and the child runs exactly once. Nothing ends a parent and leaves its children: a stopped call cancels its child, and the
commit that ends a run queues a job that cancels the rest.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from msgspec.structs import replace

from palyra.core.agents import may_delegate
from palyra.core.budget import left_usd
from palyra.core.context.window import trust_of
from palyra.core.delegation import (
    CHILDREN_MAX,
    DEPTH_MAX,
    accept_child,
    cap_nano_usd,
    child_limits,
    extend_lineage,
    inherited_taint,
    open_child,
    origin_of_answer,
)
from palyra.core.errors import NotFound, PalyraError
from palyra.core.events import Event
from palyra.core.events.run import MessageUser, RunAccepted, RunLimits, RunWaiting
from palyra.core.events.session import SessionCreated
from palyra.core.events.tool import ToolProposed
from palyra.core.ids import RunId, SessionId, agent_principal, derive_child_ids
from palyra.core.jobs.model import Job
from palyra.core.run.state import Run
from palyra.core.run.states import RunState, is_terminal
from palyra.core.taint import decode_taint, labels, trust_of_taint
from palyra.core.trust import Trust, lowest
from palyra.engine.agents import AgentDirectory
from palyra.engine.api.requests import WhenBusy
from palyra.engine.api.run_records import make_record
from palyra.engine.api.runs import RunFrames
from palyra.engine.hub import Frame, Hub
from palyra.engine.jobs.handler import JobDone, JobResult, Report
from palyra.engine.session.commands import CancelRun, HoldCall, StartRun
from palyra.engine.session.pending_commit import SessionState
from palyra.engine.session.session_loader import SessionLoader
from palyra.engine.session.session_loops import SessionLoops
from palyra.engine.spend.ledger import Ledger, spender_of
from palyra.engine.tasks import TaskSupervisor
from palyra.ports.clock import Clock
from palyra.ports.delegation import DelegationOutcome, DelegationRefused, DelegationRequest
from palyra.ports.journal import Journal
from palyra.ports.tools import ToolCallContext
from palyra.ports.views import ProvenanceViews, RunViews

PROGRESS_EVERY_S = 10.0  # Within the 15 s after which a heartbeat looks for progress.
CANCEL_WAIT_S = 2.0  # A disk that takes longer leaves the child to the job that the parent's end queues.


@dataclass(slots=True, kw_only=True)
class Delegations:
    """`limits` are those of any run; a child has no more time than its parent."""

    runs: RunViews
    provenance: ProvenanceViews
    journal: Journal
    hub: Hub
    loops: SessionLoops
    loader: SessionLoader
    agents: AgentDirectory
    ledger: Ledger
    tasks: TaskSupervisor
    clock: Clock
    limits: RunLimits
    progress_every_s: float = PROGRESS_EVERY_S
    _starting: "WeakValueDictionary[RunId, asyncio.Lock]" = field(default_factory=WeakValueDictionary)

    async def perform(
        self, request: DelegationRequest, context: ToolCallContext
    ) -> DelegationOutcome | DelegationRefused:
        session_id, run_id = derive_child_ids(context.run_id, context.effect_id)
        is_over = False
        try:
            if await self.runs.run(run_id, None) is None:
                refused = await self._start(request, context)
                if refused is not None:
                    is_over = True
                    return refused
            await self._wait(session_id, run_id, context)
            is_over = True
        finally:
            if not is_over and not self.tasks.is_closing:
                await self._cancel(session_id, run_id, context)
        return await self._outcome(session_id, run_id)

    async def end_children(self, job: Job, _report: Report) -> JobResult:
        """Cancels what a run that is over left running. Each child that ends does the same for its own."""
        for row in await self.runs.children(RunId(str(job.payload["run_id"])), None):
            if is_terminal(row.state):
                continue
            try:
                await self.loops.post(row.session_id, CancelRun(run_id=row.id, principal=row.principal))
            except NotFound:
                continue  # It ended at the same moment, or was deleted.
        return JobDone()

    async def _start(self, request: DelegationRequest, context: ToolCallContext) -> DelegationRefused | None:
        """Starts the child. One child of a run is started at a time, so that they are counted exactly."""
        lock = self._starting.setdefault(context.run_id, asyncio.Lock())
        async with lock:
            state = self.loops.known_state(context.session_id) or await self.loader.load(context.session_id)
            run = state.active
            if run is None or run.run_id != context.run_id:
                return DelegationRefused("run_not_active", f"Run {context.run_id} is over, so it starts no child.")
            children_count = len(await self.runs.children(run.run_id, None))
            refused = self._refusal(run, request, children_count)
            if refused is not None:
                return refused
            session_id, command = await self._command(state, run, request, context)
            await self.loops.post(session_id, command)
        return None

    def _refusal(self, run: Run, request: DelegationRequest, children_count: int) -> DelegationRefused | None:
        if len(run.lineage) >= DEPTH_MAX:
            message = (
                f"This run is {len(run.lineage)} deep, and children nest at most {DEPTH_MAX} deep. Do it yourself."
            )
            return DelegationRefused("delegation_too_deep", message)
        if children_count >= CHILDREN_MAX:
            message = (
                f"This run has had {children_count} children, and {CHILDREN_MAX} is the most. Do the rest yourself."
            )
            return DelegationRefused("delegation_too_many", message)
        agent = request.agent or run.agent
        if agent not in self.agents.agents:
            return DelegationRefused("agent_unknown", f"There is no agent {agent!r}. {self._choice(run)}")
        if not may_delegate(self.agents.of_run(run.agent), agent):
            message = f"The agent {run.agent} may not delegate to {agent!r}. {self._choice(run)}"
            return DelegationRefused("agent_not_allowed", message)
        return None

    def _choice(self, run: Run) -> str:
        parent = self.agents.of_run(run.agent)
        names = sorted(name for name in self.agents.agents if may_delegate(parent, name))
        return f"It can be one of: {', '.join(names)}."

    async def _command(
        self, state: SessionState, run: Run, request: DelegationRequest, context: ToolCallContext
    ) -> tuple[SessionId, StartRun]:
        session_id, run_id = derive_child_ids(run.run_id, context.effect_id)
        agent = request.agent or run.agent
        lineage = extend_lineage(run, state.session_id, self.agents.of_run(run.agent))
        now_ms = self.clock.now_ms()
        accepted = accept_child(run, lineage, agent, child_limits(self.limits, run, now_ms), state.doubts)
        spender = spender_of(run, state.session_id)
        left = left_usd(await self.ledger.standings(spender, now_ms, ()))
        return session_id, StartRun(
            run_id=run_id,
            principal=run.principal,
            trust=lowest((run.trust, trust_of(state.window), trust_of_taint(state.taint))),
            accepted=replace(accepted, budget_nano_usd=cap_nano_usd(request.budget_usd, left)),
            message=MessageUser(text=request.prompt),
            when_busy=WhenBusy.REJECT,
            opening=open_child(state.owner, agent, state.session_id, inherited_taint(state.taint, run.trust)),
            speaker=agent_principal(run.agent),
        )

    async def _wait(self, session_id: SessionId, run_id: RunId, context: ToolCallContext) -> None:
        """Waits for the child's end. Live output of the call tells what it does, so that the parent gets on too."""
        frames = RunFrames(self.hub.attach(session_id).follow(0), run_id)
        progress = _Progress(context, self.progress_every_s)
        is_held = False
        taking = asyncio.ensure_future(frames.take())
        try:
            while not frames.is_over:
                done, _ = await asyncio.wait({taking}, timeout=progress.rest_s)
                if done:
                    progress.see(taking.result())
                    taking = asyncio.ensure_future(frames.take())
                is_held = await self._hold(session_id, run_id, context, is_held)
                progress.tell()
        finally:
            taking.cancel()
            frames.close()

    async def _hold(self, session_id: SessionId, run_id: RunId, context: ToolCallContext, is_held: bool) -> bool:
        """Records on the parent's tape whether the child's time stands still. Returns what is recorded now."""
        is_paused = await self._is_paused(session_id, run_id)
        if is_paused is not is_held:
            command = HoldCall(run_id=context.run_id, effect_id=context.effect_id, is_held=is_paused)
            try:
                await self.loops.post(context.session_id, command)
            except PalyraError:
                return is_held  # The next round tries again.
        return is_paused

    async def _is_paused(self, session_id: SessionId, run_id: RunId) -> bool:
        """A child that waits for a person is paused, and so is one whose own children do. A queued one is not."""
        state = self.loops.known_state(session_id)
        active = state.active if state is not None else None
        if active is not None and active.run_id == run_id:
            return active.loop.active_since_ms is None
        row = await self.runs.run(run_id, None)
        return row is not None and row.state is RunState.WAITING

    async def _cancel(self, session_id: SessionId, run_id: RunId, context: ToolCallContext) -> None:
        """Cancels the child, and waits until that is durable: then no crash can bring it back."""
        posted = self.loops.post(session_id, CancelRun(run_id=run_id, principal=context.principal))
        await asyncio.wait({posted}, timeout=CANCEL_WAIT_S)

    async def _outcome(self, session_id: SessionId, run_id: RunId) -> DelegationOutcome | DelegationRefused:
        row = await self.runs.run(run_id, None)
        record = await make_record(self.journal, row) if row is not None else None
        if row is None or record is None or (row.state is RunState.DONE and record.answer is None):
            return DelegationRefused("child_gone", f"The session of the delegated run {run_id} was deleted.")
        tainted = await self.provenance.taint(session_id)
        taint = decode_taint(tainted.sources) if tainted is not None else ()
        first, *_ = await self.journal.read(session_id, 0, 1)
        began = first.data.taint if isinstance(first.data, SessionCreated) else ()
        ended = await self.journal.read(session_id, (row.answer_seq or row.ended_seq or 1) - 1, 1)
        said = ended[0].trust if ended and row.answer_seq is not None else Trust.SYSTEM
        trust, source = origin_of_answer(run_id, taint, said, labels(began))
        return DelegationOutcome(
            run_id=run_id,
            session_id=session_id,
            answer=record.answer if row.state is RunState.DONE else None,
            reason=row.reason.value if row.reason is not None else "",
            message=record.error.message if record.error is not None else "",
            trust=trust,
            source=source,
        )


class _Progress:
    """Tells the parent's followers what a child does, and that it does something.

    A child that waits for a person, or for its turn, counts as one that gets on.
    """

    def __init__(self, context: ToolCallContext, every_s: float) -> None:
        self._context = context
        self._every_s = every_s
        self._clock = asyncio.get_running_loop().time
        self._due_s = self._clock() + every_s
        self._has_grown = False
        self._is_waiting = True  # Until it begins.

    @property
    def rest_s(self) -> float:
        return max(0.0, self._due_s - self._clock())

    def see(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self._has_grown = True
            if isinstance(frame, Event):
                self._is_waiting = isinstance(frame.data, RunWaiting | RunAccepted | MessageUser)
                self._say(frame)

    def tell(self) -> None:
        if self.rest_s > 0:
            return
        self._due_s = self._clock() + self._every_s
        if self._has_grown or self._is_waiting:
            self._context.emit("stdout", ".\n")  # Short: live output is kept while the call runs, maybe for days.
        self._has_grown = False

    def _say(self, event: Event) -> None:
        match event.data:
            case ToolProposed(tool=tool):
                self._emit(f"calls {tool}")
            case RunWaiting():
                self._emit("waits for a person; see palyra approvals list")
            case _:
                return

    def _emit(self, words: str) -> None:
        self._context.emit("stdout", f"child {words}\n")
