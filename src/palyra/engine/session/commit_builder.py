"""Builds the commit for one session: commands in, events out.

Owns: turning commands into facts, calling `core.run.decide` on them, and adding verdicts and plans until nothing is due.
Does not own: rules (core.run), answers to questions (answer_builder), the transaction (session_loop), effects outside
the process (effect_runner).
Invariant: an event that allows an effect is in the commit before the effect starts (L1).
"""

from dataclasses import dataclass
from typing import assert_never

from msgspec.structs import replace

from palyra.core.attachments import lowest_trust
from palyra.core.compaction.exchanges import exchanges_of, plan_by_rules
from palyra.core.compaction.record import event_of
from palyra.core.context.layers import has_older_part, protected_place
from palyra.core.delegation import end_children_job
from palyra.core.errors import Conflict, Invalid, NotFound, PalyraError, Unavailable
from palyra.core.events import Data, Draft
from palyra.core.events.model import ContextAssembled
from palyra.core.events.run import (
    CancelRequested,
    EndReason,
    MessageUser,
    ResumeCause,
    RunAccepted,
    RunResumed,
    RunStarted,
)
from palyra.core.events.session import SessionCheckpointed, SessionReset, SourceDistrusted, SourceTrusted
from palyra.core.events.tool import ToolHeld
from palyra.core.ids import NodeId, Principal, RunId
from palyra.core.jobs.model import NewJob
from palyra.core.run.deadlines import overdue
from palyra.core.run.decide import Record, decide_all, wanted
from palyra.core.run.effects import PlanRoute, is_inert
from palyra.core.run.state import Run, calls_in_flight
from palyra.core.run.states import RunState, is_terminal
from palyra.core.service_runs import refuse_service
from palyra.core.taint import MANY, find_source
from palyra.core.trust import Trust
from palyra.core.writes import ClearHeartbeat, EnqueueJob, EraseSecrets, SetHeartbeat, Write
from palyra.engine.api.requests import WhenBusy
from palyra.engine.new_ids import IdSource
from palyra.engine.session.answer_builder import AnswerBuilder
from palyra.engine.session.attachments import link_attached
from palyra.engine.session.commands import (
    AnswerQuestion,
    CancelRun,
    CheckDue,
    Command,
    CompactSession,
    EffectReport,
    HoldCall,
    OpenSession,
    ReconsiderApprovals,
    RecordSessionEvent,
    ResumeSession,
    SendInput,
    StartRun,
)
from palyra.engine.session.drafts import engine_draft
from palyra.engine.session.effect_runner import EffectParts
from palyra.engine.session.event_redactor import EventRedactor
from palyra.engine.session.pending_commit import (
    PendingCommit,
    SessionState,
    add_drafts,
    add_record,
    find_run,
    remember_doubts,
    running_run,
    spends_in,
)
from palyra.engine.session.pins import require_pin, unpin_all
from palyra.engine.session.slots import RunSlots
from palyra.engine.spend.ledger import Ledger
from palyra.ports.clock import Clock

