"""Drawing up a sheet. Owns: turning orders into facts, and inert effects into further facts, until nothing is due.

Not: the rules themselves (core.run), committing (desk), or effects that touch the world (performing). Judging and
routing touch nothing outside, so their outcome joins the same commit.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from palyra.core.errors import Conflict, Invalid, NotFound, PalyraError, Unavailable
from palyra.core.events import Data, Draft
from palyra.core.events.model import ModelError, ModelFailed, UsageRecorded
from palyra.core.events.run import CancelRequested, EndReason, ResumeCause, RunAccepted, RunResumed, RunStarted
from palyra.core.events.session import SessionReset, SourceDistrusted, SourceTrusted
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    Grant,
    Outcome,
    ToolError,
    ToolFinished,
    Verdict,
)
from palyra.core.grants import GrantTerms, choose_option, make_grant
from palyra.core.ids import Principal, RunId, SessionId
from palyra.core.run.deadlines import overdue
from palyra.core.run.decide import Record, decide_all, wanted
from palyra.core.run.effects import CallModel, Effect, Judge, PlanRoute, is_inert
from palyra.core.run.state import OpenQuestion, Run, find_call, is_expired
from palyra.core.run.states import RunState, is_terminal
from palyra.core.taint import MANY, find_source, labels
from palyra.core.trust import Trust
from palyra.core.writes import ClearHeartbeat, EraseSecrets, SealSecret, SetHeartbeat, Write
from palyra.engine.api.requests import WhenBusy
from palyra.engine.context import EngineContext
from palyra.engine.session.attachments import link_attached
from palyra.engine.session.commands import (
    AnswerQuestion,
    CancelRun,
    EffectReport,
    OpenSession,
    RecordSessionEvent,
    SendInput,
    StartRun,
)
from palyra.engine.session.event_redactor import EventRedactor
from palyra.engine.session.gate import Gate, GateCase, unnamed_taint
from palyra.engine.session.pending_commit import PendingCommit, SessionState, add_drafts, add_record, find_run
from palyra.engine.session.session_loader import fold_run
from palyra.engine.spend.ledger import Spent
from palyra.engine.spend.route_planner import RoutePlanner, spender_of

ENGINE = Principal("system:engine")
_QUESTION_TYPES = (ApprovalRequested, ApprovalResolved)
_ABOUT_DOUBT = frozenset({Decision.RETRY, Decision.DONE, Decision.GIVE_UP})
_STATUS = {
    Decision.ALLOW: ApprovalStatus.ALLOWED,
    Decision.RETRY: ApprovalStatus.ALLOWED,
    Decision.DONE: ApprovalStatus.ALLOWED,
    Decision.DENY: ApprovalStatus.DENIED,
    Decision.GIVE_UP: ApprovalStatus.DENIED,
}


class CommitBuilder:
    """Draws up sheets for one session."""

    def __init__(self, office: EngineContext, session_id: SessionId) -> None:
        self._office = office
        self._session_id = session_id
        self._gate = Gate(office)
        self._planner = RoutePlanner(office, session_id)
        self._cleaner = EventRedactor(office.redactor, office.parts.sealer)

    async def start_run(self, sheet: PendingCommit, order: StartRun) -> tuple[PendingCommit, RunId]:
        active = sheet.state.active
        same = _same_order(sheet, order)
        if same is not None:
            return sheet, same
        if active is not None and order.when_busy is WhenBusy.STEER:
            message = replace(order.message, idempotency_key=order.accepted.idempotency_key)
            say = SendInput(run_id=active.run_id, principal=order.principal, trust=order.trust, message=message)
            return await self.say(sheet, say), active.run_id
        self._require_room(sheet.state, order)
        if order.opening is not None:
            sheet = self.note(sheet, RecordSessionEvent(principal=order.principal, data=order.opening))
        sheet = link_attached(sheet, self._session_id, order, self._office.clock.now_ms())
        facts = (self._draft(data, order) for data in (order.accepted, order.message))
        return await self._advance(sheet, None, tuple(facts)), order.run_id

    async def say(self, sheet: PendingCommit, order: SendInput) -> PendingCommit:
        run = find_run(sheet.state, order.run_id)
        if order.message.idempotency_key is not None and order.message.idempotency_key in run.input_keys:
            return sheet
        sheet = link_attached(sheet, self._session_id, order, self._office.clock.now_ms())
        return await self._advance(sheet, run, (self._draft(order.message, order),))

    async def cancel(self, sheet: PendingCommit, order: CancelRun) -> PendingCommit:
        run = find_run(sheet.state, order.run_id)
        if run.ending is not None:
            return sheet
        data = CancelRequested(reason=EndReason.CANCELLED, message="Cancelled on request.")
        return await self._advance(sheet, run, (self._system_draft(data, run.run_id, order.principal),))

    async def answer(self, sheet: PendingCommit, order: AnswerQuestion) -> PendingCommit:
        """The person's answer, with the grant it gives. What was decided already is a Conflict."""
        live = [run for run in (sheet.state.active, *sheet.state.queued) if run and run.run_id == order.run.id]
        run = live[0] if live else await fold_run(self._office.journal, order.run)
        asked = [question for question in run.questions if question.approval_id == order.approval_id] if run else []
        if run is None or not asked:
            raise Conflict(
                "approval_decided", f"approval {order.approval_id} has been decided already", is_retryable=False
            )
        if is_expired(asked[0], self._office.clock.now_ms()):
            self._office.desks.look_at_clock()
            raise Conflict("approval_expired", f"approval {order.approval_id} has expired", is_retryable=False)
        data = ApprovalResolved(
            approval_id=order.approval_id,
            status=_STATUS[order.answer.decision],
            decision=order.answer.decision,
            decided_by=order.principal,
            digest=order.request.digest,
            scope=order.answer.scope,
            grant=self._grant(order, run.agent),
            reason=order.answer.reason,
            end_run=order.answer.end_run,
        )
        fact = self._system_draft(data, run.run_id, order.principal, Trust.OPERATOR)
        if not is_terminal(run.state):
            return await self._advance(sheet, run, (fact,))
        if order.answer.decision is Decision.RETRY:
            message = f"run {run.run_id} is over; start a new run to do it again, or answer done or give_up"
            raise Conflict("run_ended", message, is_retryable=False)
        _, (record, *_) = decide_all(run, (fact,))
        drafts = record.drafts if isinstance(record, Record) else ()
        return add_drafts(replace(sheet, state=self._without_doubt(sheet.state, order)), drafts)

    async def reconsider(self, sheet: PendingCommit) -> PendingCommit:
        """Open questions are judged again, as the context is now; those that one grant covers whole are answered by it."""
        for question in sheet.state.active.questions if sheet.state.active is not None else ():
            run = sheet.state.active
            is_open = run is not None and question in run.questions and question.kind is ApprovalKind.TOOL
            if run is not None and is_open and not is_expired(question, self._office.clock.now_ms()):
                facts = await self._by_grant(sheet, run, question)
                sheet = await self._advance(sheet, run, facts) if facts else sheet
        return sheet

    async def _by_grant(self, sheet: PendingCommit, run: Run, question: OpenQuestion) -> tuple[Draft, ...]:
        case, now_ms = self._case(sheet, run), self._office.clock.now_ms()
        judged = [await self._gate.judge(run, find_call(run, call_id), case) for call_id in question.calls]
        grant_ids = {each.grant_id if each.verdict is Verdict.ALLOW else None for each in judged}
        grant_id = grant_ids.pop() if len(grant_ids) == 1 else None
        given_by = await self._gate.giver_of(grant_id) if grant_id is not None else None
        if given_by is None:
            return ()
        data = ApprovalResolved(
            approval_id=question.approval_id,
            status=ApprovalStatus.ALLOWED,
            decision=Decision.ALLOW,
            decided_by=given_by,
            digest=question.digest,
            reason=f"covered by grant {grant_id}",
            covered_by=grant_id,
        )
        return (replace(self._system_draft(data, run.run_id, ENGINE), at_ms=now_ms),)

    async def report(self, sheet: PendingCommit, order: EffectReport) -> PendingCommit:
        run = find_run(sheet.state, order.run_id)
        return await self._advance(replace(sheet, writes=(*sheet.writes, *order.writes)), run, order.drafts)

    async def tick(self, sheet: PendingCommit) -> PendingCommit:
        run = sheet.state.active
        facts = overdue(run, self._office.clock.now_ms()) if run is not None else ()
        if run is not None and not facts:
            # A plan that had to wait for room in a budget is asked for again.
            plans = [effect for effect in wanted(run) if isinstance(effect, PlanRoute)]
            facts = await self._perform_inert(sheet, run, plans)
        if run is not None and facts:
            return await self._advance(sheet, run, facts)
        return await self._begin_next(sheet)

    async def resume(self, sheet: PendingCommit) -> PendingCommit:
        """What was in flight no longer is; only then is the time that passed looked at, for it was nobody's active time."""
        run = sheet.state.active
        if run is not None and run.state is RunState.IN_PROGRESS:
            fact = self._system_draft(RunResumed(cause=ResumeCause.RESTART), run.run_id, ENGINE)
            heartbeat = SetHeartbeat(run.run_id, self._office.node, self._office.clock.now_ms())
            sheet = await self._advance(replace(sheet, writes=(*sheet.writes, heartbeat)), run, (fact,))
        return await self.tick(sheet)

    def open(self, sheet: PendingCommit, order: OpenSession) -> PendingCommit:
        return self.note(sheet, RecordSessionEvent(principal=order.principal, data=order.opening))

    def note(self, sheet: PendingCommit, order: RecordSessionEvent) -> PendingCommit:
        draft, writes = self._cleaner.clean(self._system_draft(order.data, None, order.principal, Trust.OPERATOR))
        state = sheet.state
        if isinstance(order.data, SourceTrusted | SourceDistrusted) and not _changes_trust(state, order.data):
            return sheet
        if isinstance(order.data, SessionReset):
            if state.active is not None or state.queued:
                raise Conflict("session_busy", "the session has unfinished runs; cancel them or wait, then reset")
            state = replace(state, reset_seq=state.head_seq + len(sheet.drafts) + 1)
        return add_drafts(replace(sheet, state=state, writes=(*sheet.writes, *writes)), (draft,))

    async def _advance(self, sheet: PendingCommit, run: Run | None, facts: tuple[Draft, ...]) -> PendingCommit:
        """Facts, then what inert effects make of them, until only the world is left to ask; then the next run begins."""
        while facts:
            cleaned = [self._cleaner.clean(fact) for fact in facts]
            writes = tuple(write for _, extra in cleaned for write in extra)
            run, (record, *effects) = decide_all(run, tuple(draft for draft, _ in cleaned))
            assert isinstance(record, Record)
            outgoing = tuple(effect for effect in effects if not isinstance(effect, Record) and not is_inert(effect))
            sheet = add_record(replace(sheet, writes=(*sheet.writes, *writes)), record, outgoing, run)
            sheet = self._remember_doubts(self._count_spend(sheet, record, run), record)
            facts = await self._perform_inert(sheet, run, effects)
        if run is not None and is_terminal(run.state):
            ended: tuple[Write, ...] = (ClearHeartbeat(run.run_id), EraseSecrets(run.run_id))
            sheet = replace(sheet, writes=(*sheet.writes, *ended))
        return await self._begin_next(sheet)

    async def _begin_next(self, sheet: PendingCommit) -> PendingCommit:
        state = sheet.state
        if state.active is not None or not state.queued or not self._office.slots.has_room(self._session_id):
            return sheet
        run = state.queued[0]
        fact = self._system_draft(RunStarted(), run.run_id, ENGINE)
        heartbeat = SetHeartbeat(run.run_id, self._office.node, self._office.clock.now_ms())
        return await self._advance(replace(sheet, writes=(*sheet.writes, heartbeat)), run, (fact,))

    async def _perform_inert(
        self, sheet: PendingCommit, run: Run, effects: Sequence[Record | Effect]
    ) -> tuple[Draft, ...]:
        facts: list[Draft] = []
        for effect in effects:
            match effect:
                case PlanRoute():
                    plan = await self._planner.plan(sheet, run, effect)
                    facts += [] if plan is None else [self._system_draft(plan, run.run_id, ENGINE)]
                case Judge(call_id=call_id):
                    # As of the moment the question is put: a grant that held then may expire while it is looked up.
                    now_ms = self._office.clock.now_ms()
                    judged = await self._gate.judge(run, find_call(run, call_id), self._case(sheet, run))
                    facts.append(replace(self._system_draft(judged, run.run_id, ENGINE), at_ms=now_ms))
                case _:
                    continue
        return tuple(facts)

    def _case(self, sheet: PendingCommit, run: Run) -> GateCase:
        state = sheet.state
        return GateCase(
            session_id=self._session_id,
            principal=state.owner,
            agent=self._office.agent_of(run.agent),
            reset_seq=state.reset_seq,
            doubts=state.doubts,
            taint=labels(state.taint) or unnamed_taint(state.taint, run),
            window=state.window,
            sealed=tuple(write for write in sheet.writes if isinstance(write, SealSecret)),
        )

    def _grant(self, order: AnswerQuestion, agent: str) -> Grant | None:
        request, answer = order.request, order.answer
        if answer.decision is not Decision.ALLOW or request.kind is not ApprovalKind.TOOL or request.tool is None:
            return None
        terms = GrantTerms(
            approval_id=order.approval_id,
            tool=request.tool,
            option=choose_option(request.options, answer.scope, answer.option),
            taint=request.taint,
            principal=order.run.principal,
            agent=agent,
            now_ms=self._office.clock.now_ms(),
            ttl_s=answer.ttl_s,
        )
        return make_grant(terms)

    def _require_room(self, state: SessionState, order: StartRun) -> None:
        if state.active is None and not state.queued:
            return
        if order.when_busy is WhenBusy.REJECT:
            raise Conflict("session_busy", "the session is busy with another run; queue, steer, or wait")
        if len(state.queued) >= self._office.settings.runs_queued_max:
            raise Unavailable("queue_full", f"{len(state.queued)} runs wait in this session already; try later")

    def _remember_doubts(self, sheet: PendingCommit, record: Record) -> PendingCommit:
        """While nobody knows whether a call took effect, the same call is not made again unasked."""
        if not any(isinstance(draft.data, _QUESTION_TYPES) for draft in record.drafts):
            return sheet
        # An answer to the repeat's own card says nothing about the first call: only one about the doubt itself does.
        answered = {
            draft.data.digest
            for draft in record.drafts
            if isinstance(draft.data, ApprovalResolved) and draft.data.decision in _ABOUT_DOUBT
        }
        asked = {
            draft.data.digest
            for draft in record.drafts
            if isinstance(draft.data, ApprovalRequested) and draft.data.kind is ApprovalKind.UNCERTAIN
        }
        doubts = (sheet.state.doubts - answered) | asked
        return sheet if doubts == sheet.state.doubts else replace(sheet, state=replace(sheet.state, doubts=doubts))

    def _count_spend(self, sheet: PendingCommit, record: Record, run: Run) -> PendingCommit:
        spender = spender_of(run, sheet.state.owner, self._session_id)
        spends = tuple(
            Spent(spender, draft.data, draft.at_ms) for draft in record.drafts if isinstance(draft.data, UsageRecorded)
        )
        for spend in spends:
            self._office.ledger.foresee(spend)
        return replace(sheet, spends=(*sheet.spends, *spends)) if spends else sheet

    def _without_doubt(self, state: SessionState, order: AnswerQuestion) -> SessionState:
        return replace(state, doubts=state.doubts - {order.request.digest})

    def _draft(self, data: Data, order: StartRun | SendInput) -> Draft:
        now_ms = self._office.clock.now_ms()
        return Draft(data=data, actor=order.principal, trust=order.trust, at_ms=now_ms, run_id=order.run_id)

    def _system_draft(self, data: Data, run_id: RunId | None, actor: Principal, trust: Trust = Trust.SYSTEM) -> Draft:
        return Draft(data=data, actor=actor, trust=trust, at_ms=self._office.clock.now_ms(), run_id=run_id)


