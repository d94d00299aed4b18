"""The loop of one session: the only place that appends to its tape.

Owns: the order in which commands reach a session, its commits, and what follows once they are durable.
Does not own: rules (core), building a commit (commit_builder), SQL.
Invariants: commands that wait share one commit. Effects and replies come after the commit is durable, never before
(L1, L3). A loop holds nothing that the tape does not, so it can be dropped whenever nothing is under way. A run that
waits for a person costs no coroutine (L7).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from msgspec.structs import replace

from palyra.core.errors import Corrupt, PalyraError, Unavailable
from palyra.core.events import Event
from palyra.core.events.model import RoutePlanned
from palyra.core.events.session import SessionBranched, SessionRestored
from palyra.core.events.tool import ApprovalResolved
from palyra.core.ids import GrantId, RunId, SessionId, derive_grant_id
from palyra.core.jobs.model import wakes_worker
from palyra.core.run.deadlines import next_deadline_ms
from palyra.core.run.decide import wanted
from palyra.core.run.state import TurnPhase
from palyra.core.run.states import RunState
from palyra.core.writes import EnqueueJob
from palyra.engine.hub import Hub
from palyra.engine.session.command_checks import as_conflict
from palyra.engine.session.commands import (
    CheckDue,
    Command,
    EffectReport,
    Envelope,
    OpenSession,
    ReconsiderApprovals,
    ResumeSession,
    StartRun,
)
from palyra.engine.session.commit_builder import CommitBuilder
from palyra.engine.session.effect_runner import EffectParts, EffectRunner
from palyra.engine.session.pending_commit import PendingCommit, SessionState
from palyra.engine.session.session_loader import SessionLoader
from palyra.engine.session.slots import slot_depth
from palyra.engine.session.unrecordable import unrecordable
from palyra.engine.spend.ledger import Ledger, Turn
from palyra.engine.tasks import TaskSupervisor
from palyra.ports.journal import Append, Journal

COMMANDS_A_COMMIT_MAX = 64
ATTEMPTS_MAX = 3
SUBSTITUTES_MAX = 2  # An outcome without its text, then one without its spend.
STALE_CODES = frozenset({"seq_stale", "journal_moved"})  # The tape has grown: the loop reads and decides again.
# After these events the live text is recorded, or nobody waits for it any more.
ENDS_LIVE_TYPES = frozenset({"model.output", "model.failed", "run.done", "run.failed", "run.cancelled"})
JOURNAL_CLOSED = "journal_closed"  # It does not open again in this process; the next start resumes the work.
ENDED_TYPES = frozenset({"run.done", "run.failed", "run.cancelled"})
RETRY_DELAY_S = 0.25
RETRY_DELAY_MAX_S = 5.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopParts:
    """What every loop works with.

    `end_processes` ends the background processes of a run that is over. `wake_jobs` tells that a job was queued.
    """

    journal: Journal
    ledger: Ledger
    hub: Hub
    tasks: TaskSupervisor
    loader: SessionLoader
    builder: CommitBuilder
    effects: EffectParts
    end_processes: Callable[[RunId], Coroutine[Any, Any, None]]
    wake_jobs: Callable[[], None]


class LoopSignals(Protocol):
    """What a loop reports to the owner of all loops."""

    def changed(self, loop: "SessionLoop", /) -> None: ...

    def idle(self, loop: "SessionLoop", /) -> None: ...

    def granted(self, grant_id: GrantId, /) -> None: ...


class SessionLoop:
    def __init__(self, parts: LoopParts, session_id: SessionId, signals: LoopSignals) -> None:
        self.session_id = session_id
        self._parts = parts
        self._signals = signals
        self._state: SessionState | None = None
        self._waiting: deque[Envelope] = deque()
        self._task: asyncio.Task[None] | None = None
        self._effects = EffectRunner(parts.effects, session_id, self.report)
        self._retry_delay_s = RETRY_DELAY_S
        self._wakeup = asyncio.Event()
        self._serving: list[Envelope] = []

    def post(self, command: Command) -> "asyncio.Future[RunId | None]":
        """The reply comes once the command is durable; a refused command gives its error."""
        envelope = Envelope(command, asyncio.get_running_loop().create_future())
        self._waiting.append(envelope)
        self._wake()
        return envelope.reply

    def report(self, report: EffectReport) -> None:
        self.post(report)

    @property
    def state(self) -> SessionState | None:
        return self._state

    @property
    def is_idle(self) -> bool:
        """Nothing is under way, and the tape holds everything that is known."""
        return not self._waiting and self._task is None and not self._effects.is_busy

    @property
    def deadline_ms(self) -> int | None:
        active = self._state.active if self._state is not None else None
        return next_deadline_ms(active) if active is not None else None

    def tell_ledger(self) -> None:
        """Tells the ledger which model call runs, and whether one is wanted.

        Without a state the last message stays valid.
        """
        if self._state is None:
            return
        active = self._state.active
        phase = active.phase if active is not None and active.state is RunState.IN_PROGRESS else None
        calling = (active.run_id, active.turn) if active is not None and phase is TurnPhase.CALLING else None
        self._parts.ledger.follow(self.session_id, calling, is_planning=phase is TurnPhase.PLANNING)

    @property
    def is_running(self) -> bool:
        active = self._state.active if self._state is not None else None
        return active is not None and active.state is RunState.IN_PROGRESS

    @property
    def depth(self) -> int:
        """Whose slots the active run takes."""
        active = self._state.active if self._state is not None else None
        return slot_depth(active) if active is not None else 0

    @property
    def origin(self) -> str:
        """Where the active run came from."""
        active = self._state.active if self._state is not None else None
        return active.origin if active is not None else ""

    def give_up_effects(self) -> int:
        """Stops what the run waits for. The outcomes come as reports, and the run goes on from them."""
        return self._effects.give_up()

    def _wake(self) -> None:
        if self._task is not None:
            self._wakeup.set()
        elif not self._parts.tasks.is_closing:
            self._task = self._parts.tasks.spawn(self._work(), f"session {self.session_id}")

    async def _work(self) -> None:
        """Serves commands. The loop ends when no command waits and no effect is running."""
        try:
            while self._waiting or self._effects.is_busy:
                self._wakeup.clear()
                envelopes = [self._waiting.popleft() for _ in range(min(len(self._waiting), COMMANDS_A_COMMIT_MAX))]
                if envelopes:
                    await self._serve(envelopes)
                else:
                    await self._wakeup.wait()
        finally:
            self._task = None
            for envelope in self._serving:
                # Only a bug ends the loop in the middle of a command; the log has it. A run still gets its outcome.
                message = "the command could not be carried out; the daemon's log says why"
                failure = Unavailable("session_loop_failed", message)
                # A daemon that stops leaves the outcome to the next start.
                envelope.fail(failure) if self._parts.tasks.is_closing else self._refuse(envelope, failure)
            self._serving = []
            if self._waiting:
                self._wake()
            else:
                self._signals.idle(self)

    async def _serve(self, envelopes: list[Envelope]) -> None:
        """Serves all commands in one commit.

        If that cannot be recorded, it serves them one by one, so that only one fails.
        """
        self._serving = envelopes
        error = await self._serve_together(envelopes)
        if error is not None and len(envelopes) > 1:
            for envelope in envelopes:
                self._serving = [envelope]
                refusal = await self._serve_together([envelope])
                if refusal is not None:
                    self._refuse(envelope, refusal)
        elif error is not None:
            self._refuse(envelopes[0], error)
        self._serving = []

    async def _serve_together(self, envelopes: list[Envelope]) -> PalyraError | None:
        """Returns the error of a commit that can never succeed as it is, or None once every command is served."""
        try:
            state = self._state or await self._load(envelopes)
        except Unavailable as error:
            await self._recover(envelopes, error)
            return None
        except PalyraError as error:
            if not self._effects.is_busy:
                # A run whose begin was not recorded may wait for room in a budget, and everybody else behind it.
                self._parts.ledger.follow(self.session_id, None, is_planning=False)
            for envelope in envelopes:
                self._refuse(envelope, error)
            return None
        pending = PendingCommit(state=state)
        answered: list[tuple[Envelope, RunId | None]] = []
        for envelope in envelopes:
            try:
                pending, reply = await self._parts.builder.add(pending, envelope.command)
            except PalyraError as error:
                self._refuse(envelope, as_conflict(error))
            else:
                answered.append((envelope, reply))
        return await self._commit(self._parts.builder.with_heartbeats(state, pending), answered)

    async def _load(self, envelopes: list[Envelope]) -> SessionState:
        """Returns the session's state. A session that begins with these commands has no tape yet."""
        command = envelopes[0].command
        opening = command.opening if isinstance(command, StartRun | OpenSession) else None
        if isinstance(opening, SessionBranched | SessionRestored):
            window = await self._parts.loader.inherited_window(opening.parent)
            return SessionState(session_id=self.session_id, owner=opening.owner, agent=opening.agent, window=window)
        if opening is not None:
            return SessionState(session_id=self.session_id, owner=opening.owner, agent=opening.agent)
        return await self._parts.loader.load(self.session_id)

    async def _commit(
        self, pending: PendingCommit, answered: list[tuple[Envelope, RunId | None]]
    ) -> PalyraError | None:
        if not pending.drafts and not pending.writes:
            self._state = pending.state
            self._settle(answered)
            self._signals.changed(self)
            return None
        append = Append(self.session_id, pending.state.head_seq, pending.drafts)
        try:
            async with self._parts.ledger.recording(pending.spends):
                events = await self._parts.journal.commit((append,), pending.writes)
        except PalyraError as error:
            self._parts.ledger.release(self.session_id, _planned(pending))
            return await self._not_committed([envelope for envelope, _ in answered], error)
        self._retry_delay_s = RETRY_DELAY_S
        state = self._state = replace(pending.state, head_seq=pending.state.head_seq + len(events))
        # Effects start first: a person waits for the model's first word, and publishing would delay it.
        self._effects.start(pending.effects, state)
        self._tell(events)
        if any(isinstance(write, EnqueueJob) and wakes_worker(write.job) for write in pending.writes):
            self._parts.wake_jobs()
        self._settle(answered)
        return None

    async def _not_committed(self, envelopes: list[Envelope], error: PalyraError) -> PalyraError | None:
        """Nothing was recorded. The state may be out of date, and the slot it took is free again."""
        self._state = None
        self._signals.changed(self)
        if isinstance(error, Unavailable) or error.code in STALE_CODES:
            await self._recover(envelopes, error)
            return None
        return error

    def _tell(self, events: tuple[Event, ...]) -> None:
        """Publishes what is recorded now."""
        if not ENDS_LIVE_TYPES.isdisjoint([event.type for event in events]):
            self._parts.hub.end_live(self.session_id)
        self._parts.hub.publish(events)
        self._signals.changed(self)
        for event in events:
            if isinstance(event.data, ApprovalResolved) and (event.data.grant or event.data.refusal):
                self._signals.granted(derive_grant_id(event.data.approval_id))
            if event.type in ENDED_TYPES and event.run_id is not None:
                self._parts.tasks.spawn(self._parts.end_processes(event.run_id), f"end of {event.run_id}")

    def _settle(self, answered: list[tuple[Envelope, RunId | None]]) -> None:
        for envelope, reply in answered:
            envelope.settle(reply)

    async def _recover(self, envelopes: list[Envelope], error: PalyraError) -> None:
        """Retries effect reports and due timers until they are recorded; a person gets the failure at once."""
        again: list[Envelope] = []
        for envelope in envelopes:
            envelope.attempts += 1
            is_stale = error.code in STALE_CODES and envelope.attempts < ATTEMPTS_MAX
            is_owed = isinstance(
                envelope.command, EffectReport | CheckDue | ResumeSession | ReconsiderApprovals
            ) and isinstance(error, Unavailable)
            if is_stale or (is_owed and error.code != JOURNAL_CLOSED):
                again.append(envelope)
            else:
                envelope.fail(error)
        self._waiting.extendleft(reversed(again))
        if again and isinstance(error, Unavailable):
            log.warning("waits_for_disk", session_id=self.session_id, code=error.code)
            await asyncio.sleep(self._retry_delay_s)
            self._retry_delay_s = min(2 * self._retry_delay_s, RETRY_DELAY_MAX_S)

    def _refuse(self, envelope: Envelope, error: PalyraError) -> None:
        """Refuses a command.

        A report whose effect is still wanted is replaced by a smaller one, or its run would wait for ever.
        """
        if isinstance(error, Corrupt):
            log.error("session_corrupt", session_id=self.session_id, code=error.code, message=error.message)
        command = envelope.command
        if isinstance(command, EffectReport) and self._is_awaited(command):
            log.error("outcome_unrecordable", session_id=self.session_id, run_id=command.run_id, code=error.code)
            self.post(unrecordable(command, error))
        envelope.fail(error)

    def _is_awaited(self, report: EffectReport) -> bool:
        if report.substitutes_count >= SUBSTITUTES_MAX:
            return False
        run = self._state.active if self._state is not None else None
        return self._state is None or (run is not None and run.run_id == report.run_id and report.effect in wanted(run))


def _planned(pending: PendingCommit) -> tuple[Turn, ...]:
    """Returns the turns that the commit would have begun."""
    plans = [(draft.run_id, draft.data) for draft in pending.drafts if isinstance(draft.data, RoutePlanned)]
    return tuple((run_id, plan.turn) for run_id, plan in plans if run_id is not None)
