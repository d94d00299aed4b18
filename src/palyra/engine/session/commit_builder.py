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
from palyra.core.caller_trust import trust_of_caller
from palyra.core.channels.replies import reply_writes
from palyra.core.errors import Conflict, Unavailable
from palyra.core.events import Data, Draft
from palyra.core.events.model import ContextAssembled
from palyra.core.events.run import CancelRequested, EndReason, MessageUser, ResumeCause, RunResumed, RunStarted
from palyra.core.events.session import SessionReset, SourceDistrusted, SourceTrusted
from palyra.core.events.tool import ToolHeld
from palyra.core.ids import NodeId, RunId
from palyra.core.run.deadlines import overdue
from palyra.core.run.decide import Record, decide_all, wanted
from palyra.core.run.effects import PlanRoute, is_inert
from palyra.core.run.state import Run, calls_in_flight
from palyra.core.run.states import RunState, is_terminal
from palyra.core.trust import Trust
from palyra.core.writes import ClearHeartbeat, SetHeartbeat, Write
from palyra.engine.api.requests import WhenBusy
from palyra.engine.session.answer_builder import AnswerBuilder, is_yes
from palyra.engine.session.attachments import link_attached
from palyra.engine.session.command_checks import changes_trust, has_begun, require_not_service, same_run
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
    ReturnResults,
    SendInput,
    StartRun,
)
from palyra.engine.session.compaction_builder import CompactionBuilder
from palyra.engine.session.drafts import engine_draft
from palyra.engine.session.effect_runner import EffectParts
from palyra.engine.session.event_redactor import EventRedactor
from palyra.engine.session.follow_up_jobs import FollowUpJobs
from palyra.engine.session.given_messages import add_given
from palyra.engine.session.outcome_signer import sign_outcomes
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
from palyra.engine.session.slots import RunSlots, slot_depth
from palyra.engine.spend.ledger import Ledger
from palyra.ports.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBuilder:
    node: NodeId
    clock: Clock
    redactor: EventRedactor
    follow_ups: FollowUpJobs
    effects: EffectParts
    answers: AnswerBuilder
    compactions: CompactionBuilder
    ledger: Ledger
    slots: RunSlots
    runs_queued_max: int

    async def add(self, pending: PendingCommit, command: Command) -> tuple[PendingCommit, RunId | None]:
        """Returns the commit with one more command, and the run that the command is about."""
        require_not_service(pending.state, command)
        match command:
            case StartRun():
                return await self._start_run(pending, command)
            case OpenSession(opening=opening) if has_begun(pending, opening.owner):
                return pending, None
            case OpenSession(principal=principal, opening=opening):
                return await self._record(pending, RecordSessionEvent(principal=principal, data=opening)), None
            case SendInput():
                return await self._send_input(pending, command), command.run_id
            case ReturnResults():
                return await self._return_results(pending, command), command.run_id
            case CancelRun():
                return await self._cancel(pending, command), command.run_id
            case AnswerQuestion():
                return await self._answer(pending, command), command.run.id
            case RecordSessionEvent():
                return await self._record(pending, command), None
            case CompactSession():
                return await self.compactions.compact(pending, command), None
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
        if command.opening is not None and has_begun(pending, command.opening.owner):
            command = replace(command, opening=None, given=())
        active = pending.state.active
        same = same_run(pending, command)
        if same is not None:
            return pending, same
        if active is not None and command.when_busy is WhenBusy.STEER:
            # Who may answer for what is their own answers for a run of theirs, whoever owns the session.
            is_own = active.principal == command.principal and command.trust is Trust.OPERATOR
            message = replace(
                command.message,
                idempotency_key=command.accepted.idempotency_key,
                leaves_questions=command.message.leaves_questions and not is_own,
            )
            say = SendInput(
                run_id=active.run_id,
                principal=command.principal,
                trust=command.trust,
                message=message,
                writes=command.writes,
            )
            return await self._send_input(pending, say), active.run_id
        self._require_room(pending.state, command)
        if command.opening is not None:
            opening = RecordSessionEvent(principal=command.principal, data=command.opening)
            pending = await self._record(pending, opening)
        pending = await add_given(pending, command, self.redactor, self.clock.now_ms())
        pending = _with_writes(link_attached(pending, command, self.clock.now_ms()), command)
        accepted, said = self._said(command.accepted, command), self._said(command.message, command)
        said = replace(said, actor=command.speaker or command.principal)
        return await self._advance(pending, None, (accepted, said)), command.run_id

    async def _send_input(self, pending: PendingCommit, command: SendInput) -> PendingCommit:
        run = find_run(pending.state, command.run_id)
        if command.message.idempotency_key is not None and command.message.idempotency_key in run.input_keys:
            return pending
        pending = _with_writes(link_attached(pending, command, self.clock.now_ms()), command)
        return await self._advance(pending, run, (self._said(command.message, command),))

    async def _return_results(self, pending: PendingCommit, command: ReturnResults) -> PendingCommit:
        """Records what the caller's own tools gave, then what the caller says. A result that is known is not new."""
        run = find_run(pending.state, command.run_id)
        facts, writes = await self.effects.caller_results.facts(run, pending.state, command.results)
        if command.message is not None:
            trust = trust_of_caller(command.principal, command.message.client)
            say = SendInput(run_id=run.run_id, principal=command.principal, trust=trust, message=command.message)
            pending = link_attached(pending, say, self.clock.now_ms())
            facts = (*facts, self._said(command.message, say))
        if not facts:
            return pending
        return await self._advance(replace(pending, writes=(*pending.writes, *writes)), run, facts)

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
        run, fact = await self.answers.answer(pending, command)
        for trusted in self.answers.trusted(pending.state, command) if is_yes(fact) else ():
            pending = await self._record(pending, RecordSessionEvent(principal=command.principal, data=trusted))
        if not is_terminal(run.state):
            return await self._advance(pending, run, (fact,))
        _, (record, *_) = decide_all(run, (fact,))
        drafts = record.drafts if isinstance(record, Record) else ()
        doubts = pending.state.doubts - {command.request.digest}
        return add_drafts(replace(pending, state=replace(pending.state, doubts=doubts)), drafts)

    async def _reconsider(self, pending: PendingCommit) -> PendingCommit:
        """Judges open questions again in the present context. A grant or a refusal that covers one fully answers it."""
        for question in pending.state.active.questions if pending.state.active is not None else ():
            run = pending.state.active
            if run is not None and question in run.questions:
                facts = await self.answers.by_earlier(pending, run, question)
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

    async def _record(self, pending: PendingCommit, command: RecordSessionEvent) -> PendingCommit:
        """Adds an event of the session itself, outside any run."""
        draft, writes = await self.redactor.clean_off_loop(
            Draft(data=command.data, actor=command.principal, trust=command.trust, at_ms=self.clock.now_ms())
        )
        state = pending.state
        require_pin(state, command.data)
        if isinstance(command.data, SourceTrusted | SourceDistrusted) and not changes_trust(state, command.data):
            return pending
        if isinstance(command.data, SessionReset):
            if state.active is not None or state.queued:
                raise Conflict("session_busy", "the session has unfinished runs; cancel them or wait, then reset")
            pending = add_drafts(pending, unpin_all(pending.state, draft))
            state = replace(pending.state, reset_seq=state.head_seq + len(pending.drafts) + 1)
        return add_drafts(replace(pending, state=state, writes=(*pending.writes, *writes, *command.writes)), (draft,))

    async def _advance(self, pending: PendingCommit, run: Run | None, facts: tuple[Draft, ...]) -> PendingCommit:
        """Adds facts, then the results of judging and planning, until only outside effects are left."""
        while facts:
            cleaned = [await self.redactor.clean_off_loop(fact) for fact in facts]
            writes = tuple(write for _, extra in cleaned for write in extra)
            before = run
            run, (record, *effects) = decide_all(run, tuple(draft for draft, _ in cleaned))
            assert isinstance(record, Record)
            record = sign_outcomes(record, before, self.effects.tools.signer)
            outgoing = tuple(effect for effect in effects if not isinstance(effect, Record) and not is_inert(effect))
            pending = add_record(replace(pending, writes=(*pending.writes, *writes)), record, outgoing, run)
            pending = remember_doubts(self._count_spend(pending, record, run), record)
            replies = reply_writes(run, record.drafts, pending.state.session_id, self.clock.now_ms())
            pending = replace(pending, writes=(*pending.writes, *replies)) if replies else pending
            pending, facts, sealed = await self.compactions.judge_and_plan(pending, run, effects)
            pending = self._queue_compaction(replace(pending, writes=(*pending.writes, *sealed)), facts)
        if run is not None and is_terminal(run.state):
            pending = replace(pending, writes=(*pending.writes, *self.follow_ups.after_end(run, pending.state)))
        return await self._begin_next(pending)

    def _queue_compaction(self, pending: PendingCommit, facts: tuple[Draft, ...]) -> PendingCommit:
        """Queues the compaction that a context says is due."""
        for fact in facts:
            if isinstance(fact.data, ContextAssembled) and fact.data.is_compaction_due:
                return replace(pending, writes=(*pending.writes, self.follow_ups.compaction(pending.state)))
        return pending

    async def _begin_next(self, pending: PendingCommit) -> PendingCommit:
        state = pending.state
        if state.active is not None or not state.queued:
            return pending
        run = state.queued[0]
        if not self.slots.has_room(state.session_id, slot_depth(run), run.origin):
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


def _with_writes(pending: PendingCommit, command: StartRun | SendInput) -> PendingCommit:
    return replace(pending, writes=(*pending.writes, *command.writes)) if command.writes else pending