COMPACTION = Principal("system:compaction")
COMPACTION_KIND = "compaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBuilder:
    node: NodeId
    ids: IdSource
    clock: Clock
    redactor: EventRedactor
    effects: EffectParts
    answers: AnswerBuilder
    ledger: Ledger
    slots: RunSlots
    runs_queued_max: int

    async def add(self, pending: PendingCommit, command: Command) -> tuple[PendingCommit, RunId | None]:
        """Returns the commit with one more command, and the run that the command is about."""
        _require_not_service(pending.state, command)
        match command:
            case StartRun():
                return await self._start_run(pending, command)
            case OpenSession(principal=principal, opening=opening):
                return self._record(pending, RecordSessionEvent(principal=principal, data=opening)), None
            case SendInput():
                return await self._send_input(pending, command), command.run_id
            case CancelRun():
                return await self._cancel(pending, command), command.run_id
            case AnswerQuestion():
                return await self._answer(pending, command), command.run.id
            case RecordSessionEvent():
                return self._record(pending, command), None
            case CompactSession():
                return self._compact(pending, command), None
            case ReconsiderApprovals():
                return await self._reconsider(pending), None
            case EffectReport():
                return await self._report(pending, command), command.run_id
            case HoldCall():
                return await self._hold(pending, command), command.run_id
            case CheckDue():
                return await self._check_due(pending), None
            case ResumeSession():
                return await self._resume(pending), None
            case _:
                assert_never(command)

    def with_heartbeats(self, before: SessionState, pending: PendingCommit) -> PendingCommit:
        """Adds what the whole commit does to heartbeats: a run has one exactly while it is in progress."""
        was, now = running_run(before), running_run(pending.state)
        if was == now:
            return pending
        cleared: tuple[Write, ...] = () if was is None else (ClearHeartbeat(was),)
        begun: tuple[Write, ...] = () if now is None else (SetHeartbeat(now, self.node, self.clock.now_ms()),)
        return replace(pending, writes=(*pending.writes, *cleared, *begun))

    async def _start_run(self, pending: PendingCommit, command: StartRun) -> tuple[PendingCommit, RunId]:
        active = pending.state.active
        same = _same_run(pending, command)
        if same is not None:
            return pending, same
        if active is not None and command.when_busy is WhenBusy.STEER:
            message = replace(command.message, idempotency_key=command.accepted.idempotency_key)
            say = SendInput(run_id=active.run_id, principal=command.principal, trust=command.trust, message=message)
            return await self._send_input(pending, say), active.run_id
        self._require_room(pending.state, command)
        if command.opening is not None:
            opening = RecordSessionEvent(principal=command.principal, data=command.opening)
            pending = self._record(pending, opening)
        pending = link_attached(pending, command, self.clock.now_ms())
        accepted, said = self._said(command.accepted, command), self._said(command.message, command)
        said = replace(said, actor=command.speaker or command.principal)
        return await self._advance(pending, None, (accepted, said)), command.run_id

    async def _send_input(self, pending: PendingCommit, command: SendInput) -> PendingCommit:
        run = find_run(pending.state, command.run_id)
        if command.message.idempotency_key is not None and command.message.idempotency_key in run.input_keys:
            return pending
        pending = link_attached(pending, command, self.clock.now_ms())
        return await self._advance(pending, run, (self._said(command.message, command),))

    async def _cancel(self, pending: PendingCommit, command: CancelRun) -> PendingCommit:
        run = find_run(pending.state, command.run_id)
        if run.ending is not None:
            return pending
        data = CancelRequested(reason=EndReason.CANCELLED, message=command.message)
        fact = Draft(
            data=data, actor=command.principal, trust=Trust.SYSTEM, at_ms=self.clock.now_ms(), run_id=run.run_id
        )
        return await self._advance(pending, run, (fact,))

    async def _answer(self, pending: PendingCommit, command: AnswerQuestion) -> PendingCommit:
        run, fact = await self.answers.answer(pending.state, command)
        if not is_terminal(run.state):
            return await self._advance(pending, run, (fact,))
        _, (record, *_) = decide_all(run, (fact,))
        drafts = record.drafts if isinstance(record, Record) else ()
        doubts = pending.state.doubts - {command.request.digest}
        return add_drafts(replace(pending, state=replace(pending.state, doubts=doubts)), drafts)

    async def _reconsider(self, pending: PendingCommit) -> PendingCommit:
        """Judges open questions again in the present context. A grant that covers one fully answers it."""
        for question in pending.state.active.questions if pending.state.active is not None else ():
            run = pending.state.active
            if run is not None and question in run.questions:
                facts = await self.answers.by_grant(pending, run, question)
                pending = await self._advance(pending, run, facts) if facts else pending
        return pending

    async def _report(self, pending: PendingCommit, command: EffectReport) -> PendingCommit:
        run = find_run(pending.state, command.run_id)
        return await self._advance(replace(pending, writes=(*pending.writes, *command.writes)), run, command.drafts)

    async def _hold(self, pending: PendingCommit, command: HoldCall) -> PendingCommit:
        """Records that a running call is held or let go. One that is so already, or has ended, changes nothing."""
        run = find_run(pending.state, command.run_id)
        for call in calls_in_flight(run):
            if call.effect_id == command.effect_id and call.is_held is not command.is_held:
                held = ToolHeld(call_id=call.call_id, is_held=command.is_held)
                return await self._advance(pending, run, (engine_draft(held, run.run_id, self.clock.now_ms()),))
        return pending

    async def _check_due(self, pending: PendingCommit) -> PendingCommit:
        run = pending.state.active
        facts = overdue(run, self.clock.now_ms()) if run is not None else ()
        if run is not None and not facts:
            # A plan that had to wait for room in a budget is requested again.
            plans = [effect for effect in wanted(run) if isinstance(effect, PlanRoute)]
            facts, _ = await self.effects.judge_and_plan(pending, run, plans)
        if run is not None and facts:
            return await self._advance(pending, run, facts)
        return await self._begin_next(pending)

    async def _resume(self, pending: PendingCommit) -> PendingCommit:
        """Records that nothing is in flight.

        Deadlines come after it, because time without a daemon is no active time.
        """
        run = pending.state.active
        if run is not None and run.state is RunState.IN_PROGRESS:
            fact = engine_draft(RunResumed(cause=ResumeCause.RESTART), run.run_id, self.clock.now_ms())
            heartbeat = SetHeartbeat(run.run_id, self.node, self.clock.now_ms())
            pending = replace(pending, writes=(*pending.writes, heartbeat))
            pending = await self._advance(pending, run, (fact,))
        return await self._check_due(pending)

    def _record(self, pending: PendingCommit, command: RecordSessionEvent) -> PendingCommit:
        """Adds an event of the session itself, outside any run."""
        draft, writes = self.redactor.clean(
            Draft(data=command.data, actor=command.principal, trust=command.trust, at_ms=self.clock.now_ms())
        )
        state = pending.state
        require_pin(state, command.data)
        if isinstance(command.data, SourceTrusted | SourceDistrusted) and not _changes_trust(state, command.data):
            return pending
        if isinstance(command.data, SessionReset):
            if state.active is not None or state.queued:
                raise Conflict("session_busy", "the session has unfinished runs; cancel them or wait, then reset")
            pending = add_drafts(pending, unpin_all(pending.state, draft))
            state = replace(pending.state, reset_seq=state.head_seq + len(pending.drafts) + 1)
        return add_drafts(replace(pending, state=state, writes=(*pending.writes, *writes, *command.writes)), (draft,))

    def _compact(self, pending: PendingCommit, command: CompactSession) -> PendingCommit:
        """Records a compaction, if what it compacts is still what the session has before its protected part."""
        window, compaction = pending.state.window, command.compaction
        done_place = window.summary.to_place if window.summary is not None else 0
        if not done_place < compaction.to_place < protected_place(window):
            raise Conflict("compaction_stale", "the session has changed since the compaction was planned; try again")
        compacted = event_of(compaction, pending.state.session_id, window.base, command.cause)
        before = SessionCheckpointed(
            checkpoint_id=compacted.checkpoint_id,
            at_seq=pending.state.head_seq + len(pending.drafts),
            reason="compaction",
        )
        for data, trust in ((before, Trust.SYSTEM), (compacted, compaction.trust)):
            draft = Draft(data=data, actor=command.principal, trust=trust, at_ms=self.clock.now_ms())
            cleaned, writes = self.redactor.clean(draft)
            pending = add_drafts(replace(pending, writes=(*pending.writes, *writes)), (cleaned,))
        return pending

    async def _make_room(self, pending: PendingCommit, run: Run, facts: tuple[Draft, ...]) -> PendingCommit:
        """Compacts by the rules alone when a context does not fit: the run cannot wait for a model's summary."""
        is_wanted = any(
            isinstance(fact.data, ContextAssembled) and (fact.data.is_over or run.wants_room) for fact in facts
        )
        window = pending.state.window
        if not is_wanted or not has_older_part(window):
            return pending
        place = protected_place(window)
        exchanges = exchanges_of(item for item in window.items if item.place < place)
        room_chars = self.effects.assembler.room_chars(run.agent, run.model)
        plan = replace(plan_by_rules(window, exchanges, room_chars), to_place=place - 1)
        return self._compact(pending, CompactSession(principal=COMPACTION, compaction=plan, cause="over"))

    async def _advance(self, pending: PendingCommit, run: Run | None, facts: tuple[Draft, ...]) -> PendingCommit:
        """Adds facts, then the results of judging and planning, until only outside effects are left."""
        while facts:
            cleaned = [self.redactor.clean(fact) for fact in facts]
            writes = tuple(write for _, extra in cleaned for write in extra)
            run, (record, *effects) = decide_all(run, tuple(draft for draft, _ in cleaned))
            assert isinstance(record, Record)
            outgoing = tuple(effect for effect in effects if not isinstance(effect, Record) and not is_inert(effect))
            pending = add_record(replace(pending, writes=(*pending.writes, *writes)), record, outgoing, run)
            pending = remember_doubts(self._count_spend(pending, record, run), record)
            facts, sealed = await self.effects.judge_and_plan(pending, run, effects)
            roomier = await self._make_room(pending, run, facts)
            if roomier is not pending:
                pending = roomier
                facts, sealed = await self.effects.judge_and_plan(pending, run, effects)
            elif run.wants_room:
                facts = tuple(_too_long(fact) for fact in facts)
            pending = self._queue_compaction(replace(pending, writes=(*pending.writes, *sealed)), facts)
        if run is not None and is_terminal(run.state):
            pending = replace(pending, writes=(*pending.writes, *self._after_end(run, pending.state)))
        return await self._begin_next(pending)

    def _after_end(self, run: Run, state: SessionState) -> tuple[Write, ...]:
        """Returns what the end of a run leaves to do. The job survives a crash, so no child outlives its parent."""
        if not run.has_children:
            return (EraseSecrets(run.run_id),)
        job = end_children_job(run.run_id, state.owner, state.session_id, self.clock.now_ms())
        return EraseSecrets(run.run_id), EnqueueJob(job)

    def _queue_compaction(self, pending: PendingCommit, facts: tuple[Draft, ...]) -> PendingCommit:
        """Queues the compaction that a context says is due. A session has one such job at most."""
        if not any(isinstance(fact.data, ContextAssembled) and fact.data.is_compaction_due for fact in facts):
            return pending
        state, now_ms = pending.state, self.clock.now_ms()
        job = NewJob(
            id=self.ids.job_id(),
            kind=COMPACTION_KIND,
            principal=state.owner,
            payload={"session_id": state.session_id},
            dedupe_key=state.session_id,
            session_id=state.session_id,
            not_before_ms=now_ms,
            created_at_ms=now_ms,
        )
        return replace(pending, writes=(*pending.writes, EnqueueJob(job)))

    async def _begin_next(self, pending: PendingCommit) -> PendingCommit:
        state = pending.state
        if state.active is not None or not state.queued:
            return pending
        run = state.queued[0]
        if not self.slots.has_room(state.session_id, len(run.lineage)):
            return pending
        fact = engine_draft(RunStarted(), run.run_id, self.clock.now_ms())
        return await self._advance(pending, run, (fact,))

    def _require_room(self, state: SessionState, command: StartRun) -> None:
        if state.active is None and not state.queued:
            return
        if command.when_busy is WhenBusy.REJECT:
            raise Conflict("session_busy", "the session is busy with another run; queue, steer, or wait")
        if len(state.queued) >= self.runs_queued_max:
            raise Unavailable("queue_full", f"{len(state.queued)} runs wait in this session already; try later")

    def _count_spend(self, pending: PendingCommit, record: Record, run: Run) -> PendingCommit:
        spends = spends_in(record, run, pending.state)
        for spend in spends:
            self.ledger.foresee(spend)
        return replace(pending, spends=(*pending.spends, *spends)) if spends else pending

    def _said(self, data: Data, command: StartRun | SendInput) -> Draft:
        now_ms, trust = self.clock.now_ms(), command.trust
        if isinstance(data, MessageUser) and (least := lowest_trust(data, trust)) is not trust:
            data, trust = replace(data, sender_trust=trust), least
        return Draft(data=data, actor=command.principal, trust=trust, at_ms=now_ms, run_id=command.run_id)


