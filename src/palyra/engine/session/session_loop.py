"""A session's desk. Owns: the one order in which things happen to a session, and its commits. Not: rules (core), SQL.

Everything appended to a tape goes through its desk: letters in, one commit for all that wait, and once it is durable,
never before, effects and replies (L1, L3). A desk holds nothing that the tape does not: it can be dropped whenever nothing
is under way, and a run that waits for a person costs no coroutine.
"""

import asyncio
from collections import deque

import structlog
from msgspec.structs import replace

from palyra.core.conversation import extend
from palyra.core.errors import Corrupt, PalyraError, Unavailable
from palyra.core.events import Event
from palyra.core.events.model import RoutePlanned
from palyra.core.events.session import SessionBranched
from palyra.core.events.tool import ApprovalResolved
from palyra.core.ids import RunId, SessionId
from palyra.core.run.deadlines import next_deadline_ms
from palyra.core.run.decide import wanted
from palyra.core.run.state import TurnPhase
from palyra.core.run.states import RunState
from palyra.engine.context import EngineContext
from palyra.engine.session.commands import (
    AnswerQuestion,
    CancelRun,
    CheckDue,
    Command,
    EffectReport,
    Envelope,
    OpenSession,
    ReconsiderApprovals,
    RecordSessionEvent,
    ResumeSession,
    SendInput,
    StartRun,
)
from palyra.engine.session.commit_builder import CommitBuilder, as_conflict, unrecordable
from palyra.engine.session.effect_runner import EffectRunner
from palyra.engine.session.grant_fanout import spread_grant
from palyra.engine.session.pending_commit import PendingCommit, SessionState
from palyra.engine.session.session_loader import inherited_window, load_desk
from palyra.engine.spend.ledger import Turn
from palyra.ports.journal import Append

LETTERS_A_COMMIT_MAX = 64
ATTEMPTS_MAX = 3
STALE_CODES = frozenset({"seq_stale", "journal_moved"})  # The tape is longer than this desk knew: read, decide again.
# With these what was live is recorded, or nobody waits for it any more.
ENDS_LIVE_TYPES = frozenset({"model.output", "model.failed", "run.done", "run.failed", "run.cancelled"})
JOURNAL_CLOSED = "journal_closed"  # It will not open again in this process; the outcome is for resume to find out.
ENDED_TYPES = frozenset({"run.done", "run.failed", "run.cancelled"})
RETRY_DELAY_S = 0.25
RETRY_DELAY_MAX_S = 5.0

log = structlog.get_logger()