def _changes_trust(state: SessionState, data: SourceTrusted | SourceDistrusted) -> bool:
    """Said again, it is said once. Nobody can vouch for what no context holds, nor for sources that were not counted."""
    found = find_source(state.taint, data.source)
    if found is None:
        raise NotFound("source_unknown", f"the session's taint has no source {data.source!r}; see GET …/taint")
    if found.source == MANY:
        message = "nobody can vouch for sources too many to list; reset the session, or go on with questions"
        raise Conflict("source_many", message, is_retryable=False)
    return found.is_trusted is not isinstance(data, SourceTrusted)


def _same_order(sheet: PendingCommit, order: StartRun) -> RunId | None:
    """The run of an order with the same key that is on this very sheet: no table knows of it yet."""
    key = order.accepted.idempotency_key
    for draft in sheet.drafts if key is not None else ():
        if isinstance(draft.data, RunAccepted) and (draft.data.idempotency_key, draft.actor) == (key, order.principal):
            return draft.run_id
    return None


def unrecordable(report: EffectReport, error: PalyraError) -> EffectReport:
    """In the place of an outcome that cannot be recorded: that it came, and why it is not here."""
    said = report.drafts[-1]
    message = f"What came of it could not be recorded ({error.code}): {error.message}"
    data: Data
    match said.data:
        case ToolFinished(call_id=call_id, effect_id=effect_id):
            problem = ToolError(code="unrecordable", message=message)
            data = ToolFinished(
                call_id=call_id, effect_id=effect_id, outcome=Outcome.FAILED, error=problem, attestation=None
            )
        case _:
            turn = report.effect.turn if isinstance(report.effect, CallModel) else 0
            data = ModelFailed(turn=turn, code=ModelError.PROTOCOL, message=message)
    draft = replace(said, data=data, trust=Trust.SYSTEM)
    # What was spent is small and true, whatever became of the words.
    spends = tuple(one for one in report.drafts if isinstance(one.data, UsageRecorded))
    return EffectReport(run_id=report.run_id, effect=report.effect, drafts=(*spends, draft), is_substitute=True)


def as_conflict(error: PalyraError) -> PalyraError:
    """To a caller an order that came too late is a Conflict, not a fault of its form."""
    is_late = isinstance(error, Invalid) and error.code in (
        "run_ended",
        "call_unknown",
        "approval_unknown",
        "approval_expired",
    )
    return Conflict(error.code, error.message, is_retryable=False) if is_late else error