def _require_not_service(state: SessionState, command: Command) -> None:
    """The session of a service run is the daemon's: it has the one run it began with."""
    match command:
        case StartRun(opening=None) | SendInput() | RecordSessionEvent():
            refuse_service(state.session_id, state.agent)
        case OpenSession(opening=opening):
            refuse_service(state.session_id, opening.agent)
        case _:
            return


def _too_long(fact: Draft) -> Draft:
    """Marks a context that the provider found too long and that cannot be compacted."""
    return replace(fact, data=replace(fact.data, is_over=True)) if isinstance(fact.data, ContextAssembled) else fact


def _changes_trust(state: SessionState, data: SourceTrusted | SourceDistrusted) -> bool:
    """Trust given twice is recorded once. Nobody can trust a source that the context does not hold or count."""
    found = find_source(state.taint, data.source)
    if found is None:
        raise NotFound("source_unknown", f"the session's taint has no source {data.source!r}; see GET …/taint")
    if found.source == MANY:
        message = "sources that are too many to list cannot be trusted; reset the session, or continue with questions"
        raise Conflict("source_many", message, is_retryable=False)
    return found.is_trusted is not isinstance(data, SourceTrusted)


def _same_run(pending: PendingCommit, command: StartRun) -> RunId | None:
    """Returns the run of a command with the same key in this commit, which no table has yet."""
    key = command.accepted.idempotency_key
    for draft in pending.drafts if key is not None else ():
        is_same = isinstance(draft.data, RunAccepted) and draft.data.idempotency_key == key
        if is_same and draft.actor == command.principal:
            return draft.run_id
    return None


def as_conflict(error: PalyraError) -> PalyraError:
    """A command that came too late is a Conflict to its caller, not a fault of its form."""
    is_late = isinstance(error, Invalid) and error.code in (
        "run_ended",
        "call_unknown",
        "approval_unknown",
        "approval_expired",
    )
    return Conflict(error.code, error.message, is_retryable=False) if is_late else error