class SessionLoop:
    def __init__(self, office: EngineContext, session_id: SessionId, state: SessionState | None = None) -> None:
        self.session_id = session_id
        self._office = office
        self._state = state
        self._letters: deque[Envelope] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._drafting = CommitBuilder(office, session_id)
        self._performing = EffectRunner(office, session_id, self.report)
        self._retry_delay_s = RETRY_DELAY_S
        self._bell = asyncio.Event()
        self._in_hand: list[Envelope] = []

    def post(self, order: Command) -> "asyncio.Future[RunId | None]":
        """The reply comes once the order is durable; an order that is refused gives its error."""
        letter = Envelope(order, asyncio.get_running_loop().create_future())
        self._letters.append(letter)
        self._wake()
        return letter.reply

    def report(self, report: EffectReport) -> None:
        self.post(report)

    @property
    def state(self) -> SessionState | None:
        return self._state

    @property
    def is_idle(self) -> bool:
        """Nothing is under way: all there is to know is on the tape."""
        return not self._letters and self._pump is None and not self._performing.is_busy

    @property
    def deadline_ms(self) -> int | None:
        active = self._state.active if self._state is not None else None
        return next_deadline_ms(active) if active is not None else None

    def tell_ledger(self) -> None:
        """Which model call is out, and whether one is wanted. While the state is unknown, what was told last holds."""
        if self._state is None:
            return
        active = self._state.active
        phase = active.phase if active is not None and active.state is RunState.IN_PROGRESS else None
        calling = (active.run_id, active.turn) if active is not None and phase is TurnPhase.CALLING else None
        self._office.ledger.follow(self.session_id, calling, is_planning=phase is TurnPhase.PLANNING)

    @property
    def is_running(self) -> bool:
        active = self._state.active if self._state is not None else None
        return active is not None and active.state is RunState.IN_PROGRESS

    def _wake(self) -> None:
        if self._pump is not None:
            self._bell.set()
        elif not self._office.tasks.is_closing:
            self._pump = self._office.tasks.spawn(self._work(), f"desk {self.session_id}")

    async def _work(self) -> None:
        """Serves what comes, and stays while effects are out, for they will report; a desk with nothing out goes home."""
        try:
            while self._letters or self._performing.is_busy:
                self._bell.clear()
                letters = [self._letters.popleft() for _ in range(min(len(self._letters), LETTERS_A_COMMIT_MAX))]
                if letters:
                    await self._serve(letters)
                else:
                    await self._bell.wait()
        finally:
            self._pump = None
            for letter in self._in_hand:
                # Only a fault of ours ends the work in the middle of a letter; the log has it.
                letter.fail(Unavailable("desk_failed", "the order could not be carried out; the daemon's log says why"))
            self._in_hand = []
            if self._letters:
                self._wake()
            else:
                self._office.desks.rest(self)

    async def _serve(self, letters: list[Envelope]) -> None:
        """All at once if that can be; one by one if something among them cannot be recorded, so that only that fails."""
        self._in_hand = letters
        error = await self._serve_together(letters)
        if error is not None and len(letters) > 1:
            for letter in letters:
                self._in_hand = [letter]
                refusal = await self._serve_together([letter])
                if refusal is not None:
                    self._refuse(letter, refusal)
        elif error is not None:
            self._refuse(letters[0], error)
        self._in_hand = []

    async def _serve_together(self, letters: list[Envelope]) -> PalyraError | None:
        """The error of a commit that can never succeed as it is; None when every letter has been dealt with."""
        try:
            state = self._state or await self._load(letters)
        except Unavailable as error:
            await self._recover(letters, error)
            return None
        except PalyraError as error:
            for letter in letters:
                self._refuse(letter, error)
            return None
        sheet = PendingCommit(state=state)
        answered: list[tuple[Envelope, RunId | None]] = []
        for letter in letters:
            try:
                sheet, reply = await self._draw(sheet, letter.order)
            except PalyraError as error:
                self._refuse(letter, as_conflict(error))
            else:
                answered.append((letter, reply))
        return await self._commit(sheet, answered)

    async def _load(self, letters: list[Envelope]) -> SessionState:
        """A session that begins here has no tape yet."""
        order = letters[0].order
        opening = order.opening if isinstance(order, StartRun | OpenSession) else None
        if isinstance(opening, SessionBranched):
            window = await inherited_window(self._office, opening.parent)
            return SessionState(owner=opening.owner, agent=opening.agent, window=window)
        if opening is not None:
            return SessionState(owner=opening.owner, agent=opening.agent)
        return await load_desk(self._office, self.session_id)

    async def _draw(self, sheet: PendingCommit, order: Command) -> tuple[PendingCommit, RunId | None]:
        drafting = self._drafting
        match order:
            case StartRun():
                return await drafting.start_run(sheet, order)
            case OpenSession():
                return drafting.open(sheet, order), None
            case SendInput():
                return await drafting.say(sheet, order), order.run_id
            case CancelRun():
                return await drafting.cancel(sheet, order), order.run_id
            case AnswerQuestion():
                return await drafting.answer(sheet, order), order.run.id
            case RecordSessionEvent():
                return drafting.note(sheet, order), None
            case ReconsiderApprovals():
                return await drafting.reconsider(sheet), None
            case EffectReport():
                return await drafting.report(sheet, order), order.run_id
            case CheckDue():
                return await drafting.tick(sheet), None
            case ResumeSession():
                return await drafting.resume(sheet), None

    async def _commit(self, sheet: PendingCommit, answered: list[tuple[Envelope, RunId | None]]) -> PalyraError | None:
        if not sheet.drafts and not sheet.writes:
            self._state = sheet.state
            self._settle(answered)
            self._office.desks.changed(self)
            return None
        append = Append(self.session_id, sheet.state.head_seq, sheet.drafts)
        try:
            async with self._office.ledger.recording(sheet.spends):
                events = await self._office.journal.commit((append,), sheet.writes)
        except PalyraError as error:
            self._office.ledger.release(self.session_id, _planned(sheet))
            return await self._not_committed([letter for letter, _ in answered], error)
        self._retry_delay_s = RETRY_DELAY_S
        state = self._state = _after(sheet, events)
        # The model first: whoever asked waits for its first word, and telling others of what is recorded would delay it.
        self._performing.start(sheet.effects, state)
        self._tell(events)
        self._settle(answered)
        return None

    async def _not_committed(self, letters: list[Envelope], error: PalyraError) -> PalyraError | None:
        """Nothing of it happened. What this desk knew may be out of date, and the place it took is free again."""
        self._state = None
        self._office.desks.changed(self)
        if isinstance(error, Unavailable) or error.code in STALE_CODES:
            await self._recover(letters, error)
            return None
        return error

    def _tell(self, events: tuple[Event, ...]) -> None:
        """Of what is recorded now."""
        if any(event.type in ENDS_LIVE_TYPES for event in events):
            self._office.hub.end_live(self.session_id)
        self._office.hub.publish(events)
        self._office.desks.changed(self)
        for event in events:
            if isinstance(event.data, ApprovalResolved) and event.data.grant is not None:
                spread_grant(self._office, event.data.grant.grant_id)
            if event.type in ENDED_TYPES and event.run_id is not None:
                self._office.tasks.spawn(self._office.parts.processes.end_run(event.run_id), f"end of {event.run_id}")

    def _settle(self, answered: list[tuple[Envelope, RunId | None]]) -> None:
        for letter, reply in answered:
            letter.settle(reply)

    async def _recover(self, letters: list[Envelope], error: PalyraError) -> None:
        """What effects came to, and what time made due, is tried again; people are told at once."""
        again: list[Envelope] = []
        for letter in letters:
            letter.attempts += 1
            is_stale = error.code in STALE_CODES and letter.attempts < ATTEMPTS_MAX
            is_owed = isinstance(
                letter.order, EffectReport | CheckDue | ResumeSession | ReconsiderApprovals
            ) and isinstance(error, Unavailable)
            if is_stale or (is_owed and error.code != JOURNAL_CLOSED):
                again.append(letter)
            else:
                letter.fail(error)
        self._letters.extendleft(reversed(again))
        if again and isinstance(error, Unavailable):
            log.warning("waits_for_disk", session_id=self.session_id, code=error.code)
            await asyncio.sleep(self._retry_delay_s)
            self._retry_delay_s = min(2 * self._retry_delay_s, RETRY_DELAY_MAX_S)

    def _refuse(self, letter: Envelope, error: PalyraError) -> None:
        """A report whose effect is still wanted must not vanish, or its run would wait for ever: a smaller word stands for it."""
        if isinstance(error, Corrupt):
            log.error("session_corrupt", session_id=self.session_id, code=error.code, message=error.message)
        order = letter.order
        if isinstance(order, EffectReport) and self._is_awaited(order):
            log.error("outcome_unrecordable", session_id=self.session_id, run_id=order.run_id, code=error.code)
            self.post(unrecordable(order, error))
        letter.fail(error)

    def _is_awaited(self, report: EffectReport) -> bool:
        if report.is_substitute:
            return False
        run = self._state.active if self._state is not None else None
        return self._state is None or (run is not None and run.run_id == report.run_id and report.effect in wanted(run))


def _planned(sheet: PendingCommit) -> tuple[Turn, ...]:
    """Turns that the sheet would have begun."""
    plans = [(draft.run_id, draft.data) for draft in sheet.drafts if isinstance(draft.data, RoutePlanned)]
    return tuple((run_id, plan.turn) for run_id, plan in plans if run_id is not None)


def _after(sheet: PendingCommit, events: tuple[Event, ...]) -> SessionState:
    window = sheet.state.window
    for event in events:
        window = extend(window, event)
    return replace(sheet.state, head_seq=sheet.state.head_seq + len(events), window=window)
